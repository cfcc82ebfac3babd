"""`--help` describes every argument and every option of every command."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from docs.generate.commands_table import table_of
from headrace_cli.command_line import app, run_command
from headrace_cli.completion.table import Command


def undescribed(command: Command, path: str = "headrace") -> Iterator[str]:
    yield from (f"{path}: {argument.name}" for argument in command.arguments if not argument.help)
    for name, below in command.commands.items():
        yield from undescribed(below, f"{path} {name}")


def test_every_argument_is_described() -> None:
    """Below a title `Examples:` the parser of docstrings does not find a single described parameter."""
    assert list(undescribed(table_of(app))) == []


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("run", "-- COMMAND..."),
        ("shell", "[-- COMMAND...]"),
        ("op exec", "OPERATION JOB -- COMMAND..."),
        ("node drain", "NODES..."),
    ],
)
def test_the_first_line_says_where_the_arguments_stand(
    capsys: pytest.CaptureFixture[str], command: str, arguments: str
) -> None:
    with pytest.raises(SystemExit):
        run_command([*command.split(), "--help"])

    assert capsys.readouterr().out.splitlines()[0] == f"Usage: headrace {command} [OPTIONS] {arguments}"
