"""Files as values that know their lines, and files of which nothing can be made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.tree_file import values
from headrace.tree_file.problems import FileProblem, Problems, UnusableFile
from headrace.tree_file.values import MOST_NESTED, Map, line_of, parse, read


def parsed(text: str) -> Map:
    problems = Problems("f")
    value = parse(text.encode(), problems)
    assert problems.found == []
    return value


def refused(data: bytes) -> FileProblem:
    with pytest.raises(UnusableFile) as caught:
        parse(data, Problems("f"))
    (problem,) = caught.value.problems
    return problem


def test_values_are_plain_and_know_their_lines() -> None:
    root = parsed("a: 1\nb:\n  - no\n  - '4'\n  - {x: 0.30}\nc/d.e: ~\n")

    assert root == {"a": 1, "b": ["no", "4", {"x": 0.3}], "c/d.e": None}
    places = ("", "a", "b", "b[0]", "b[1]", "b[2].x", "b[2].x.y", "b[9]", "c.d.e", "z")
    assert [line_of(root, place) for place in places] == [1, 1, 2, 3, 4, 5, 5, 2, 6, 1]
    assert root["b"][2].texts == {"x": "0.30"}


def test_what_is_no_decimal_figure_and_no_truth_stays_text() -> None:
    texts = ["no", "yes", "True", "0x1f", "010", "1_000", "1:30", "1e3", ".5", "2020-01-01", ".nan", "9" * 1001]
    root = parsed(f"texts: [{', '.join(texts)}]\nothers: [true, false, 7, -0, +3, 1.5, -2.5e-3, null, ~]")

    assert root["texts"] == texts
    assert root["others"] == [True, False, 7, 0, 3, 1.5, -0.0025, None, None]


def test_json_is_read_too() -> None:
    assert parsed('{"a": [1e3, 5E-324, -2.5, 10, "1e3"]}') == {"a": [1000.0, 5e-324, -2.5, 10, "1e3"]}
    root = parsed('{\n\t"a": [1, true, null],\n"b": {}}')

    assert root == {"a": [1, True, None], "b": {}}
    assert line_of(root, "b") == 3


def test_a_byte_order_mark_is_no_key() -> None:
    assert list(parsed("\ufeffa: 1")) == ["a"]


def test_a_key_that_stands_twice_is_told_with_both_lines() -> None:
    problems = Problems("f")

    parse(b"a: 1\nb: 2\na: 3\n", problems)

    assert [problem.text("f") for problem in problems.found] == [
        "f:3: a: is in the map twice; line 1 has it already; expected each key once"
    ]


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"", 1, "is empty"),
        (b"# nothing\n", 1, "is empty"),
        (b"~", 1, "is empty"),
        (b"just words", 1, "just words was found"),
        (b"\n- 1\n- 2", 2, "a list was found"),
        (b"a: 1\nb: [1, 2\nc: 3\n", 3, "YAML"),
        (b"a: 1\n\tb: 2\n", 2, "YAML"),
        (b"a: \x00", 0, "YAML"),
        (b"a: 1\nb: \xff\n", 2, "byte 0xff is not UTF-8"),
        ("a: 1".encode("utf-16"), 1, "is not UTF-8"),
        (b"a: 1\n---\nb: 2\n", 2, "a second document"),
        (b"a: *x\n", 1, "*x refers to no anchor"),
        (b"a: &x [*x]\n", 1, "*x refers to no anchor"),
        (b"? [1]\n: 2\n", 1, "as a key"),
    ],
)
def test_what_is_no_map_in_yaml_is_told_with_its_line(data: bytes, line: int, words: str) -> None:
    problem = refused(data)

    assert problem.line == line
    assert words in problem.wrong


def test_anchors_stand_for_what_they_name() -> None:
    root = parsed("a: &job {cpu: 1}\nb: *job\n")

    assert root["b"] is root["a"]
    assert (line_of(root, "b"), line_of(root, "b.cpu")) == (2, 1)


@pytest.mark.parametrize("tagged", ["!!python/object/apply:os.abort []", "!!python/object:os.system {}", "!mine 1"])
def test_tags_are_refused(tagged: str) -> None:
    assert refused(f"a:\n  {tagged}".encode()).text("f").startswith("f:2: the tag ")


def test_maps_are_not_merged() -> None:
    problems = Problems("f")

    parse(b"a: &x {cpu: 1}\nb:\n  <<: *x\n", problems)

    assert [(problem.line, problem.key) for problem in problems.found] == [(3, "<<")]


@pytest.mark.parametrize("text", ["a: {'<<': x}", 'a: {"<<": x}', '{"a": {"<<": "x"}}', "a: [<<]\n'<<': <<"])
def test_the_sign_of_a_merge_in_quotes_is_a_key(text: str) -> None:
    """Everybody who may write to a pool can give it an attribute with such a key, which an export writes in quotes."""
    assert "<<" in str(parsed(text))


def test_anchors_cannot_make_a_small_file_large() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

    assert "too many values" in refused("\n".join(lines).encode()).wrong


def test_nesting_costs_no_stack_and_has_an_end() -> None:
    def nested(depth: int) -> str:
        return "a:\n " + "[" * depth + "]" * depth

    assert isinstance(parsed(nested(MOST_NESTED - 1))["a"], list)
    for depth in (MOST_NESTED, 5 * sys.getrecursionlimit()):
        assert refused(nested(depth).encode()).text("f").startswith("f:2: nested too deep")


def test_files_that_cannot_be_read_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "LARGEST_FILE_BYTES", 1024**2)
    (tmp_path / "large").write_bytes(b"#" * (1024**2 + 1))

    for name, words in (("", "is a directory"), ("missing", "No such file"), ("large", "is too large"), ("\0", "null")):
        with pytest.raises(UnusableFile, match=words):
            read(f"{tmp_path}/{name}", Problems("f"))
