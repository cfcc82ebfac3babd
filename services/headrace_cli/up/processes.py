"""Processes of the supervisor: started in sessions of their own, so that the terminal's Ctrl-C reaches only `up`.

Output goes to files, never through a pipe to `up`: what outlives it must not die of its end. The end of a process is known by its
pidfd.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
import msgspec

__all__ = ["Command", "Running", "describe_status", "guard", "spawn"]


class Command(msgspec.Struct, frozen=True):
    """How a process is started."""

    name: str
    argv: list[str]
    log: Path
    #: Added to the environment of all.
    environment: dict[str, str] = {}


class Running:
    """A process that was started."""

    def __init__(self, command: Command, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.command = command
        self.pid = process.pid
        self._process = process
        self._descriptor = descriptor

    async def wait(self) -> int:
        """Waits for its end, and returns the exit status, negative for the number of a signal."""
        await anyio.wait_readable(self._descriptor)
        os.close(self._descriptor)
        return self._process.wait()

    def signal(self, number: int) -> None:
        """Sends a signal to the process itself. Nothing happens if it has ended."""
        self._process.send_signal(number)


def spawn(command: Command, environment: Mapping[str, str]) -> Running:
    """Starts a process. Raises OSError."""
    log = os.open(command.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            command.argv,
            env={**environment, **command.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)
    return Running(command, process, os.pidfd_open(process.pid))


def describe_status(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    return f"killed by signal {-status} ({signal.Signals(-status).name})"


@contextlib.contextmanager
def guard(state: Path, lock: int, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a guard (`headrace_cli.up.guard`) until the block ends. Then it looks for leftovers and goes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace_cli.up.guard", str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[lock],
        env=dict(environment),
    )
    with process:  # closes its standard input and waits for it
        yield process
