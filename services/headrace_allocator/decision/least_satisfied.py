"""The order in which operations get resources: from the root to the least satisfied child, and so on down.

An option of each pool decides whether the pool is judged by its own satisfaction, or by the satisfaction of the operation that would be
chosen below it. Each pool keeps its operations in one sorted list per bucket of job sizes, and its child pools in one list. Each pool knows
which classes of jobs are pending below it, so that no walk enters a pool where nothing fits. A pool whose limit admits none of these
classes is left out of its parent's list.

Invariant (`checks`): each operation is in one list, at its position. Each pool counts the classes of the operations below it.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import cast

import msgspec

from headrace.ids import OperationId, PoolName
from headrace.pools.tree_options import AllocationOptions
from headrace.resources import Resources
from headrace.runtime.engine import Check
from headrace.satisfaction import INFINITE_SATISFACTION, Owed, local_satisfaction
from headrace.wire.operations import OperationSpec
from headrace.wire.snapshots import PreemptionPriority, ShareItem
from headrace_allocator.decision.job_classes import ALL_CLASSES, Bucket, JobClass, JobClasses, is_high_priority
from headrace_allocator.decision.pool_order import Entry, PoolOrder, remove_entry
from headrace_allocator.decision.start_limits import only_by_preemption
from headrace_allocator.facts.operations import Operation, is_owed_a_job, lasts_ms, starts_only_in_its_turn
from headrace_allocator.facts.pool_tree import PoolState, PoolStates


def satisfaction(operation: Operation, held: Resources) -> float:
    """Return the satisfaction of an operation that holds `held`: its usage divided by its fair share. Both count as parts of the cluster
    total in the snapshot from which its shares were taken.

    Example: with a fair share of half of 8 cores and 3 cores held, it is 3 / 4 = 0.75. Above 1, the operation has more than it is owed.
    """
    return local_satisfaction(held.share_of(operation.total), operation.fair_share, operation.demand_share)


def entry_of(operation: Operation, pools: PoolStates, held: Resources) -> Entry:
    """Return the position of an operation among the children of its pool. In a pool that keeps fifo order, only the rank of the operation
    counts.
    """
    if operation.in_fifo_pool and pools.pool(operation.spec.pool).keeps_fifo_order:
        return (0.0, 0.0, operation.rank, operation.arrival, operation.id)
    owed = operation.owed
    if owed is None:
        owed = Owed.of(operation.fair_share, operation.demand_share, operation.dominant_resource, operation.total)
        operation.owed = owed
    satisfied, excess = owed.place(held)
    return (satisfied, excess, operation.rank, operation.arrival, operation.id)


def entry_of_pool(pool: PoolState, used: Resources, total: Resources) -> Entry:
    """Return the position of a pool among the children of its parent, by the pool's own satisfaction."""
    item = pool.item
    if item is None:
        return (INFINITE_SATISFACTION, 0.0, 0, 0, pool.name)
    owed = pool.owed
    if owed is None or owed.total is not total:
        owed = pool.owed = Owed.of(item.fair_share.total, item.demand_share, item.dominant_resource, total)
    satisfied, excess = owed.place(used)
    return (satisfied, excess, item.rank, 0, pool.name)


_MadeOf = tuple[OperationSpec, Resources, PreemptionPriority, tuple[str, ...], AllocationOptions, ShareItem | None]


class _Place(msgspec.Struct, eq=False):
    """The position of an operation in the order."""

    entry: Entry
    pool: PoolOrder
    #: The values from which the class of the operation's jobs is computed. For gangs and for operations with limits of their own, the class
    #: depends on more than these values, so it is always computed again.
    made_of: _MadeOf
    job_class: JobClass
    number: int
    bucket: Bucket
    #: True if the operation is owed another whole job, so that its entry is in `PoolOrder.owed` too.
    is_owed: bool = False


