"""Checkpoints of jobs.

Before a job loses its allocation, it is notified and saves its progress. Its next attempt continues from the saved progress.

    from headrace import checkpoint

    checkpoint.watch()
    while step < steps:
        step += 1
        checkpoint.tell_progress(step, steps)
        if checkpoint.is_wanted():
            checkpoint.write("saved", str(step))
            checkpoint.leave()

This module needs only Python's standard library. Outside of Headrace, the same program saves its progress and leaves when it receives the
signal. There it has no deadline (`seconds_left` is None), and its progress is not reported.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType
from typing import Final, NoReturn

#: Exit status of a job that has saved its progress and is to run again.
SAVED: Final = 75
_TELL_EVERY_S: Final = 0.5

_wanted = False
_told_s = float("-inf")


def watch(number: int = signal.SIGTERM) -> None:
    """From now on, only record the signal that asks the job to leave. Without this call the signal would end the job. Call this in the main
    thread only.
    """
    signal.signal(number, _note)


def is_wanted() -> bool:
    """True if the job was asked to save its progress and leave, by Headrace or by anyone who sent the signal that `watch` records."""
    return _wanted


def seconds_left() -> float | None:
    """Return the seconds until the job is killed, or None if the job was not asked to leave or has no deadline."""
    path = os.environ.get("HEADRACE_DEADLINE")
    try:
        with open(path or "", encoding="ascii") as file:
            # The system's time is read directly: a job has no `Clock` of a service.
            return max(0.0, float(file.read()) - time.time())  # noqa: TID251
    except (OSError, ValueError):
        return None


def leave() -> NoReturn:
    """End the job with the exit status of a job that has saved its progress. The job is run again, and this end does not count as a
    failure.
    """
    sys.exit(SAVED)


def tell_progress(done: float, total: float = 1.0) -> None:
    """Report the job's progress to people, such as 30 of 400, or 0.25.

    A report is written at most twice a second, except that the end (`done` >= `total`) is always written.
    """
    global _told_s
    path, now_s = os.environ.get("HEADRACE_PROGRESS"), time.monotonic()
    if path and (now_s >= _told_s + _TELL_EVERY_S or done >= total):
        _told_s = now_s
        try:
            write(path, f"{done}/{total}")
        except OSError:
            # An error is ignored: the job must go on even if its progress cannot be reported.
            return


def write(path: str | os.PathLike[str], text: str) -> None:
    """Replace a file in one step: whatever happens meanwhile, it holds either the old text or the new text. Raises `OSError`."""
    new = f"{os.fspath(path)}.new"
    with open(new, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def _note(_number: int, _frame: FrameType | None) -> None:
    global _wanted
    _wanted = True
