"""Writes the table of commands that a Tab is answered from: `make docs-reference`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import cyclopts
import msgspec
from cyclopts import App

from headrace_cli.command_line import app
from headrace_cli.completion.table import TABLE_FILE, Argument, Command, short

__all__ = ["table_of", "table_text"]


def table_of(command: App, *, top: bool = True) -> Command:
    """The table of a command and of all below it."""
    flags = [*command.help_flags, *(command.version_flags if top else ())]
    groups = command.default_command is None
    return Command(
        help=short(command.help),
        commands={
            name: table_of(command[name], top=False)
            for name in (command if groups else ())
            if not name.startswith("-") and command[name].show
        },
        arguments=() if groups else tuple(_argument(a) for a in _arguments(command) if a.show),
        flags=tuple((flag, short(command[flag].help)) for flag in flags),
    )


def _arguments(command: App) -> cyclopts.argument.ArgumentCollection:
    return command.assemble_argument_collection(parse_docstring=True)


def _argument(argument: cyclopts.argument.Argument) -> Argument:
    count, takes_all = argument.token_count()
    return Argument(
        name=argument.field_info.name,
        help=short(argument.parameter.help or ""),
        options=tuple(name for name in argument.names if name.startswith("-")),
        position=argument.index,
        takes_value=bool(count),
        repeated=bool(takes_all),
        is_path=_is_path(argument.hint),
        choices=tuple(argument.get_choices(force=True) or ()),
    )


def _is_path(hint: Any) -> bool:
    return hint is Path or any(_is_path(part) for part in get_args(hint))


def table_text() -> str:
    """The file, from the commands."""
    return msgspec.json.format(msgspec.json.encode(table_of(app)), indent=1).decode() + "\n"


if __name__ == "__main__":
    TABLE_FILE.write_text(table_text(), encoding="utf-8")
