"""Waiting for the end of a child process without a thread."""

from __future__ import annotations

import os
import subprocess
import sys

import anyio


async def until_ended(pid: int) -> None:
    """Wait for the end of a child process. The caller must still collect its exit status."""
    if sys.platform != "linux":
        raise NotImplementedError
    descriptor = os.pidfd_open(pid)
    try:
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def wait_for_end(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a child process. Return its exit status; a negative number is the number of the signal that ended it."""
    if process.poll() is None:
        await until_ended(process.pid)
    return process.wait()
