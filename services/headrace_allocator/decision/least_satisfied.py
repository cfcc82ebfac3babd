"""The order in which operations get room: the least satisfied first, found without looking at all of them.

The spec walks from the root to the active child with the least satisfaction, where a pool's is that of its best active leaf; so the
walk ends at the least satisfied leaf of all, and one order over the leaves is enough.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection

from headrace.ids import OperationId
from headrace.resources import Resources
from headrace.satisfaction import local_satisfaction
from headrace_allocator.decision.buckets import Bucket, Candidate
from headrace_allocator.decision.reasons import Reason
from headrace_allocator.facts.operations import Operation

__all__ = ["LeastSatisfied", "OrderOverlay", "satisfaction"]


def satisfaction(operation: Operation, held: Resources, total: Resources) -> float:
    """Usage over fair share of an operation that holds so much of a cluster of `total`.

    Example: fair share of half of 8 cores, 3 held: 3 / 4 = 0.75. Above 1 it has more than it is owed.
    """
    return local_satisfaction(held.share_of(total), operation.fair_share, operation.demand_share)


class LeastSatisfied:
    """All operations that may get a job, in buckets by the size of their jobs."""

    def __init__(self) -> None:
        self._buckets: dict[Resources, Bucket] = {}
        self._of: dict[OperationId, Bucket] = {}

    def put(self, operation: Operation, satisfaction: float) -> None:
        """Enters an operation, or gives it a new place."""
        bucket = self._of.get(operation.id)
        if bucket is None:
            size = operation.spec.resources
            bucket = self._buckets.get(size) or self._buckets.setdefault(size, Bucket(size))
            self._of[operation.id] = bucket
        bucket.put((satisfaction, operation.arrival, operation.id))

    def remove(self, operation: OperationId) -> None:
        """Takes an operation out. It need not be in."""
        bucket = self._of.pop(operation, None)
        if bucket is not None:
            bucket.remove(operation)
            if not len(bucket):
                del self._buckets[bucket.size]

    def fitting(self, room: Resources) -> list[Bucket]:
        """The buckets whose jobs fit into `room`."""
        return [bucket for bucket in self._buckets.values() if room.dominates(bucket.size)]

    def bucket_of(self, operation: OperationId) -> Bucket | None:
        """The bucket that an operation is in, or None if it is not in the order."""
        return self._of.get(operation)

    def buckets(self) -> Collection[Bucket]:
        """All buckets."""
        return self._buckets.values()

    def __contains__(self, operation: OperationId) -> bool:
        return operation in self._of

    def __len__(self) -> int:
        return len(self._of)


class OrderOverlay:
    """The order as this heartbeat would leave it. The order itself stays as it is.

    Making one costs nothing, each change the logarithm of the changes, and throwing it away nothing.
    """

    def __init__(self, order: LeastSatisfied) -> None:
        self._order = order
        #: The new place of each operation that moved, or the reason for which it left.
        self.moved: dict[OperationId, Candidate | Reason] = {}
        self._walks: dict[Bucket, _Walk] = {}

    def fitting(self, room: Resources) -> list[Bucket]:
        """The buckets whose jobs fit into `room`."""
        return self._order.fitting(room)

    def best(self, bucket: Bucket) -> Candidate | None:
        """The least satisfied operation of a bucket."""
        walk = self._walks.get(bucket)
        return bucket.best() if walk is None else walk.best()

    def put(self, bucket: Bucket, candidate: Candidate) -> None:
        """Gives an operation of the bucket a new place."""
        self.moved[candidate[2]] = candidate
        heapq.heappush(self._walk(bucket).changed, candidate)

    def leave(self, operation: OperationId, why: Reason) -> None:
        """Takes an operation out. It need not be in."""
        self.moved[operation] = why
        bucket = self._order.bucket_of(operation)
        if bucket is not None:
            self._walk(bucket)

    def _walk(self, bucket: Bucket) -> _Walk:
        walk = self._walks.get(bucket)
        if walk is None:
            walk = self._walks[bucket] = _Walk(bucket, self.moved)
        return walk


class _Walk:
    """One bucket of an overlay: operations that did not move, merged with the new places of those that did."""

    def __init__(self, bucket: Bucket, moved: dict[OperationId, Candidate | Reason]) -> None:
        self._moved = moved
        self._unmoved = bucket.walk()
        self._next = next(self._unmoved, None)
        self.changed: list[Candidate] = []

    def best(self) -> Candidate | None:
        moved, changed = self._moved, self.changed
        while self._next is not None and self._next[2] in moved:
            self._next = next(self._unmoved, None)
        while changed and moved[changed[0][2]] != changed[0]:
            heapq.heappop(changed)
        if self._next is None or (changed and changed[0] < self._next):
            return changed[0] if changed else None
        return self._next
