"""docs/how-to/come-from-slurm.md: every counterpart of an option of Slurm is a command or an option that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace_cli.completion.table import Command, read_table
from headrace_cli.slurm import options as of_slurm
from headrace_cli.slurm.command_line import Table

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
        if words in ("--", "waiting", "singleton", "sh -c '…'", "%", "'ssd & !old'", "gang: true"):
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


@pytest.mark.parametrize(
    ("title", "tables"),
    [
        ("sbatch and srun", (of_slurm.SBATCH, of_slurm.SRUN)),
        ("squeue", (of_slurm.SQUEUE,)),
        ("scancel", (of_slurm.SCANCEL,)),
        ("sacct", (of_slurm.SACCT,)),
        ("sinfo", (of_slurm.SINFO,)),
    ],
)
def test_the_commands_of_slurm_know_every_option_of_the_page(title: str, tables: tuple[Table, ...]) -> None:
    sections = re.findall(rf"^### {title}[^\n]*\n(.*?)(?=^### |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (?!Slurm|---)(.+?) \|", "\n".join(sections), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"--([A-Za-z][a-zA-Z0-9-]+)", row)}
    known = {name for table in tables for name in table.by_name}

    assert len(named) > 8
    assert named - known == set()
