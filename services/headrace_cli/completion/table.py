"""The table of all commands. A Tab is answered from this table, because importing the commands takes longer than a user waits.

`make docs-reference` writes the table's file from the commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

TABLE_FILE: Final = Path(__file__).with_name("commands.json")
_LONGEST_DESCRIPTION = 80


class Argument(msgspec.Struct, frozen=True, omit_defaults=True):
    """An argument or an option of a command."""

    #: Name of the parameter.
    name: str
    help: str = ""
    #: Spellings of the option, which begin with a hyphen.
    options: tuple[str, ...] = ()
    #: Position among the arguments that are written without a name; None: the name is always needed.
    position: int | None = None
    takes_value: bool = True
    #: True if the argument takes several values.
    repeated: bool = False
    is_path: bool = False
    #: All values, if they are few and fixed.
    choices: tuple[str, ...] = ()


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command, or a group of commands."""

    help: str = ""
    commands: dict[str, Command] = {}
    arguments: tuple[Argument, ...] = ()
    #: Options that every command has, each with its description.
    flags: tuple[tuple[str, str], ...] = tuple((flag, "Display this message and exit") for flag in ("--help", "-h"))


def read_table() -> Command:
    """Return the table of `headrace` itself, with all its commands."""
    return msgspec.json.decode(TABLE_FILE.read_bytes(), type=Command)


def short(text: str) -> str:
    """Return the first sentence without markup, cut to a length at which a list of candidates stays readable."""
    line = text.strip().partition("\n")[0].partition(". ")[0].removesuffix(".").replace("`", "").replace("**", "")
    line = "".join(character if character.isprintable() else " " for character in line)
    return line if len(line) <= _LONGEST_DESCRIPTION else line[: _LONGEST_DESCRIPTION - 1] + "…"
