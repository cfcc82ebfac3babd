"""The table of all commands that a Tab is answered from. Reading the commands themselves takes longer than a person waits.

`make docs-reference` writes its file from the commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

TABLE_FILE: Final = Path(__file__).with_name("commands.json")
_LONGEST_DESCRIPTION = 80


class Argument(msgspec.Struct, frozen=True, omit_defaults=True):
    """A thing that a command takes."""

    #: The name of the parameter.
    name: str
    help: str = ""
    #: The ways to write it that begin with a hyphen.
    options: tuple[str, ...] = ()
    #: Its place among those that are written without a name. None if it always needs one.
    position: int | None = None
    takes_value: bool = True
    #: True if it takes several values.
    repeated: bool = False
    is_path: bool = False
    #: All its values, where they are few and fixed.
    choices: tuple[str, ...] = ()


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command, or a group of commands."""

    help: str = ""
    commands: dict[str, Command] = {}
    arguments: tuple[Argument, ...] = ()
    #: Options that every command has, and what they do.
    flags: tuple[tuple[str, str], ...] = tuple((flag, "Display this message and exit") for flag in ("--help", "-h"))


def read_table() -> Command:
    """Returns `headrace` itself, with all that stands below it."""
    return msgspec.json.decode(TABLE_FILE.read_bytes(), type=Command)


def short(text: str) -> str:
    """The first sentence without its marks, cut where a list of candidates would become hard to read."""
    line = text.strip().partition("\n")[0].partition(". ")[0].removesuffix(".").replace("`", "").replace("**", "")
    line = "".join(character if character.isprintable() else " " for character in line)
    return line if len(line) <= _LONGEST_DESCRIPTION else line[: _LONGEST_DESCRIPTION - 1] + "…"
