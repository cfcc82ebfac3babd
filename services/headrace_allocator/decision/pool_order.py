"""The order in one pool: the operations and child pools that may get a job, and the classes of their pending jobs."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from headrace.ids import PoolName
from headrace.satisfaction import INFINITE_SATISFACTION
from headrace_allocator.decision.job_classes import ALL_CLASSES, Bucket

#: Sort key of a pool's children: satisfaction; by how much the usage of the dominant resource exceeds the fair share; rank in a FIFO pool;
#: arrival number; name.
Entry = tuple[float, float, int, int, str]

#: Up to this number of child pools, looking at each pool in turn is quicker than a search by class.
_FEW_POOLS: Final = 4
#: If more classes than this are wanted, it is again quicker to look at each child pool in turn than to search by class.
_MANY_CLASSES: Final = 16
#: If more than 1 / `_LARGE_PART` of the child pools have a wanted class, walking through all child pools in order is quicker than sorting
#: the child pools that have such a class.
_LARGE_PART: Final = 4


class PoolOrder:
    """The operations and child pools of one pool that may get a job, in their order."""

    __slots__ = (
        "above", "below", "below_by_class", "buckets", "children", "classes", "counts", "entry", "name", "open", "owed", "shut",
    )  # fmt: skip

    def __init__(self, name: PoolName, above: PoolOrder | None) -> None:
        self.name = name
        self.above = above
        #: All child pools below which an operation is in the order.
        self.below: set[PoolOrder] = set()
        #: Sorted entries of the child pools below which something may start.
        self.children: list[Entry] = []
        #: By bucket of job sizes, the sorted entries of the operations of this pool.
        self.buckets: dict[Bucket, list[Entry]] = {}
        #: The sorted entries of the operations of this pool that are owed another whole job.
        self.owed: list[Entry] = []
        #: Number of operations in this pool and all pools below, by the class of their jobs.
        self.counts: Counter[int] = Counter()
        #: The set of the classes in `counts`, one bit per class.
        self.classes = 0
        #: Child pools by each class that is pending in or below them.
        self.below_by_class: dict[int, set[PoolOrder]] = {}
        #: `open`: classes for which the pool's limit allows one more job. `shut`: pending classes for which the limit allowed no job when
        #: it was last checked.
        self.open, self.shut = ALL_CLASSES, 0
        #: Position among the children of the parent; None while nothing below the pool may start.
        self.entry: Entry | None = None

    def path(self) -> Iterator[PoolOrder]:
        """Yield the pool and all pools above it, up to the root."""
        pool: PoolOrder | None = self
        while pool is not None:
            yield pool
            pool = pool.above

    def count(self, number: int, more: int) -> None:
        """Add `more` to the pool's count of a class. The count covers the operations in the pool and in all pools below it."""
        before = self.counts[number]
        self.counts[number] += more
        if not before:
            self.classes |= 1 << number
            self.enter_above((number,))
        elif not self.counts[number]:
            del self.counts[number]
            self.classes &= ~(1 << number)
            self.leave_above((number,))

    def enter_above(self, numbers: Iterable[int]) -> None:
        """Record in the parent that jobs of these classes are pending in this pool or below it."""
        if self.above is not None:
            for number in numbers:
                self.above.below_by_class.setdefault(number, set()).add(self)

    def leave_above(self, numbers: Iterable[int]) -> None:
        """Record in the parent that no jobs of these classes are pending in this pool or below it any more."""
        if self.above is not None:
            for number in numbers:
                there = self.above.below_by_class[number]
                there.remove(self)
                if not there:
                    del self.above.below_by_class[number]

    def children_with(self, classes: int) -> Sequence[Entry]:
        """Return the entries of the child pools in their order. Pools without any pending job of these classes may be left out.

        Leaving them out saves time if few of many child pools have such jobs, for example while few operations starve.
        """
        children, waiting = self.children, classes & self.classes
        if len(children) <= _FEW_POOLS or waiting.bit_count() > _MANY_CLASSES:
            return children
        there: set[PoolOrder] = set()
        while waiting:
            some = self.below_by_class.get(waiting.bit_length() - 1, ())
            # The numbers of pools are compared before any pools are collected, so that a large set is not copied for nothing.
            if _LARGE_PART * (len(there) + len(some)) > len(children):
                return children
            there.update(some)
            waiting ^= 1 << waiting.bit_length() - 1
        return sorted(pool.entry for pool in there if pool.entry is not None)

    def first(self) -> float:
        """Return the lowest satisfaction in the pool's lists. For a pool that keeps fifo order the result is 0, since the entries in such a
        pool have no satisfaction.
        """
        lists: list[Sequence[Entry]] = [*self.buckets.values(), self.children]
        return min((entries[0][0] for entries in lists if entries), default=INFINITE_SATISFACTION)


def remove_entry(entries: list[Entry], entry: Entry) -> None:
    """Remove an entry from a sorted list that contains it."""
    del entries[bisect_left(entries, entry)]
