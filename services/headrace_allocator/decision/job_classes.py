"""Classes of jobs: whether a job fits is answered once for each class, not for each operation.

A class is all jobs of one size, one set of tag filters and one preemption priority. Every class has a number, and a set of classes is an
integer with one bit per class. So the question whether any job below a pool fits on a node is answered with one `&`.

Sizes that differ by less than a fifth in every resource form a bucket. A pool has one list of operations for each bucket, so a pool whose
jobs have thousands of sizes still has few lists.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

import numpy as np

from headrace.pools.amounts import PartialResources
from headrace.pools.node_filter import matches
from headrace.resources import EPS, LARGEST_SUM, ZERO, Resources
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.facts.operations import Operation

#: The set of all classes, future classes included.
ALL_CLASSES: Final = -1
#: Up to this number of classes, checking the classes one by one is quicker than comparing the whole table of sizes.
_FEW: Final = 64
#: Upper bound of the remembered answers of `fitting`, and of `matching`. Answers are used again, because nodes often have the same free
#: resources or the same tags.
_MOST_KEPT: Final = 512
_NOWHERE: Final = np.iinfo(np.int64).max


class JobClass(NamedTuple):
    """The facts that decide on which nodes a job may run, and when."""

    size: Resources
    #: Tag filters of the operation and of all pools above it. A node must match each.
    filters: tuple[str, ...] = ()
    priority: PreemptionPriority = PreemptionPriority.NONE
    #: True while the operation is at its own limits, which only preemptive stages may exceed.
    only_by_preemption: bool = False
    #: True if the tree serves operations below their promised share first, and the operation is below its promised share.
    high: bool = False
    #: True if the operation is a gang that waits until no other gang gathers resources.
    waits_for_a_turn: bool = False
    #: Milliseconds after which every job has ended at the latest; 0: not known, or not used by the tree.
    lasts_ms: int = 0


class Bucket:
    """The classes whose sizes are in one bucket: an integer with one bit per class."""

    __slots__ = ("classes",)

    def __init__(self) -> None:
        self.classes = 0


class JobClasses:
    """All classes of pending jobs, by number. A class that is no longer used keeps its number until many classes are unused."""

    def __init__(self) -> None:
        self._numbers: dict[JobClass, int] = {}
        self._uses: dict[int, int] = {}
        self._unused = 0
        self._free: list[int] = []
        self._buckets: dict[object, Bucket] = {}
        self._by_priority: dict[PreemptionPriority, int] = {}
        self._by_filters: dict[tuple[str, ...], int] = {}
        #: Classes of jobs whose end is known, by `JobClass.lasts_ms`.
        self._by_length: dict[int, int] = {}
        #: Classes that only preemptive stages may start.
        self.only_by_preemption = 0
        #: Classes of operations with high priority.
        self.high = 0
        #: Classes with tag filters, whose jobs can run on some nodes only.
        self.filtered = 0
        #: Classes of gangs that wait for their turn.
        self.waiting_gangs = 0
        #: Sizes of jobs: one row per resource, one column per class number. The column of an unused number has amounts so large that they
        #: fit nowhere.
        self._sizes = np.full((5, 16), _NOWHERE)
        #: `_least` and `_most`: the smallest and the largest amount of each resource that any class needs.
        self._least = self._most = ZERO
        #: Remembered answers of `fitting`, by free resources; dropped when a class is added.
        self._fitting: dict[Resources, int] = {}
        #: Remembered answers of `matching`, by tags; dropped when a class is added.
        self._matching: dict[tuple[str, ...], int] = {}

    def enter(self, job_class: JobClass) -> int:
        """Record one more use of a class, and return the class's number."""
        number = self._numbers.get(job_class)
        if number is None:
            number = self._add(job_class)
        self._unused -= not self._uses[number]
        self._uses[number] += 1
        return number

    def leave(self, number: int) -> None:
        """Record that one use of a class has ended."""
        self._uses[number] -= 1
        self._unused += not self._uses[number]

    def bucket(self, job_class: JobClass) -> Bucket:
        """Return the bucket of a class."""
        return self._buckets[_corner(job_class)]

    def fitting(self, room: Resources) -> int:
        """Return the classes whose jobs fit into the resources."""
        if not room.dominates(self._least):
            return 0
        found = self._fitting.get(room)
        if found is None:
            if len(self._fitting) >= _MOST_KEPT:
                self._fitting.clear()
            found = self._fitting[room] = self._find(room)
        return found

    def below(self, limit: PartialResources, used: Resources) -> int:
        """Return the classes for which the limit allows one more job in addition to `used`."""
        room = room_below(limit, used)
        return ALL_CLASSES if room.dominates(self._most) else self.fitting(room)

    def matching(self, tags: tuple[str, ...]) -> int:
        """Return the classes whose filters all match the tags of a node."""
        found = self._matching.get(tags)
        if found is None:
            if len(self._matching) >= _MOST_KEPT:
                self._matching.clear()
            found = self._matching[tags] = _union(
                classes
                for filters, classes in self._by_filters.items()
                if all(matches(formula, tags) for formula in filters)
            )
        return found

    def of_priority(self, priority: PreemptionPriority) -> int:
        """Return the classes of operations with this preemption priority."""
        return self._by_priority.get(priority, 0)

    def ending_within(self, length_ms: int) -> int:
        """Return the classes of jobs that are sure to end within `length_ms` milliseconds if they start now."""
        return _union(classes for lasts_ms, classes in self._by_length.items() if lasts_ms <= length_ms)

    @property
    def starving(self) -> int:
        """The classes of starving operations, for which allocations of other operations may be preempted."""
        return self.of_priority(PreemptionPriority.NORMAL) | self.of_priority(PreemptionPriority.AGGRESSIVE)

    def __len__(self) -> int:
        return len(self._numbers) - self._unused

    def _add(self, job_class: JobClass) -> int:
        if self._unused > _FEW and 2 * self._unused > len(self._numbers):
            self._sweep()
        number = self._free.pop() if self._free else len(self._numbers)
        if number >= self._sizes.shape[1]:
            self._sizes = np.pad(self._sizes, ((0, 0), (0, number)), constant_values=_NOWHERE)
        self._place(job_class, number)
        return number

    def _place(self, job_class: JobClass, number: int) -> None:
        size, filters, priority, only_by_preemption, high, waits_for_a_turn, lasts_ms = job_class
        first = not self._numbers
        self._numbers[job_class] = number
        self._uses[number] = 0
        self._unused += 1
        self._sizes[:, number] = size.as_tuple()
        self._buckets.setdefault(_corner(job_class), Bucket()).classes |= 1 << number
        self._by_priority[priority] = self._by_priority.get(priority, 0) | 1 << number
        self._by_filters[filters] = self._by_filters.get(filters, 0) | 1 << number
        if lasts_ms:
            self._by_length[lasts_ms] = self._by_length.get(lasts_ms, 0) | 1 << number
        self.only_by_preemption |= only_by_preemption << number
        self.high |= high << number
        self.filtered |= bool(filters) << number
        self.waiting_gangs |= waits_for_a_turn << number
        self._least = size if first else self._least.within(size)
        self._most = size if first else Resources(*map(max, self._most.as_tuple(), size.as_tuple()))
        self._fitting.clear()
        self._matching.clear()

    def _sweep(self) -> None:
        """Free the numbers of all classes that are no longer used."""
        uses, before = self._uses, self._numbers
        kept = {job_class: number for job_class, number in before.items() if uses[number]}
        self._free += [number for number in before.values() if not uses[number]]
        self._numbers, self._uses, self._unused = {}, {}, 0
        self._by_priority, self._by_filters, self._by_length = {}, {}, {}
        self.only_by_preemption = self.high = self.filtered = self.waiting_gangs = 0
        self._sizes[:] = _NOWHERE
        for bucket in self._buckets.values():
            bucket.classes = 0
        for job_class, number in kept.items():
            self._place(job_class, number)
            self._uses[number] = uses[number]
        self._unused = 0
        self._buckets = {corner: bucket for corner, bucket in self._buckets.items() if bucket.classes}

    def _find(self, room: Resources) -> int:
        if len(self._numbers) <= _FEW:
            return _union(1 << number for each, number in self._numbers.items() if room.dominates(each.size))
        fits = (self._sizes <= np.array(room.as_tuple())[:, None]).all(axis=0)
        return int.from_bytes(np.packbits(fits, bitorder="little").tobytes(), "little")


