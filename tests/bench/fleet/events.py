"""What is due on all nodes, in order of time."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

__all__ = ["Events"]

#: When it is due, a number that keeps the order of those due at once, what is to be called, and with what besides the time.
Event = tuple[int, int, Callable[..., None], tuple[Any, ...]]
#: Most events are due later than this.
_NEAR_NS: Final = 2**28


class Events:
    """A queue by time. Only what is due soon is sorted: among 200,000 ends of jobs each would take as long as most events."""

    def __init__(self) -> None:
        self._count = itertools.count()
        self._sorted: list[Event] = []
        #: All later ones, by the multiple of the near time that they are due after.
        self._later: defaultdict[int, list[Event]] = defaultdict(list)
        #: The first multiple of which nothing is sorted in.
        self._next = 0

    def add(self, at_ns: int, do: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Has `do` called with the time and `args` when that has come."""
        event = (at_ns, next(self._count), do, args)
        if at_ns // _NEAR_NS < self._next:
            heapq.heappush(self._sorted, event)
        else:
            self._later[at_ns // _NEAR_NS].append(event)

    def take(self, now_ns: int, most: int) -> list[Event]:
        """Takes out the first of those that are due, so many at most."""
        if now_ns // _NEAR_NS >= self._next:
            due = [multiple for multiple in self._later if multiple <= now_ns // _NEAR_NS]
            self._sorted += [event for multiple in due for event in self._later.pop(multiple)]
            heapq.heapify(self._sorted)
            self._next = now_ns // _NEAR_NS + 1
        taken: list[Event] = []
        while self._sorted and self._sorted[0][0] <= now_ns and len(taken) < most:
            taken.append(heapq.heappop(self._sorted))
        return taken

    def clear(self) -> None:
        """Nothing is due any more."""
        self._sorted.clear()
        self._later.clear()
