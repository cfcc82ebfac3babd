"""Other ways to say a command: what each of them means."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.errors import BadInput
from headrace_cli.completion.slot import find_slot
from headrace_cli.completion.spoken import SYNONYMS, canonical
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
    assert not SYNONYMS.keys() & names - {"add"}  # people are added


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