def is_high_priority(operation: Operation) -> bool:
    """True if the operation had less than its promised share at the last snapshot."""
    item = operation.share
    if item is None:
        return False
    short = [promised - used > EPS for promised, used in zip(item.promised_fair_share, item.usage_share, strict=True)]
    # The operation can use more of a resource if its fair share of the resource is below its demand. It has high priority only if it is
    # short of every such resource. If there is no such resource, being short of any one resource is enough.
    pairs = zip(short, operation.fair_share, operation.demand_share, strict=True)
    unblocked = [is_short for is_short, fair, demand in pairs if fair < demand]
    return all(unblocked) if unblocked else any(short)


def room_below(limit: PartialResources, used: Resources) -> Resources:
    """Return the resources that are left below a limit."""
    pairs = zip(limit.as_tuple(), used.as_tuple(), strict=True)
    return Resources(*(LARGEST_SUM if most is None else most - there for most, there in pairs))


def _union(sets: Iterable[int]) -> int:
    return reduce(or_, sets, 0)


def _corner(job_class: JobClass) -> object:
    """Return the key of a class's bucket. The sizes in one bucket differ by less than a fifth.

    The key contains 4 * log2 of each amount of the size and of `lasts_ms`, rounded up, and all other fields of the class as they are.
    """
    size, *others, lasts_ms = job_class
    return (
        math.ceil(4 * math.log2(lasts_ms)) if lasts_ms else -1,
        tuple(math.ceil(4 * math.log2(amount)) if amount > 0 else -1 for amount in size.as_tuple()),
        *others,
    )
