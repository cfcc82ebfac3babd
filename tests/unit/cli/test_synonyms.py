"""Other ways to say a command: what each of them means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import BadInput
from headrace_cli.completion.slot import find_slot
from headrace_cli.completion.synonyms import SYNONYMS, canonical
from headrace_cli.completion.table import Command, read_table

TABLE = read_table()


def commands(command: Command = TABLE, *above: str) -> Iterator[list[str]]:
    for name, below in command.commands.items():
        yield [*above, name]
        yield from commands(below, *above, name)


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_the_own_name_of_a_command_means_that_command(words: list[str]) -> None:
    assert canonical(TABLE, [*words, "--json"]) == [*words, "--json"]


def test_every_synonym_stands_for_a_command_and_hides_none() -> None:
    names = {words[-1] for words in commands()}

    assert {meant for each in SYNONYMS.values() for meant in each} <= names
    # People are added, `remove` of a group removes members, and operations are exported.
    assert not SYNONYMS.keys() & names - {"add", "delete", "operations"}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("pools ls", "pool list"),
        ("ops ps", "op list"),
        ("operation cancel", "op abort"),
        ("op rm", "op abort"),
        ("op describe", "op get"),
        ("nodes delete", "node remove"),
        ("pool mv", "pool move"),
        ("pool new", "pool create"),
        ("user rm", "user remove"),
        ("user add", "user add"),
        ("ps", "op list"),
        ("kill", "op abort"),
        ("logs", "op logs"),
        ("wait", "op wait"),
        ("resume", "resume"),
        ("po li", "pool list"),
        ("op exp", "op explain"),
        ("help op get", "op get --help"),
    ],
)
def test_another_way_to_say_a_command_means_it(said: str, meant: str) -> None:
    assert canonical(TABLE, said.split()) == meant.split()


def test_the_page_about_the_command_line_has_every_synonym_and_every_short_option() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/command-line.md").read_text()

    assert [word for word in SYNONYMS if f"`{word}`" not in page] == []
    assert [option for option in short_options() if f"`{option}`" not in page] == []


def short_options() -> dict[str, set[str]]:
    """The long names that each short option stands beside in any command."""
    found: dict[str, set[str]] = {"-h": {"--help"}}
    for words in commands():
        command = TABLE
        for word in words:
            command = command.commands[word]
        for argument in command.arguments:
            long, *short = sorted(argument.options, key=lambda name: not name.startswith("--"))[:2] or [""]
            for each in short:
                if not each.startswith("--"):
                    found.setdefault(each, set()).add(long)
    return found


def test_a_short_option_means_the_same_in_every_command() -> None:
    assert {short: names for short, names in short_options().items() if len(names) > 1} == {}
    assert {"-p", "-n", "-c", "-m", "-w", "-f"} <= short_options().keys()


def test_what_stands_behind_a_command_is_left_alone() -> None:
    assert canonical(TABLE, ["run", "ls", "rm"]) == ["run", "ls", "rm"]
    assert canonical(TABLE, ["--version", "ps"]) == ["--version", "ps"]
    assert canonical(TABLE, ["op", "nosuch", "ls"]) == ["op", "nosuch", "ls"]


def test_a_beginning_of_several_commands_names_them() -> None:
    with pytest.raises(BadInput, match="did you mean list or logs"):
        canonical(TABLE, ["op", "l"])


def test_a_tab_behind_another_way_to_say_a_command_completes_that_command() -> None:
    assert find_slot(TABLE, ["kill", ""]).path == ("op", "abort")
    assert find_slot(TABLE, ["pools", "l", ""]).path == ("pool", "list")
    assert find_slot(TABLE, ["op", "l", ""]).path == ("op",)
