"""Start and end the supervisor's processes. Each process has a session of its own, so that Ctrl-C on the terminal reaches only `up`.

The output goes to files, never through a pipe to `up`: a process that outlives `up` must not die because its pipe was
closed.
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

from headrace_cli.up.restarts import AGENTS_TIME_S


class Command(msgspec.Struct, frozen=True):
    """The command that starts a process."""

    argv: list[str]
    log: Path
    #: Environment variables that the process gets unless the user has set them. Only `spawn` applies them. Forked processes do not get
    #: them, because the nursery forks all services with the same environment.
    defaults: Mapping[str, str] = {}
    #: True: the nursery may fork the process.
    is_forked: bool = False


def spawn(command: Command, environment: Mapping[str, str]) -> int:
    """Start a process and return its process id, which must be passed to `collect` later. Raises OSError."""
    with open_log(command.log) as log:
        process = subprocess.Popen(
            command.argv,
            env={**command.defaults, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    process.returncode = 0  # keeps Popen from reaping the process
    return process.pid


def open_log(path: Path | str) -> FileIO:
    """Open a log for appending, readable only by its owner. Raises OSError, also for a symbolic link.

    The file has no buffer. On a full disk, a line in a buffer would be written only when the process ends, and would make this last step
    fail.
    """
    return open(path, "ab", buffering=0, opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600))


def collect(pid: int) -> int:
    """Reap a child that has ended. Return its exit status; negative: the number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def describe_status(status: int) -> str:
    """Return an exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    return f"killed by signal {-status} ({signal.Signals(-status).name})"


@contextlib.contextmanager
def guard(state: Path, lock: int, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a guard (`headrace_cli.up.guard`) until the block ends. Then the guard ends leftover processes and exits."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace_cli.up.guard", str(state), str(AGENTS_TIME_S)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[lock],
        env=dict(environment),
    )
    with process:  # closes the guard's standard input and waits for the guard
        yield process
