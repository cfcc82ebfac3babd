"""What can be written behind `headrace`, by the words that stand there already and the names that are known."""

from __future__ import annotations

import subprocess
from typing import Annotated, Literal

import pytest
from cyclopts import App, Parameter
from hypothesis import given
from hypothesis import strategies as st

from docs.generate.commands_table import table_of, table_text
from headrace.ids import PoolName
from headrace.pools import POOL_ATTRIBUTES
from headrace.wire.operations import OperationState
from headrace_cli.command_line import COMMANDS
from headrace_cli.commands.completion import completion
from headrace_cli.completion.bash_line import read_line
from headrace_cli.completion.candidates import Completion, Mark, Name, candidates
from headrace_cli.completion.setting_words import assignments
from headrace_cli.completion.slot import find_slot
from headrace_cli.completion.table import TABLE_FILE, read_table
from headrace_cli.completion.value_kinds import ValueKind, value_kind

TABLE = read_table()
POOLS = (Name("research", "in <Root>"), Name(PoolName("hub$ann")), Name("team:x"))


def values(*words: str, known: tuple[Name, ...] = ()) -> list[str]:
    return [candidate.value for candidate in candidates(find_slot(TABLE, words), known)]


def kind(*words: str) -> ValueKind | None:
    return value_kind(find_slot(TABLE, words))


def test_the_table_of_commands_is_what_the_commands_themselves_say() -> None:
    assert TABLE_FILE.read_text(encoding="utf-8") == table_text(), "run: make docs-reference"


def test_every_command_that_help_shows_is_offered_and_no_other() -> None:
    assert values("") == [*COMMANDS, "version"]
    assert {"list", "get", "logs", "wait", "abort"} <= set(values("op", ""))


def test_a_command_comes_with_its_first_sentence() -> None:
    found = candidates(find_slot(TABLE, ["pool", ""]), ())

    assert Completion(Mark.WORD, "create", "Make a pool") in found


def test_options_are_offered_once_unless_they_may_be_repeated() -> None:
    offered = values("run", "--pool", "research", "--env", "A", "-")

    assert "--jobs" in offered
    assert "--env" in offered
    assert "--pool" not in offered
    assert "--help" in offered


def test_where_nothing_else_can_stand_options_are_offered() -> None:
    assert "--json" in values("node", "list", "")


def test_words_to_choose_from_are_offered_behind_an_option_and_behind_its_equals_sign() -> None:
    assert values("run", "--on-lost-node", "") == ["requeue", "wait"]
    assert values("run", "--on-lost-node=re") == ["--on-lost-node=requeue", "--on-lost-node=wait"]
    assert values("op", "list", "--in-state", "") == [str(state) for state in OperationState]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pool", "get", ""], ValueKind.POOL_OR_ROOT),
        (["pool", "remove", ""], ValueKind.POOL),
        (["pool", "set", ""], ValueKind.POOL),
        (["pool", "volume", "--since", "-1d", ""], ValueKind.POOL_OR_ROOT),
        (["pool", "create", ""], None),
        (["pool", "create", "new", "--parent", ""], ValueKind.POOL_OR_ROOT),
        (["pool", "get", "pool", ""], ValueKind.FIELD),
        (["pool", "get", "--json", "get", "usage", ""], ValueKind.FIELD),
        (["run", "--pool", ""], ValueKind.POOL),
        (["run", "--pool=re"], ValueKind.POOL),
        (["op", "list", "--pool", ""], ValueKind.POOL),
        (["op", "list", "--user", ""], ValueKind.USER),
        (["op", "get", ""], ValueKind.OPERATION),
        (["op", "logs", ""], ValueKind.OPERATION),
        (["op", "wait", ""], ValueKind.LIVE_OPERATION),
        (["op", "set", ""], ValueKind.LIVE_OPERATION),
        (["op", "set", "one-of-them", ""], ValueKind.OPERATION_SETTING),
        (["op", "list", "--in-state", ""], ValueKind.STATE),
        (["op", "list", "--state", ""], ValueKind.FILE),
        (["tree", "get", ""], ValueKind.TREE),
        (["tree", "create", ""], None),
        (["pool", "transfer", "research", ""], ValueKind.POOL_OR_ROOT),
        (["pool", "attributes", ""], ValueKind.ATTRIBUTE),
        (["op", "abort", "one-of-them", ""], ValueKind.LIVE_OPERATION),
        (["up", "--node", ""], None),
        (["up", "--state", ""], ValueKind.FILE),
        (["plan", ""], ValueKind.FILE),
        (["run", "--", "python", ""], ValueKind.COMMAND),
        (["run", "--", "python", "--pool", ""], ValueKind.COMMAND),
        (["run", "--", "-"], ValueKind.COMMAND),
        (["run", "--title", ""], None),
        (["nonsense", ""], None),
    ],
)
def test_a_slot_is_known_by_the_commands_themselves(words: list[str], expected: ValueKind | None) -> None:
    assert kind(*words) is expected


