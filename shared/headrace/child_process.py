"""The end of a child process, awaited without a thread."""

from __future__ import annotations

import os
import subprocess

import anyio

__all__ = ["wait_for_end"]


async def wait_for_end(process: subprocess.Popen[bytes]) -> int:
    """Waits for the end of a child. Returns its exit status, negative for the number of a signal."""
    if process.poll() is None:
        descriptor = os.pidfd_open(process.pid)
        try:
            await anyio.wait_readable(descriptor)
        finally:
            os.close(descriptor)
    return process.wait()
