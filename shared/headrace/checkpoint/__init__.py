"""Checkpoints of jobs.

A job hears that its place is taken back, saves how far it came, and goes on from there in its next run.

    from headrace import checkpoint

    checkpoint.watch()
    while step < steps:
        step += 1
        checkpoint.tell_progress(step, steps)
        if checkpoint.is_wanted():
            checkpoint.write("saved", str(step))
            checkpoint.leave()

It needs nothing but Python's own library, and outside of Headrace it does no harm: nothing is wanted then, and nobody is told.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType
from typing import Final, NoReturn

#: The exit status that says: saved, and to be run again.
SAVED: Final = 75
_TELL_EVERY_S: Final = 0.5

_wanted = False
_told_s = float("-inf")


def watch(number: int = signal.SIGTERM) -> None:
    """Takes note of the signal that asks the job to leave, in place of dying of it. In the main thread only."""
    signal.signal(number, _note)


def is_wanted() -> bool:
    """True if the job was asked to save and leave."""
    return _wanted


def seconds_left() -> float | None:
    """The time until the job is killed. None if it was not asked to leave."""
    path = os.environ.get("HEADRACE_DEADLINE")
    try:
        with open(path or "", encoding="ascii") as file:
            # A job has no clock that its service gave it.
            return max(0.0, float(file.read()) - time.time())  # noqa: TID251
    except (OSError, ValueError):
        return None


def leave() -> NoReturn:
    """Ends the job as one that has saved. It runs again, and nothing counts against it."""
    sys.exit(SAVED)


def tell_progress(done: float, total: float = 1.0) -> None:
    """Tells people how far the job is, such as 30 of 400, or 0.25. Twice a second at most, and the end always."""
    global _told_s
    path, now_s = os.environ.get("HEADRACE_PROGRESS"), time.monotonic()
    if path and (now_s >= _told_s + _TELL_EVERY_S or done >= total):
        _told_s = now_s
        try:
            write(path, f"{done}/{total}")
        except OSError:
            # A job goes on though nobody can be told how far it is.
            return


def write(path: str | os.PathLike[str], text: str) -> None:
    """Replaces a file in one step: whatever happens meanwhile, it holds the old text or the new one. Raises OSError."""
    new = f"{os.fspath(path)}.new"
    with open(new, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def _note(_number: int, _frame: FrameType | None) -> None:
    global _wanted
    _wanted = True