class LeastSatisfied:
    """The order of all operations that may get a job."""

    def __init__(self, pools: PoolStates) -> None:
        self.classes = JobClasses()
        self.root = PoolOrder(pools.root.name, None)
        self._facts = pools
        self._pools: dict[PoolName, PoolOrder] = {self.root.name: self.root}
        #: The pools of `_pools`, typed with plain text as key: the walk reads the names of pools from entries.
        self.orders: Mapping[str, PoolOrder] = cast("Mapping[str, PoolOrder]", self._pools)
        self._places: dict[OperationId, _Place] = {}
        #: Pools whose position must be computed again.
        self._stale: set[PoolOrder] = set()
        #: Operations with limits of their own that entered the order. `nudge_below_limits` nudges nodes for these operations, then removes
        #: them.
        self.came_in: dict[OperationId, None] = {}
        #: By pool, the classes of jobs that the pool's limit stopped holding back. `nudge_below_limits` nudges nodes for these classes,
        #: then removes them.
        self.opened: dict[PoolName, int] = {}
        #: Sum, over all pools, of the number of classes that the pool's limit holds back.
        self.shut_classes = 0

    def put(self, operation: Operation, entry: Entry) -> None:
        """Enter an operation, or move it to another position."""
        place = self._places.get(operation.id)
        spec, made_of = operation.spec, self._made_of(operation)
        is_owed = is_owed_a_job(operation, operation.held)
        if place is not None and (place.made_of != made_of or operation.limited or operation.gang is not None):
            if place.made_of[0] is not spec or place.job_class != self._class_of(operation):
                self.remove(operation.id)
                place = None
            else:
                place.made_of = made_of
        if place is not None:
            if place.entry == entry and place.is_owed == is_owed:
                return
            entries = place.pool.buckets[place.bucket]
            remove_entry(entries, place.entry)
            if place.is_owed:
                remove_entry(place.pool.owed, place.entry)
        else:
            job_class = self._class_of(operation)
            number, bucket = self.classes.enter(job_class), self.classes.bucket(job_class)
            pool = self._pool(operation.spec.pool)
            place = self._places[operation.id] = _Place(entry, pool, made_of, job_class, number, bucket)
            for each in pool.path():
                each.count(number, 1)
            self._stale.update(pool.path())
            entries = pool.buckets.setdefault(place.bucket, [])
            if operation.limited:
                self.came_in[operation.id] = None
        place.entry, place.is_owed = entry, is_owed
        insort(entries, entry)
        if is_owed:
            insort(place.pool.owed, entry)
        self._stale.add(place.pool)

    def remove(self, operation: OperationId) -> None:
        """Remove an operation. The operation need not be in the order."""
        place = self._places.pop(operation, None)
        if place is None:
            return
        self.classes.leave(place.number)
        entries = place.pool.buckets[place.bucket]
        remove_entry(entries, place.entry)
        if place.is_owed:
            remove_entry(place.pool.owed, place.entry)
        if not entries:
            del place.pool.buckets[place.bucket]
        for pool in list(place.pool.path()):
            pool.count(place.number, -1)
            if pool.counts or pool is self.root:
                self._stale.add(pool)
            else:
                self._drop(pool)

    def settle(self) -> None:
        """Reposition all pools whose usage, shares or parent changed."""
        if self._facts.some_moved:
            known = [self._pools[name] for name in self._facts.changed if name in self._pools]
            self._move([pool for pool in known if not self._is_in_place(pool)])
            self._facts.some_moved = False
        for name in self._facts.changed:
            if name in self._pools:
                self._stale.add(self._pools[name])
        self._facts.changed.clear()
        while self._stale:
            self._place(self._stale.pop())
        # The set is already empty. But a set that was large keeps its memory until it is cleared, and the next `pop` would scan all of that
        # memory.
        self._stale.clear()

    @property
    def some_starve(self) -> bool:
        """True if an operation in the order starves, so that allocations of other operations may have to be preempted."""
        return bool(self.classes.starving & self.root.classes)

    def entry(self, operation: OperationId) -> Entry | None:
        """Return the position of an operation; None if it is not in the order."""
        return self._places[operation].entry if operation in self._places else None

    def is_in_its_class(self, operation: Operation) -> bool:
        """True if the class under which the operation is listed in the order is the class that follows from the present facts."""
        return self._places[operation.id].job_class == self._class_of(operation)

    def has_owed_right(self, operation: Operation) -> bool:
        """True if the order has the operation as owed another whole job exactly if the present facts say so."""
        place = self._places[operation.id]
        return place.is_owed == (place.entry in place.pool.owed) == is_owed_a_job(operation, operation.held)

    def number(self, operation: OperationId) -> int:
        """Return the class number of an operation's jobs. The operation must be in the order."""
        return self._places[operation].number

    def pool(self, name: PoolName) -> PoolOrder:
        """Return the order in a pool. The pool must have an operation in the order below it."""
        return self._pools[name]

    def pools(self) -> list[PoolName]:
        """Return the pools that have an operation in the order below them."""
        return list(self._pools)

    def has_pool(self, name: PoolName) -> bool:
        """True if the pool has an operation in the order below it."""
        return name in self._pools

    def checks(self) -> Iterator[Check]:
        """Yield the checks of each pool's lists and of each operation's position in them."""
        yield self._check_shut
        for name in list(self._pools):
            yield partial(self._check, name)
        for operation in list(self._places):
            yield partial(self._check_operation, operation)

    def __iter__(self) -> Iterator[OperationId]:
        return iter(self._places)

    def __contains__(self, operation: OperationId) -> bool:
        return operation in self._places

    def __len__(self) -> int:
        return len(self._places)

    def is_high(self, operation: OperationId) -> bool:
        """True if an operation in the order has high priority and the tree uses that priority."""
        return operation in self._places and self._places[operation].job_class.high

    def _made_of(self, operation: Operation) -> _MadeOf:
        # The share is included only if the class depends on it: each snapshot has new shares for thousands of operations that stay in
        # their class.
        spec, options = operation.spec, self._facts.options
        share = operation.share if options.enable_guarantee_priority_scheduling else None
        filters = self._facts.pool(spec.pool).filters
        return (spec, operation.min_needed, operation.preemption_priority, filters, options, share)

    def _class_of(self, operation: Operation) -> JobClass:
        filters = self._facts.filters_of(operation.spec)
        high = self._facts.options.enable_guarantee_priority_scheduling and is_high_priority(operation)
        priority = operation.preemption_priority
        own = only_by_preemption(operation)
        # In trees without node reservations the length is left out, since it would only make more classes.
        length_ms = lasts_ms(operation) if self._facts.options.node_reservation_time else 0
        return JobClass(
            operation.min_needed, filters, priority, own, high, starts_only_in_its_turn(operation), length_ms
        )

    def _pool(self, name: PoolName) -> PoolOrder:
        """Return the order in a pool. A pool that is not in the order yet is entered, with all pools above it."""
        pool = self._pools.get(name)
        if pool is None:
            above = self._facts.pool(name).above
            parent = self._pool((above or self._facts.root).name)
            pool = self._pools[name] = PoolOrder(name, parent)
            parent.below.add(pool)
        return pool

    def _drop(self, pool: PoolOrder) -> None:
        """Remove from the order a pool that has no operation below it any more."""
        self._stale.discard(pool)
        self.shut_classes -= pool.shut.bit_count()
        del self._pools[pool.name]
        self._take_out(pool)

    def _is_in_place(self, pool: PoolOrder) -> bool:
        above = self._facts.pool(pool.name).above
        return above is None or pool.above is None or pool.above.name == above.name

    def _move(self, pools: list[PoolOrder]) -> None:
        """Move pools with all that is below them to the parents that the facts give."""
        left: list[PoolOrder] = []
        # All pools are taken out before any is entered again, because a pool may now be below its former child.
        for pool in pools:
            self._count_above(pool, -1)
            left += list(pool.path())[1:]
            self._take_out(pool)
        for pool in pools:
            above = self._facts.pool(pool.name).above
            pool.above = self._pool((above or self._facts.root).name)
            pool.above.below.add(pool)
            pool.enter_above(pool.counts)
            self._count_above(pool, 1)
            # The pools above are checked for emptiness only at the end: a pool that one step entered may be empty again after a later step
            # moved its only child.
            left += list(pool.path())[1:]
        for pool in left:
            if not pool.counts and pool is not self.root and self._pools.get(pool.name) is pool:
                self._drop(pool)

    def _take_out(self, pool: PoolOrder) -> None:
        """Take a pool out of the lists of its parent."""
        assert pool.above is not None
        pool.above.below.discard(pool)
        pool.leave_above(pool.counts)
        if pool.entry is not None:
            remove_entry(pool.above.children, pool.entry)
        pool.above = pool.entry = None

    def _count_above(self, pool: PoolOrder, sign: int) -> None:
        for above in list(pool.path())[1:]:
            for number, times in pool.counts.items():
                above.count(number, sign * times)
            self._stale.add(above)

    def _place(self, pool: PoolOrder) -> None:
        """Reposition a pool among the children of its parent."""
        if pool.above is None:
            return
        above, before, facts = pool.above, pool.entry, self._facts.pool(pool.name)
        pool.open = self.classes.below(facts.most, facts.charged) if facts.limited else ALL_CLASSES
        if opened := pool.shut & pool.classes & pool.open:
            self.opened[pool.name] = self.opened.get(pool.name, 0) | opened
        self.shut_classes -= pool.shut.bit_count()
        pool.shut = pool.classes & ~pool.open
        self.shut_classes += pool.shut.bit_count()
        entry = pool.entry = self._entry_of(pool)
        if entry == before:
            return
        if before is not None:
            remove_entry(above.children, before)
        if entry is not None:
            insort(above.children, entry)
        # A parent that is judged by its own satisfaction keeps its position as long as anything below it may start.
        if entry is None or before is None or not self._facts.pool(above.name).follows_own_satisfaction:
            self._stale.add(above)

    def _entry_of(self, pool: PoolOrder) -> Entry | None:
        facts, can_start = self._facts.pool(pool.name), pool.open
        if facts.limited:
            # A preemptive stage may still start jobs below a pool that is at its limit.
            can_start |= self.classes.below(facts.limit(self._facts.options, tolerant=True), facts.charged)
        if not pool.classes & can_start or not (pool.buckets or pool.children):
            return None
        entry = entry_of_pool(facts, facts.used, self._facts.total)
        return entry if facts.follows_own_satisfaction else (pool.first(), *entry[1:])

    def check_place(self, name: PoolName) -> list[str]:
        """Return a list with one message if the position of a pool is wrong; an empty list if it is right or about to be computed again."""
        pool = self._pools.get(name)
        if pool is None or pool.above is None or pool in self._stale or name in self._facts.changed:
            return []
        if pool.entry == self._entry_of(pool):
            return []
        return [f"pool {name}: its position in the order does not follow from the facts"]

    def _check(self, name: PoolName) -> list[str]:
        pool = self._pools.get(name)
        if pool is None:
            return []
        broken = []
        counted: Counter[int] = Counter()
        for below in pool.below:
            counted += below.counts
        counted_below = set(counted)
        for bucket, entries in pool.buckets.items():
            for entry in entries:
                place = self._places.get(OperationId(entry[-1]))
                if place is None or (place.pool, place.bucket, place.entry) != (pool, bucket, entry):
                    broken.append(f"{entry[-1]} is listed at a wrong position")
                else:
                    counted[place.number] += 1
        if counted != pool.counts or pool.classes != sum(1 << number for number in counted):
            broken.append("its job classes differ from the job classes of the operations below it")
        by_class = {number: {each for each in pool.below if number in each.counts} for number in pool.below_by_class}
        if by_class != pool.below_by_class or counted_below != by_class.keys():
            broken.append("its child pools are listed under job classes that differ from those of their pending jobs")
        if {below.entry for below in pool.below} - {None} != set(pool.children):
            broken.append("its listed child pools differ from the pools below it")
        if pool.above is not None and self._pools.get(pool.above.name) is not pool.above:
            broken.append("the pool above it is not in the order")
        return [f"order of pool {name}: {words}" for words in broken]

    def _check_shut(self) -> list[str]:
        counted = sum(pool.shut.bit_count() for pool in self._pools.values())
        return [] if counted == self.shut_classes else ["the count of job classes that pool limits hold back is wrong"]

    def _check_operation(self, name: OperationId) -> list[str]:
        place = self._places.get(name)
        if place is None or place.entry in place.pool.buckets.get(place.bucket, ()):
            return []
        return [f"{name}: is not listed at its position in the order"]
