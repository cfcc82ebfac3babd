"""The order in which operations get room: the least satisfied first, found without looking at all of them.

The spec walks from the root to the active child with the least satisfaction, where a pool's is that of its best active leaf; so the
walk ends at the least satisfied leaf of all, and one order over the leaves is enough. Operations whose jobs have one size stand in
one sorted list, so that one job that does not fit answers for all of them. Invariant (`checks`): each operation stands in one list,
at its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from sortedcontainers import SortedList

from headrace.ids import OperationId
from headrace.resources import Resources
from headrace.runtime.engine import Check
from headrace.satisfaction import local_satisfaction
from headrace_allocator.facts.operations import Operation

__all__ = ["Candidate", "LeastSatisfied", "satisfaction"]

#: (satisfaction, order of arrival, operation): what the lists are sorted by.
Candidate = tuple[float, int, OperationId]


def satisfaction(operation: Operation, held: Resources, total: Resources) -> float:
    """Usage over fair share of an operation that holds so much of a cluster of `total`.

    Example: fair share of half of 8 cores, 3 held: 3 / 4 = 0.75. Above 1 it has more than it is owed.
    """
    return local_satisfaction(held.share_of(total), operation.fair_share, operation.demand_share)


class LeastSatisfied:
    """All operations that may get a job, by the size of their jobs."""

    def __init__(self) -> None:
        self._lists: defaultdict[Resources, SortedList[Candidate]] = defaultdict(SortedList)
        self._places: dict[OperationId, tuple[Resources, Candidate]] = {}

    def put(self, operation: Operation, satisfaction: float) -> None:
        """Enters an operation, or gives it a new place."""
        candidate = (satisfaction, operation.arrival, operation.id)
        size = operation.spec.resources
        place = self._places.get(operation.id)
        if place is not None:
            if place == (size, candidate):
                return
            self.remove(operation.id)
        self._places[operation.id] = (size, candidate)
        self._lists[size].add(candidate)

    def remove(self, operation: OperationId) -> None:
        """Takes an operation out. It need not be in."""
        place = self._places.pop(operation, None)
        if place is None:
            return
        size, candidate = place
        candidates = self._lists[size]
        candidates.remove(candidate)
        if not candidates:
            del self._lists[size]

    def fitting(self, room: Resources) -> list[Resources]:
        """The sizes of jobs in the order that fit into `room`."""
        return [size for size in self._lists if room.dominates(size)]

    def walk(self, size: Resources) -> Iterator[Candidate]:
        """The operations with jobs of this size, the least satisfied first, the earlier on a tie."""
        return iter(self._lists[size])

    def place(self, operation: OperationId) -> Candidate | None:
        """The place of an operation, or None if it is not in the order."""
        return self._places[operation][1] if operation in self._places else None

    @property
    def sizes(self) -> int:
        """The number of different sizes of jobs."""
        return len(self._lists)

    def checks(self) -> Iterator[Check]:
        """The list of each size."""
        for size in list(self._lists):
            yield partial(self._check, size)

    def __iter__(self) -> Iterator[OperationId]:
        return iter(self._places)

    def __contains__(self, operation: OperationId) -> bool:
        return operation in self._places

    def __len__(self) -> int:
        return len(self._places)

    def _check(self, size: Resources) -> list[str]:
        listed = {candidate[2]: (size, candidate) for candidate in self._lists.get(size, ())}
        return [] if listed.items() <= self._places.items() else [f"jobs of {size}: their list differs from the places"]
