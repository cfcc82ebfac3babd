"""Slot indexes: small numbers that operations of one pool have, each its own."""

from __future__ import annotations

import heapq


class SlotIndexes:
    """The slot indexes of one pool: those given back are given out again, the lowest first."""

    def __init__(self) -> None:
        self._next = 0
        self._free: list[int] = []

    def take(self) -> int:
        """Gives out the lowest number that is free."""
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1

    def claim(self, index: int) -> None:
        """Gives out this number, which is free."""
        for skipped in range(self._next, index):
            heapq.heappush(self._free, skipped)
        if index >= self._next:
            self._next = index + 1
        else:
            self._free.remove(index)
            heapq.heapify(self._free)

    def give_back(self, index: int) -> None:
        """Takes a number back."""
        heapq.heappush(self._free, index)
