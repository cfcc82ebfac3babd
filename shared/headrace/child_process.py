"""The end of a child process, awaited without a thread."""

from __future__ import annotations

import os
import subprocess

import anyio


async def until_ended(pid: int) -> None:
    """Waits for the end of a child, which is still to be collected then."""
    descriptor = os.pidfd_open(pid)
    try:
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def wait_for_end(process: subprocess.Popen[bytes]) -> int:
    """Waits for the end of a child. Returns its exit status, negative for the number of a signal."""
    if process.poll() is None:
        await until_ended(process.pid)
    return process.wait()
