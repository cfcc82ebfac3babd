"""The scheduling order: which operation is the least satisfied, without looking at all of them.

The spec walks from the root to the active child with the least satisfaction, where a pool's is that of its best active leaf; so the
walk ends at the least satisfied leaf of all, and one order over the leaves is enough. Operations are grouped into classes by the
size of their jobs, so that one job that does not fit answers for its class. Order lives in heaps that outlive the heartbeat; an
entry whose stamp is not its operation's newest is passed over.
"""

from __future__ import annotations

import heapq
from typing import Final

from headrace.ids import OperationId
from headrace.resources import Resources

__all__ = ["Candidate", "SchedulingOrder", "SizeClass"]

#: A heap with this many entries per living one is rebuilt.
_STALE_FACTOR: Final = 4
_SMALL_HEAP: Final = 64

#: (satisfaction, order of arrival, operation): what heaps compare.
Candidate = tuple[float, int, OperationId]


class SizeClass:
    """Operations whose jobs have one size."""

    def __init__(self, size: Resources) -> None:
        self.size = size
        self._heap: list[tuple[float, int, OperationId]] = []
        self._keys: dict[OperationId, tuple[float, int]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, operation: OperationId, satisfaction: float, arrival: int) -> None:
        """Enters an operation, or gives it a new place."""
        if self._keys.get(operation) == (satisfaction, arrival):
            return
        self._keys[operation] = (satisfaction, arrival)
        heapq.heappush(self._heap, (satisfaction, arrival, operation))
        self._drop_stale()

    def remove(self, operation: OperationId) -> None:
        self._keys.pop(operation, None)
        self._drop_stale()

    def best(self) -> Candidate | None:
        """The least satisfied operation; stays in the order."""
        while self._heap:
            satisfaction, arrival, operation = self._heap[0]
            if self._keys.get(operation) == (satisfaction, arrival):
                return self._heap[0]
            heapq.heappop(self._heap)
        return None

    def _drop_stale(self) -> None:
        if len(self._heap) > _SMALL_HEAP and len(self._heap) > _STALE_FACTOR * len(self._keys):
            self._heap = [(key[0], key[1], name) for name, key in self._keys.items()]
            heapq.heapify(self._heap)


class SchedulingOrder:
    """All operations that have a job to give out."""

    def __init__(self) -> None:
        self._classes: dict[Resources, SizeClass] = {}
        self._of: dict[OperationId, SizeClass] = {}

    def put(self, operation: OperationId, size: Resources, satisfaction: float, arrival: int) -> None:
        """Enters an operation, or gives it a new place."""
        size_class = self._of.get(operation)
        if size_class is None:
            size_class = self._classes.get(size) or self._classes.setdefault(size, SizeClass(size))
            self._of[operation] = size_class
        size_class.put(operation, satisfaction, arrival)

    def remove(self, operation: OperationId) -> None:
        """Takes an operation out; it need not be in."""
        size_class = self._of.pop(operation, None)
        if size_class is not None:
            size_class.remove(operation)
            if not len(size_class):
                del self._classes[size_class.size]

    def fitting(self, room: Resources) -> list[SizeClass]:
        """Classes whose jobs fit into `room`."""
        return [size_class for size_class in self._classes.values() if room.dominates(size_class.size)]

    def __contains__(self, operation: OperationId) -> bool:
        return operation in self._of

    def __len__(self) -> int:
        return len(self._of)

    def statistics(self) -> dict[str, int]:
        return {"operations": len(self._of), "classes": len(self._classes)}
