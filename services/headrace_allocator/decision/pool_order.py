"""The order in one pool: operations and pools that may get a job, and which classes of jobs wait."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from headrace.ids import PoolName
from headrace.satisfaction import INFINITE_SATISFACTION
from headrace_allocator.decision.job_classes import ALL_CLASSES, Bucket

#: Satisfaction, minus what it is owed, rank, order of arrival, name: what the children of a pool are sorted by.
Entry = tuple[float, float, int, int, str]

#: Up to so many pools, or with more classes than this, it is quicker to look at one pool after the other.
_FEW_POOLS: Final = 4
_MANY_CLASSES: Final = 16
#: And where one in so many or more have what is looked for, the first that does is found sooner than they are sorted.
_LARGE_PART: Final = 4


class PoolOrder:
    """The operations and pools of one pool that may get a job, in their order."""

    __slots__ = (
        "above", "below", "below_by_class", "buckets", "children", "classes", "counts", "entry", "name", "open", "shut",
    )  # fmt: skip

    def __init__(self, name: PoolName, above: PoolOrder | None) -> None:
        self.name = name
        self.above = above
        #: All pools below it, and those in their order below which something may start.
        self.below: set[PoolOrder] = set()
        self.children: list[Entry] = []
        self.buckets: dict[Bucket, list[Entry]] = {}
        #: Operations by the class of their jobs, here and in all pools below; and which classes these are.
        self.counts: Counter[int] = Counter()
        self.classes = 0
        #: The pools right below it by each class that waits there.
        self.below_by_class: dict[int, set[PoolOrder]] = {}
        #: The classes of which one more job stays within its limit; those that waited when that was found last and that it held back.
        self.open, self.shut = ALL_CLASSES, 0
        #: Its place among the children of the pool above, None while nothing below it may start.
        self.entry: Entry | None = None

    def path(self) -> Iterator[PoolOrder]:
        """Itself and all above it, up to the root."""
        pool: PoolOrder | None = self
        while pool is not None:
            yield pool
            pool = pool.above

    def count(self, number: int, more: int) -> None:
        """Adds to the number of operations of a class below it."""
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
        """The pool above knows that these classes wait here."""
        if self.above is not None:
            for number in numbers:
                self.above.below_by_class.setdefault(number, set()).add(self)

    def leave_above(self, numbers: Iterable[int]) -> None:
        """The pool above knows that these classes wait here no more."""
        if self.above is not None:
            for number in numbers:
                there = self.above.below_by_class[number]
                there.remove(self)
                if not there:
                    del self.above.below_by_class[number]

    def children_with(self, classes: int) -> Sequence[Entry]:
        """Its pools in their order, of which those may be left out below which none of these classes wait.

        That is worth a look where few of many pools have any, as while few operations starve.
        """
        children, waiting = self.children, classes & self.classes
        if len(children) <= _FEW_POOLS or waiting.bit_count() > _MANY_CLASSES:
            return children
        there: set[PoolOrder] = set()
        while waiting:
            some = self.below_by_class.get(waiting.bit_length() - 1, ())
            # Before they are taken: of very many nothing is copied.
            if _LARGE_PART * (len(there) + len(some)) > len(children):
                return children
            there.update(some)
            waiting ^= 1 << waiting.bit_length() - 1
        return sorted(pool.entry for pool in there if pool.entry is not None)

    def first(self) -> float:
        """The least satisfaction in its lists, or 0 in a fifo pool, whose lists do not tell."""
        lists: list[Sequence[Entry]] = [*self.buckets.values(), self.children]
        return min((entries[0][0] for entries in lists if entries), default=INFINITE_SATISFACTION)


def remove_entry(entries: list[Entry], entry: Entry) -> None:
    """Takes an entry out of a list that has it."""
    del entries[bisect_left(entries, entry)]