def test_names_come_with_what_is_known_of_them_and_not_twice() -> None:
    slot = find_slot(TABLE, ["op", "abort", "aaaa-1111", ""])
    known = (Name("aaaa-1111"), Name("bbbb-2222", "running in research: train\ta\nmodel"))

    assert candidates(slot, known) == [Completion(Mark.WORD, "bbbb-2222", "running in research: train a")]
    assert values("run", "--pool=", known=POOLS) == ["--pool=research", "--pool=hub$ann", "--pool=team:x"]


def test_a_line_of_the_answer_has_three_columns_whatever_is_known() -> None:
    slot = find_slot(TABLE, ["pool", "get", ""])

    lines = [found.line() for found in candidates(slot, (Name("a", "tab\there"), Name("broken\nname"), Name("b")))]

    assert lines == ["w\ta\ttab here", "w\tb\t"]


def test_fields_of_a_pool_are_offered() -> None:
    assert {"usage", "fair_share", "accumulated_resource_volume"} <= set(values("pool", "get", "research", ""))


def test_the_command_of_a_job_begins_behind_so_many_words() -> None:
    assert candidates(find_slot(TABLE, ["run", "--pool", "x", "--", ""]), ()) == [Completion(Mark.COMMAND, "4")]
    assert candidates(find_slot(TABLE, ["run", "--wait", "python", "--version", "w"]), ()) == [
        Completion(Mark.COMMAND, "2")
    ]


def test_settings_are_completed_as_keys_then_parts_then_words() -> None:
    keys = dict(assignments(POOL_ATTRIBUTES, "we"))

    assert {"weight=", "mode=", "integral_guarantees=", "integral_guarantees/"} <= set(keys)
    parts = dict(assignments(POOL_ATTRIBUTES, "integral_guarantees/gu"))
    assert "integral_guarantees/guarantee_type=" in parts
    assert "weight=" not in parts
    amounts = [key for key, _ in assignments(POOL_ATTRIBUTES, "integral_guarantees.resource_flow.c")]
    assert "integral_guarantees.resource_flow.cpu=" in amounts
    assert [key for key, _ in assignments(POOL_ATTRIBUTES, "mode=")] == ["mode=fair_share", "mode=fifo"]
    kinds = [key for key, _ in assignments(POOL_ATTRIBUTES, "integral_guarantees/guarantee_type=b")]
    assert "integral_guarantees/guarantee_type=burst" in kinds
    assert list(assignments(POOL_ATTRIBUTES, "nonsense/x")) == []
    assert list(assignments(POOL_ATTRIBUTES, "weight=")) == []


def test_settings_are_those_of_the_kind_of_thing_that_is_set() -> None:
    assert "mode=" in values("pool", "set", "research", "weight=2", "mo")
    assert values("pool", "create", "new", "mode=") == ["mode=fair_share", "mode=fifo"]
    assert "weight=" not in values("tree", "set", "default", "")
    assert "max_operation_count_per_pool=" in values("tree", "set", "default", "")
    assert "max_operation_count" in values("tree", "options", "")
    assert values("op", "set", "aaaa-1111", "pool=r", known=(Name("pool=research"),)) == [
        "weight=",
        "pool=",
        "operation_time_limit=",
        "pool=research",
    ]


