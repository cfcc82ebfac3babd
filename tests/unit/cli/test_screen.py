"""What a command writes, and to which streams."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headrace.errors import BadInput
from headrace_cli.show.screen import Screen
from headrace_cli.show.tables import table


def test_what_users_named_cannot_command_the_terminal_of_whoever_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    made = table("title")
    made.add_row("\x1b[31mred\x07\x9b2J")
    screen = Screen()
    screen.print(made)
    screen.say("because \x1b]0;mine\x07")
    told = capsys.readouterr()

    assert "␛[31mred" in told.out
    assert "because ␛]0;mine" in told.err
    assert not {"\x1b", "\x07", "\x9b"} & set(told.out + told.err)


def headrace(*words: str | bytes, shell: str = 'exec "$@"') -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", shell, "sh", sys.executable, "-m", "headrace_cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "80"})


def test_where_there_is_ascii_alone_branches_are_drawn_with_it_and_other_signs_are_asked_after() -> None:
    made = "from headrace_cli.show.screen import Screen; from rich.text import Text; Screen().print('├─ pool… é', Text('└─ –'))"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}

    done = subprocess.run([sys.executable, "-c", made], capture_output=True, text=True, check=True, env=environment)

    assert done.stdout.splitlines() == ["|- pool~ ?", "`- -"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_as_good_as_one_to_nowhere(closed: str) -> None:
    done = headrace("tree", "options", shell=f'exec "$@" {closed}')

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("program", ["headrace_cli.slurm squeue --nonsense", "headrace_integral --config none"])
def test_an_error_never_gets_into_the_output_of_a_command_whose_stderr_is_closed(program: str) -> None:
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m {program} 2>&-"], capture_output=True, check=False)

    assert done.returncode > 0
    assert done.stdout == b""


def test_words_that_are_no_text_are_refused() -> None:
    done = headrace("run", "--pool", "p", "--", "echo", b"\xff\xfe")

    assert done.returncode == 2
    assert "words in UTF-8" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_value_of_a_hundred_kilobytes_is_not_printed_as_a_whole() -> None:
    assert len(str(BadInput("pool name", "x" * 100_000, "a name"))) < 400
