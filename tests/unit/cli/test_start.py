"""A command loads what it needs: libraries that another one needs are those that everybody would wait for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace_cli.command_line import COMMANDS
from tests.support.loaded_modules import loaded_by

LAYING_OUT = {"attr", "attrs", "cyclopts", "docstring_parser", "rich"}
READING = {"msgspec", "typing_extensions"}


def test_the_list_of_commands_loads_none_of_them() -> None:
    loaded = loaded_by("--help")

    shown = " ".join(loaded.printed.replace("│", " ").split())
    assert all(f"{name} {summary}" in shown for name, (_, summary) in COMMANDS.items())
    assert loaded.libraries <= LAYING_OUT
    assert "rich.markdown" not in loaded.modules
    assert loaded.own <= {
        "headrace",
        "headrace.errors",
        "headrace.files",
        "headrace.files.standard_streams",
        "headrace_cli",
        "headrace_cli.__main__",
        "headrace_cli.command_line",
        "headrace_cli.exit_statuses",
    }


@pytest.mark.parametrize("words", [["--version"], ["complete", "zsh", "--", ""]])
def test_at_its_end_a_command_looks_for_no_garbage(words: list[str]) -> None:
    assert loaded_by(*words).frozen_at_end > 1_000


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["po"], "w\tpool\t"),
        (["pool", ""], "w\tlist\t"),
        (["pool", "set", "research", "-"], "w\t--guarantee\t"),
        (["plan", ""], "f\tfiles\t"),
    ],
)
def test_a_tab_is_answered_from_the_table_of_commands_alone(words: list[str], answer: str) -> None:
    loaded = loaded_by("complete", "zsh", "--", *words)

    assert answer in loaded.printed
    assert loaded.libraries <= READING
    assert {name for name in loaded.own if not name.startswith("headrace_cli.completion")} == {
        "headrace",
        "headrace.errors",
        "headrace.files",
        "headrace.files.standard_streams",
        "headrace_cli",
        "headrace_cli.__main__",
        "headrace_cli.exit_statuses",
    }


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["pool", "set", "research", "mo"], "p\tmode=\t"),
        (["pool", "get", "research", "us"], "w\tusage\t"),
        (["op", "set", "an-operation", "we"], "p\tweight=\t"),
        (["op", "list", "--in-state", "ru"], "w\trunning\t"),
    ],
)
def test_a_tab_at_settings_loads_their_tables_and_no_client(words: list[str], answer: str) -> None:
    loaded = loaded_by("complete", "fish", "--", *words)

    assert answer in loaded.printed
    assert loaded.libraries <= READING
    assert not {"asyncio", "headrace.client"} & loaded.modules


def test_a_reader_that_ends_is_no_error_even_inside_of_a_task_group() -> None:
    program = """
import headrace_cli.__main__ as command

def gone(words):
    raise ExceptionGroup("unhandled errors in a TaskGroup", [BrokenPipeError(32, "Broken pipe")])

command._run = gone
command.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
