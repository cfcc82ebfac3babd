"""Keep the logs of `headrace up` small. Every process opens its log for appending, so the log can be truncated while the process writes to
it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

#: Size in bytes above which the content of a log is moved to `NAME.1`, where it replaces older content. Lines that are written during the
#: move are lost.
LARGEST_LOG_BYTES: Final = 16 * 1024 * 1024
_POLL_S: Final = 10.0


async def keep_logs_small(state: Path) -> None:
    """Check the size of all logs in a state folder again and again. Runs until cancelled."""
    while True:
        await anyio.to_thread.run_sync(cut_large_logs, state)
        await anyio.sleep(_POLL_S)


def cut_large_logs(state: Path, largest_bytes: int = LARGEST_LOG_BYTES) -> None:
    """Move the content of each log that is larger than `largest_bytes`: logs of services, the server and runners.

    Errors of the disk are ignored.
    """
    for log in _logs(state):
        with contextlib.suppress(OSError):
            if log.stat().st_size > largest_bytes:
                _keep(log, log.with_name(f"{log.name}.1"))
                os.truncate(log, 0)


def _logs(state: Path) -> Iterator[Path]:
    yield from state.glob("logs/*.log")
    yield from state.glob("agents/*/runner.log")


def _keep(log: Path, old: Path) -> None:
    """Copy a log to `old`, as far as the disk has space. If the disk is full, some lines are lost, so that new lines have space."""
    with contextlib.suppress(OSError):
        old.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(log, "rb") as source, open(os.open(old, flags, 0o600), "wb") as target:
            shutil.copyfileobj(source, target)
