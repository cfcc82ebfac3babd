"""The health command of a host: one run of it, and why it failed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, Process

from headrace.durations import format_duration

#: Characters of the output that a failure repeats: its end.
_MOST_OUTPUT: Final = 500
#: Time for the output that is left when the command has ended, in seconds.
_LAST_OUTPUT_S: Final = 0.2


async def failure_of(command: str, timeout_ms: int, environment: Mapping[str, str]) -> str:
    """Run a shell command. Return why it failed, with the end of its output; empty if it exited with status 0.

    After `timeout_ms` milliseconds the command and its children are killed, and it counts as failed. So does a command that cannot be
    started.
    """
    try:
        process = await anyio.open_process(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return f"health_command cannot be started: {error.strerror}"
    output = bytearray()
    async with process:
        try:
            with anyio.move_on_after(timeout_ms / 1000) as time:
                await _wait(process, output)
        finally:
            # The command ended or is late, and so are the children that it left behind.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    said = output.decode(errors="replace").strip()
    words = f": {said}" if said else ""
    if time.cancelled_caught:
        return f"health_command did not end within {format_duration(timeout_ms)}{words}"
    status = process.returncode or 0
    how = f"exited with status {status}" if status >= 0 else f"was ended by signal {-status}"
    return f"health_command {how}{words}" if status else ""


async def _wait(process: Process, output: bytearray) -> None:
    """Wait until a process has ended, and keep the end of its output."""
    assert process.stdout is not None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, process.stdout, output)
        await process.wait()
        # A child that is still there may keep the output open.
        tasks.cancel_scope.deadline = anyio.current_time() + _LAST_OUTPUT_S


async def _read(stream: ByteReceiveStream, output: bytearray) -> None:
    async for piece in stream:
        output += piece
        del output[:-_MOST_OUTPUT]
