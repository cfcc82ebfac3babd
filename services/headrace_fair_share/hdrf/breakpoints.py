"""The places where children of a fair-share pool move, kept from building its function to handing out (improved mode)."""

from __future__ import annotations

import numpy as np

from headrace_fair_share.hdrf.arrays import RESOURCES, Floats, Ints, fits_into
from headrace_fair_share.hdrf.by_fit_factor import Breakpoints

__all__ = ["BreakpointStore"]


class BreakpointStore:
    """Breakpoints of pools, each pool's in a row: place, child that moves there, sums to the left and to the right of the move."""

    def __init__(self, elements: int) -> None:
        self.x = np.empty(0)
        self.child = np.empty(0, np.int64)
        self.sums = np.empty((2 * RESOURCES, 0))
        self.first = np.zeros(elements, np.int64)
        self.count = np.zeros(elements, np.int64)
        self.used = 0

    def clear(self) -> None:
        """Forgets all breakpoints, but keeps the room."""
        self.used = 0
        self.count[:] = 0

    def put(self, pools: Ints, breakpoints: Breakpoints) -> None:
        """Adds the breakpoints of some pools."""
        begin, end = self.used, self.used + len(breakpoints.x)
        if end > len(self.x):
            self._grow(end)
        self.x[begin:end] = breakpoints.x
        self.child[begin:end] = breakpoints.child
        self.sums[:RESOURCES, begin:end] = breakpoints.left
        self.sums[RESOURCES:, begin:end] = breakpoints.right
        self.first[pools] = begin + breakpoints.start[:-1]
        self.count[pools] = np.diff(breakpoints.start)
        self.used = end

    def last_that_fits(self, pools: Ints, room: Floats) -> Ints:
        """Of each pool, the last pair to the left of which the children together fit into the room; the first pair at least."""
        low, high = self.first[pools], self.first[pools] + self.count[pools] - 1
        while (open_ := low < high).any():
            middle = np.where(open_, (low + high + 1) >> 1, low)
            fits = fits_into(np.take(self.sums[:RESOURCES], middle, axis=1), room)
            low = np.where(open_ & fits, middle, low)
            high = np.where(open_ & ~fits, middle - 1, high)
        return low

    def _grow(self, least: int) -> None:
        room = least + least // 3 + 1000
        kept = slice(0, self.used)
        x, child, sums = np.empty(room), np.empty(room, np.int64), np.empty((2 * RESOURCES, room))
        x[kept], child[kept], sums[:, kept] = self.x[kept], self.child[kept], self.sums[:, kept]
        self.x, self.child, self.sums = x, child, sums
