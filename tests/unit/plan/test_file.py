"""Files as values that know their lines, and files of which nothing can be made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.wire.plan import PlanProblem
from headrace_fair_share.plan import file as files
from headrace_fair_share.plan.file import Listing, Map, Text, Unusable, parse, read


def parsed(text: str) -> Map:
    problems: list[PlanProblem] = []
    value = parse(text.encode(), problems)
    assert problems == []
    return value


def refused(data: bytes) -> PlanProblem:
    with pytest.raises(Unusable) as caught:
        parse(data, [])
    return caught.value.problem


def test_every_value_knows_its_line_and_stays_the_text_that_was_written() -> None:
    root = parsed("a: 1\nb:\n  - no\n  - '4G'\n  - {x: 0.30}\n")

    assert root.entries["a"] == (1, Text(1, "1"))
    line, listing = root.entries["b"]
    assert line == 2
    assert isinstance(listing, Listing)
    assert listing.items[:2] == [Text(3, "no"), Text(4, "4G", quoted=True)]
    inner = listing.items[2]
    assert isinstance(inner, Map)
    assert inner.entries["x"] == (5, Text(5, "0.30"))


def test_json_is_read_too() -> None:
    assert parsed('{\n\t"a": [1, true, null],\n"b": {}}').entries["b"][0] == 3


def test_a_byte_order_mark_is_no_key() -> None:
    assert list(parsed("\ufeffa: 1").entries) == ["a"]


def test_a_key_that_stands_twice_is_told_with_both_lines() -> None:
    problems: list[PlanProblem] = []

    parse(b"a: 1\nb: 2\na: 3\n", problems)

    assert [problem.text("f") for problem in problems] == [
        "f:3: a: stands twice in one map; line 1 has it already; expected each key once"
    ]


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"", 1, "is empty"),
        (b"# nothing\n", 1, "is empty"),
        (b"~", 1, "is empty"),
        (b"just words", 1, "just words stands here"),
        (b"\n- 1\n- 2", 2, "a list stands here"),
        (b"a: 1\nb: [1, 2\nc: 3\n", 3, "YAML"),
        (b"a: 1\n\tb: 2\n", 2, "YAML"),
        (b"a: \x00", 0, "YAML"),
        (b"a: 1\nb: \xff\n", 2, "byte 0xff is not UTF-8"),
        ("a: 1".encode("utf-16"), 1, "is not UTF-8"),
        (b"a: 1\n---\nb: 2\n", 2, "a second document"),
        (b"a: *x\n", 1, "*x stands for nothing"),
        (b"a: &x [*x]\n", 1, "*x stands for nothing"),
        (b"? [1]\n: 2\n", 1, "as a key"),
    ],
)
def test_what_is_no_map_in_yaml_is_told_with_its_line(data: bytes, line: int, words: str) -> None:
    problem = refused(data)

    assert problem.line == line
    assert words in problem.wrong


def test_anchors_stand_for_what_they_name_and_tags_for_nothing() -> None:
    root = parsed("a: &job {cpu: 1}\nb: *job\nc: !!python/object/apply:os.abort []\n")

    assert root.entries["b"][1] is root.entries["a"][1]
    assert isinstance(root.entries["c"][1], Listing)


def test_maps_are_not_merged() -> None:
    problems: list[PlanProblem] = []

    parse(b"a: &x {cpu: 1}\nb:\n  <<: *x\n", problems)

    assert [(problem.line, problem.key) for problem in problems] == [(3, "<<")]


def test_anchors_cannot_make_a_small_file_large() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

    assert "too many values" in refused("\n".join(lines).encode()).wrong


def test_nesting_costs_no_stack() -> None:
    depth = 5 * sys.getrecursionlimit()

    assert isinstance(parsed("a: " + "[" * depth + "]" * depth).entries["a"][1], Listing)


def test_files_that_cannot_be_read_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_FILE_BYTES", 1024**2)
    (tmp_path / "large").write_bytes(b"#" * (1024**2 + 1))

    for name, words in (("", "is a directory"), ("missing", "No such file"), ("large", "is too large"), ("\0", "null")):
        with pytest.raises(Unusable) as caught:
            read(f"{tmp_path}/{name}")
        assert words in caught.value.problem.text("f")
