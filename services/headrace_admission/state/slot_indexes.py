"""Slot indexes: small numbers, unique among the operations of one pool."""

from __future__ import annotations

import heapq


class SlotIndexes:
    """The slot indexes of one pool. Returned indexes are used again, lowest first."""

    def __init__(self) -> None:
        self._next = 0
        self._free: list[int] = []

    def take(self) -> int:
        """Take and return the lowest free index."""
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1

    def claim(self, index: int) -> None:
        """Take this index, which must be free."""
        for skipped in range(self._next, index):
            heapq.heappush(self._free, skipped)
        if index >= self._next:
            self._next = index + 1
        else:
            self._free.remove(index)
            heapq.heapify(self._free)

    def give_back(self, index: int) -> None:
        """Give an index back, so that it can be taken again."""
        heapq.heappush(self._free, index)
