"""This process itself: what it asks of the kernel and of the C library for as long as it runs."""

from __future__ import annotations

import ctypes
import os
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
#: Of `mallopt` in glibc.
_M_ARENA_MAX: Final = -8


def adopt_orphans(adopt: bool) -> bool:
    """Makes orphans below this process its children, or no longer. False where the kernel refuses."""
    return int(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)) == 0


def share_one_arena() -> None:
    """Has all threads take memory from one arena, unless `MALLOC_ARENA_MAX` says how many. It is called before a thread begins.

    By itself glibc has an arena for each thread that works at the same time as others, and what one gave back is of no use to another. In
    Python one thread works at a time. Nothing happens with another C library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, 1)
