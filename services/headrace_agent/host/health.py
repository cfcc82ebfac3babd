"""Runs the health command of a host, at most one run at a time, and says why it failed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import anyio

from headrace.child_process import until_ended
from headrace.durations import format_duration

#: Upper bound of the bytes at the end of the command's output that the reason of a failure contains.
_MOST_OUTPUT: Final = 500
_READ_BYTES: Final = 64 * 1024
#: Seconds to wait for the rest of the output after the command has ended, and for the end of the command after it was killed.
_LAST_OUTPUT_S: Final = 0.2


class HealthCommand:
    """Runs the shell command that checks a host, and remembers processes of the command that could not be killed.

    A process that waits for a broken disk or device does not end when it is killed, and an agent that is not root cannot kill what `sudo`
    started. While such a process exists, every check fails at once. The command runs again only after the process has ended.
    """

    def __init__(self, command: str, timeout_ms: int, environment: Mapping[str, str]) -> None:
        self._command = ["/bin/sh", "-c", command]
        self._time = format_duration(timeout_ms)
        self._timeout_s = timeout_ms / 1000
        self._environment = environment
        #: The process of the last run, if this run was killed because it took too long; else None.
        self._killed: subprocess.Popen[bytes] | None = None

    async def failure(self) -> str:
        """Run the command. Return why it failed, with the end of its output; empty if it exited with status 0.

        After the timeout the command and its children are killed, and the run counts as failed. If the command cannot be started, that
        counts as a failure too.
        """
        if self._killed is not None and _is_there(self._killed):
            return f"health_command (pid {self._killed.pid}) did not end within {self._time} and was killed, but its process still exists"
        self._killed = None
        try:
            process = self._start()
        except OSError as error:
            return f"health_command cannot be started: {error.strerror}"
        output = bytearray()
        with process.stdout:  # type: ignore[union-attr]
            try:
                with anyio.move_on_after(self._timeout_s) as time:
                    await _wait(process, output)
            finally:
                # Kill the command if it is late, and the children that it left behind. The command is reaped only after this, because its
                # pid could be given to another process once it is reaped.
                _signal_group(process, signal.SIGKILL)
        with anyio.move_on_after(_LAST_OUTPUT_S):
            await until_ended(process.pid)
        said = output.decode(errors="replace").strip()
        words = f": {said}" if said else ""
        if time.cancelled_caught:
            self._killed = process
            process.poll()
            return f"health_command did not end within {self._time}{words}"
        status = process.wait()
        how = f"exited with status {status}" if status >= 0 else f"was ended by signal {-status}"
        return f"health_command {how}{words}" if status else ""

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            cwd="/",
            start_new_session=True,
        )


def _signal_group(process: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to a process and its children. Return False if this process may signal none of them."""
    try:
        os.killpg(process.pid, number)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass  # The process and its children have all ended, so there is none that this process may not signal.
    return True


def _is_there(process: subprocess.Popen[bytes]) -> bool:
    """True if a killed command still exists, or if children of the command still exist that this process has no permission to kill."""
    return process.poll() is None or not _signal_group(process, 0)


async def _wait(process: subprocess.Popen[bytes], output: bytearray) -> None:
    """Wait until a process has ended, and keep the end of its output."""
    assert process.stdout is not None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, process.stdout.fileno(), output)
        await until_ended(process.pid)
        # A child of the command may live on and keep the output open, so reading ends after this time.
        tasks.cancel_scope.deadline = anyio.current_time() + _LAST_OUTPUT_S


async def _read(fd: int, output: bytearray) -> None:
    os.set_blocking(fd, False)
    while True:
        await anyio.wait_readable(fd)
        with suppress(BlockingIOError):
            if not (piece := os.read(fd, _READ_BYTES)):
                return
            output += piece
            del output[:-_MOST_OUTPUT]
