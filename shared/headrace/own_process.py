"""Settings of this process in the kernel and in the C library. They hold for as long as the process runs."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
#: Number by which glibc's `mallopt` knows the parameter "largest number of arenas".
_M_ARENA_MAX: Final = -8


def adopt_orphans(adopt: bool) -> bool:
    """Make this process the parent of orphaned processes below it, or stop doing so. Return False if the kernel refuses."""
    return int(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)) == 0


def end_with_parent() -> None:
    """Have the kernel kill this process as soon as the thread that forked it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def share_one_arena() -> None:
    """Make all threads allocate memory from one arena, unless `MALLOC_ARENA_MAX` sets the number of arenas. Call it
    before any thread starts.

    By default glibc makes a further arena when several threads allocate memory at the same time, and memory that is freed in one
    arena cannot be used in another arena. Several arenas would therefore only waste memory: in Python just one thread works at a
    time. With another C library this function does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, 1)
