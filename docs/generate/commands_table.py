"""Writes the table of commands that a Tab is answered from: `make docs-reference`."""

from __future__ import annotations

import json
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
    has_default = command.default_command is not None
    return Command(
        help=short(command.help),
        commands={
            name: table_of(command[name], top=False)
            for name in command
            if not name.startswith("-") and command[name].show
        },
        arguments=tuple(_argument(a) for a in _arguments(command) if a.show) if has_default else (),
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
    return _laid_out(table_of(app), "") + "\n"


def _laid_out(command: Command, indent: str) -> str:
    """A line for each command that stands below no other."""
    own = msgspec.json.encode(msgspec.structs.replace(command, commands={})).decode()
    if not command.commands:
        return own
    below = (f"{indent} {json.dumps(name)}:{_laid_out(each, indent + ' ')}" for name, each in command.commands.items())
    return f'{own[:-1]},"commands":{{\n' + ",\n".join(below) + f"\n{indent}}}}}"


if __name__ == "__main__":
    TABLE_FILE.write_text(table_text(), encoding="utf-8")
