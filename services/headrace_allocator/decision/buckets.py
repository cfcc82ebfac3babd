"""Buckets: operations whose jobs have one size, so that one job that does not fit answers for all of them.

Each bucket is a heap that outlives the heartbeat; an entry that is not its operation's newest is stale and passed over.
Invariant (`check`): the top of a heap that is not empty is not stale, so looking changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Set
from typing import Final

from headrace.ids import OperationId
from headrace.resources import Resources

__all__ = ["Bucket", "Candidate"]

#: A heap with this many entries per living one is rebuilt.
_STALE_FACTOR: Final = 4
_SMALL_HEAP: Final = 64

#: (satisfaction, order of arrival, operation): what heaps compare.
Candidate = tuple[float, int, OperationId]


class Bucket:
    """Operations with one size of job, the least satisfied first."""

    def __init__(self, size: Resources) -> None:
        self.size = size
        self._heap: list[Candidate] = []
        self._newest: dict[OperationId, Candidate] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def put(self, candidate: Candidate) -> None:
        """Enters an operation, or gives it a new place."""
        operation = candidate[2]
        if self._newest.get(operation) == candidate:
            return
        self._newest[operation] = candidate
        heapq.heappush(self._heap, candidate)
        self._drop_stale()

    def remove(self, operation: OperationId) -> None:
        """Takes an operation out. It need not be in."""
        if self._newest.pop(operation, None) is not None:
            self._drop_stale()

    def best(self) -> Candidate | None:
        """The least satisfied operation, the earlier on a tie, or None if the bucket is empty."""
        return self._heap[0] if self._heap else None

    def walk(self) -> Iterator[Candidate]:
        """The operations in their order, found one by one without changing the heap.

        The first k cost k times the logarithm of k. The bucket must not change meanwhile.
        """
        heap, newest = self._heap, self._newest
        size = len(heap)
        front = [(heap[0], 0)] if heap else []
        while front:
            candidate, at = heapq.heappop(front)
            child = 2 * at + 1
            if child < size:
                heapq.heappush(front, (heap[child], child))
                if child + 1 < size:
                    heapq.heappush(front, (heap[child + 1], child + 1))
            if newest.get(candidate[2]) is candidate:
                yield candidate

    def operations(self) -> Set[OperationId]:
        """The operations in it, in no order."""
        return self._newest.keys()

    def place(self, operation: OperationId) -> Candidate | None:
        """The place of an operation, or None if it is not in."""
        return self._newest.get(operation)

    def check(self) -> list[str]:
        """Broken invariants in words, none if all hold."""
        top = self.best()
        if top == min(self._newest.values(), default=None):
            return []
        return [f"jobs of {self.size}: {top} is on top of their heap, and is not the least satisfied"]

    def _drop_stale(self) -> None:
        heap, newest = self._heap, self._newest
        if len(heap) > _SMALL_HEAP and len(heap) > _STALE_FACTOR * len(newest):
            self._heap = heap = list(newest.values())
            heapq.heapify(heap)
        while heap and newest.get(heap[0][2]) is not heap[0]:
            heapq.heappop(heap)
