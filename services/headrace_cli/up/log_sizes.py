"""Keeps the logs of `headrace up` small. Every process appends to its log, so that a log can be cut while it is written."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

#: A log that is larger is moved to `NAME.1`, in place of a former one. What is written during the move is lost.
LARGEST_LOG_BYTES: Final = 16 * 1024 * 1024
_LOOK_S: Final = 10.0


async def keep_logs_small(state: Path) -> None:
    """Looks at all logs in a state folder again and again. Runs until cancelled."""
    while True:
        await anyio.to_thread.run_sync(cut_large_logs, state)
        await anyio.sleep(_LOOK_S)


def cut_large_logs(state: Path, largest_bytes: int = LARGEST_LOG_BYTES) -> None:
    """Moves the content of each log of a service, the server and a runner that is too large. A failing disk ends nothing."""
    for log in _logs(state):
        with contextlib.suppress(OSError):
            if log.stat().st_size > largest_bytes:
                _keep(log, log.with_name(f"{log.name}.1"))
                os.truncate(log, 0)


def _logs(state: Path) -> Iterator[Path]:
    yield from state.glob("logs/*.log")
    yield from state.glob("agents/*/runner.log")


def _keep(log: Path, old: Path) -> None:
    """Copies a log as far as there is room: room for what comes is worth more than what was."""
    with contextlib.suppress(OSError):
        old.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(log, "rb") as source, open(os.open(old, flags, 0o600), "wb") as target:
            shutil.copyfileobj(source, target)
