"""Processes of the supervisor: started in sessions of their own, so that the terminal's Ctrl-C reaches only `up`.

Output goes to files, never through a pipe to `up`: what outlives it must not die of its end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path

import msgspec

from headrace_cli.up.engine import AGENTS_TIME_S


class Command(msgspec.Struct, frozen=True):
    """The command that starts a process."""

    argv: list[str]
    log: Path
    #: Of the environment, where the user has not set it. Only `spawn` gives them: the nursery forks all services with one environment.
    defaults: Mapping[str, str] = {}


def spawn(command: Command, environment: Mapping[str, str]) -> int:
    """Starts a process and returns its process id, by which it is to be collected. Raises OSError."""
    with open_log(command.log) as log:
        process = subprocess.Popen(
            command.argv,
            env={**command.defaults, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    process.returncode = 0  # it shall not be collected behind our back
    return process.pid


def open_log(path: Path | str) -> FileIO:
    """Opens a log that only its owner can read, to append to it. Raises OSError, for a symbolic link too.

    It keeps nothing back: on a full disk a line that waits would be written at the end of the process, and fail that.
    """
    return open(path, "ab", buffering=0, opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600))


def collect(pid: int) -> int:
    """Collects a child that has ended. Returns its exit status, negative for the number of a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def describe_status(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    return f"killed by signal {-status} ({signal.Signals(-status).name})"


@contextlib.contextmanager
def guard(state: Path, lock: int, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a guard (`headrace_cli.up.guard`) until the block ends. Then it looks for leftovers and goes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace_cli.up.guard", str(state), str(AGENTS_TIME_S)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[lock],
        env=dict(environment),
    )
    with process:  # closes its standard input and waits for it
        yield process