def test_a_value_that_begins_with_a_hyphen_belongs_to_its_option() -> None:
    thing = App(name="headrace")

    @thing.command
    def look(*, since: Annotated[str, Parameter(allow_leading_hyphen=True)] = "", word: Literal["x"] = "x") -> None:
        """Look."""

    slot = find_slot(table_of(thing), ["look", "--since", "--word", ""])
    assert slot.argument is None
    assert slot.given == {"since": ["--word"]}


@pytest.mark.parametrize(
    ("stays", "replaced", "words", "written"),
    [
        ("headrace pool get ", "hub", ("pool", "get", "hub"), "hub\\$ann"),
        ("headrace pool get ", "hub\\$a", ("pool", "get", "hub$a"), "hub\\$ann"),
        ("headrace pool get '", "hub$", ("pool", "get", "hub$"), "hub$ann"),
        ('headrace pool get "', "hub\\$", ("pool", "get", "hub$"), "hub\\$ann"),
        ("headrace pool get 'hub$'", "", ("pool", "get", "hub$"), "ann"),
        ('headrace pool get "a\\b" ', "", ("pool", "get", "a\\b", ""), "hub\\$ann"),
        ("headrace  pool get\t", "", ("pool", "get", ""), "hub\\$ann"),
        ("headrace ", "", ("",), "hub\\$ann"),
    ],
)
def test_a_line_of_bash_is_read_and_continued_in_its_own_quotes(
    stays: str, replaced: str, words: tuple[str, ...], written: str
) -> None:
    line = read_line(stays, replaced)

    assert line.words == words
    assert line.written("hub$ann") == written


def test_what_bash_keeps_of_a_word_is_not_written_again() -> None:
    assert read_line("headrace pool get team:", "").written("team:x") == "x"
    assert read_line("headrace run --pool=", "hu").written("--pool=hub$ann") == "hub\\$ann"
    assert read_line("headrace run --pool=", "hu").written("--pool=research") is None


@given(
    name=st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=12),
    quote=st.sampled_from(["", "'", '"']),
)
def test_always_what_is_written_means_the_name(name: str, quote: str) -> None:
    written = read_line(f"headrace pool get {quote}", "").written(name)

    assert read_line(f"headrace pool get {quote}{written}{quote}", "").words == ("pool", "get", name)


def test_what_is_written_means_the_name_to_bash_too() -> None:
    names = [
        "hub$ann",
        "<Root>",
        "a b",
        "it's",
        'say "x"',
        "back`tick`",
        "semi;colon",
        "star*",
        "~",
        "#x",
        "{a,b}",
        "\\",
    ]
    lines = [read_line(f"headrace {quote}", "").written(name) for name in names for quote in ("", "'", '"')]
    quoted = [f"{quote}{line}{quote}" for line, quote in zip(lines, ["", "'", '"'] * len(names), strict=True)]

    said = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {' '.join(quoted)}"], capture_output=True, text=True, check=True
    ).stdout

    assert said.splitlines() == [name for name in names for _ in range(3)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_for_its_own_kind_of_answer(
    shell: Literal["bash", "zsh", "fish"], capsys: pytest.CaptureFixture[str]
) -> None:
    completion(shell)

    script = capsys.readouterr().out
    assert f" complete {shell} -- " in script
    for mark in Mark:
        assert f"{mark})" in script or f"case {mark}" in script or f"{mark} | " in script or f" {mark}\n" in script


def test_the_script_for_bash_is_one_that_bash_reads(capsys: pytest.CaptureFixture[str]) -> None:
    completion("bash")

    subprocess.run(["bash", "-n"], input=capsys.readouterr().out, text=True, check=True)
