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
from pathlib import Path

import msgspec

from headrace_cli.up.engine import AGENTS_TIME_S

__all__ = ["Command", "describe_status", "guard", "spawn"]


class Command(msgspec.Struct, frozen=True):
    """How a process is started."""

    argv: list[str]
    log: Path


def spawn(command: Command, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Starts a process. Raises OSError."""
    with open(command.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
        return subprocess.Popen(
            command.argv, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


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
