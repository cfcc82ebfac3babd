"""Orphans of one's own: processes whose parents below us have ended."""

from __future__ import annotations

import ctypes

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans(adopt: bool) -> bool:
    """Makes orphans below this process its children, or no longer. False where the kernel refuses."""
    return int(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)) == 0
