"""docs/how-to/come-from-slurm.md: every counterpart of an option of Slurm is a command or an option that there is."""

from __future__ import annotations

import re
from pathlib import Path

from headrace_cli.completion.table import Command, read_table

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "come-from-slurm.md"


def counterparts() -> list[str]:
    """The words in code of the right columns."""
    tables = PAGE.read_text().partition("## Option by option")[2]
    rows = re.findall(r"^\| (?!Slurm|---)(.+?) \| (.+) \|$", tables, re.MULTILINE)
    return [word for _, here in rows for word in re.findall(r"`([^`]+)`", here)]


def options(command: Command) -> set[str]:
    flags = {name for flag in command.flags for name in flag[:-1]}
    return flags | {name for argument in command.arguments for name in argument.options}


def test_every_counterpart_exists() -> None:
    run, unknown = read_table().commands["run"], []
    for words in counterparts():
        if words in ("--", "waiting", "singleton", "sh -c '…'", "%", "'ssd & !old'"):
            continue
        command: Command = run if words.startswith("--") else read_table()
        for word in words.split():
            if word.startswith("--"):
                known = word in options(command)
            else:
                known = word in command.commands
                command = command.commands.get(word, command)
            if not known:
                unknown.append(words)

    assert len(counterparts()) > 100
    assert unknown == []
