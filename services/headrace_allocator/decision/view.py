"""The view of one node and the tree that a decision reads, and the overlay of changes that the decision writes.

A view is frozen for the length of one decision. An overlay is made in constant time, costs only what it touches, and is thrown away
without a trace. The facts change only when the decision is applied.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final

import msgspec

from headrace.ids import OperationId, PoolName
from headrace.resources import ZERO, Resources
from headrace.wire.heartbeat import AllocationState
from headrace_allocator.decision.holding_back import held_back, only_by_preemption, pool_limit_reached
from headrace_allocator.decision.job_classes import ALL_CLASSES
from headrace_allocator.decision.least_satisfied import LeastSatisfied, entry_of, entry_of_pool, satisfaction
from headrace_allocator.decision.pool_order import Entry, PoolOrder
from headrace_allocator.decision.scheduling_order import Batch
from headrace_allocator.explain.reasons import Reason
from headrace_allocator.facts.allocations import Allocation, rests_of
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.groups import Group
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import ROUND_TRIPS_AHEAD, Operation, is_owed_a_job, waits_for_a_turn
from headrace_allocator.facts.pool_tree import PoolState, PoolStates

#: Looked up once: looking up an enum member costs as much as ten comparisons.
_RUNNING: Final = AllocationState.RUNNING
_NONE_GOING: Final[Mapping[PoolName, Resources]] = {}


def restless(facts: Facts, node: Node, pace_ms: int) -> list[Allocation]:
    """Return the allocations of a node that may need an order or more jobs. All other allocations go on unchanged."""
    picture = node.picture
    if node.record.drained or node.ends_all(facts.timing):
        picture.rests = None
        return list(node.allocations.values())
    ahead_ms = ROUND_TRIPS_AHEAD * pace_ms
    if picture.booked is not None and picture.rests is not None:
        # Checked by operation: a node has few operations, but too many allocations for the caches of a core.
        for rest in picture.rests:
            if rest.job_ms < ahead_ms:
                break
        else:
            return []
    # This runs for each allocation, so nothing else is read here. A settled allocation runs the only job that it has.
    stirring = [
        one
        for one in node.allocations.values()
        if one.rest.job_ms < ahead_ms
        or one.take_back is not None
        or not (one.settled or (one.state is _RUNNING and len(one.slots) <= 1))
    ]
    # An allocation that may need an order may be given a reason to go. Then nothing is remembered about the node's allocations.
    picture.rests = None if stirring or picture.booked is None else rests_of(node.allocations.values())
    return stirring


class View(msgspec.Struct, frozen=True):
    """One node and the tree at the time of a heartbeat. A view is only read."""

    free: Resources
    tags: tuple[str, ...]
    allocations: tuple[Allocation, ...]
    #: The allocations that may need an order. All others go on unchanged.
    restless: Sequence[Allocation]
    #: Resources of the whole tree that no allocation uses.
    free_in_tree: Resources
    #: All resources of the node that the tree may use.
    limits: Resources
    #: Upper bound of the allocations started on one heartbeat; None for as many as fit.
    most_starts: int | None
    #: Nothing more starts on a node with fewer free resources than these.
    min_spare: Resources
    operations: Mapping[OperationId, Operation]
    pools: PoolStates
    order: LeastSatisfied
    #: Milliseconds until the node's next heartbeat.
    pace_ms: int
    #: CLOCK_BOOTTIME of the node's host at this heartbeat, in milliseconds.
    boottime_ms: int = 0
    #: Operations that this heartbeat changed and that the order still has at their earlier position.
    moved: Sequence[Operation] = ()
    #: Operations with limits of their own.
    limited: Collection[OperationId] = ()
    #: True if resources are held for a gang, so that all other gangs wait for their turn.
    some_gang_gathers: bool = False
    #: The operation for which the node is reserved.
    reserved: Operation | None = None
    #: Batches that regular stages go through, by whether they are of high priority; empty if the tree has no batches.
    batches: Mapping[bool, Sequence[Batch]] = {}

    @staticmethod
    def of(
        facts: Facts,
        node: Node,
        order: LeastSatisfied,
        pace_ms: int,
        moved: Sequence[Operation] = (),
        batches: Mapping[bool, Sequence[Batch]] | None = None,
        stirring: Sequence[Allocation] | None = None,
    ) -> View:
        """Return the view of one node of the tree."""
        order.settle()
        return View(
            free=node.free,
            tags=tuple(node.record.tags),
            allocations=tuple(node.allocations.values()),
            restless=restless(facts, node, pace_ms) if stirring is None else stirring,
            free_in_tree=facts.total - facts.used,
            limits=node.total,
            most_starts=facts.timing.most_starts,
            min_spare=facts.pools.min_spare,
            operations=facts.operations,
            pools=facts.pools,
            order=order,
            pace_ms=pace_ms,
            boottime_ms=node.boottime_ms,
            moved=moved,
            limited=facts.limited,
            some_gang_gathers=facts.gangs.gathering is not None,
            reserved=None if node.reserved is None else facts.operations.get(node.reserved.operation),
            batches=batches or {},
        )


class _Heads:
    """The first operation of each list of a pool, without operations that were passed over.

    Valid as long as no further job class begins to fit: an operation that was passed over is never looked at again.
    """

    __slots__ = ("fitting", "heap")

    def __init__(self, order: PoolOrder, fitting: int) -> None:
        self.fitting = fitting
        lists = [iter(entries) for bucket, entries in order.buckets.items() if bucket.classes & fitting]
        self.heap: list[tuple[Entry, Iterator[Entry]]] = [(next(entries), entries) for entries in lists]
        heapify(self.heap)

    def move_on(self) -> None:
        """Leave the first operation behind for good."""
        _, entries = self.heap[0]
        following = next(entries, None)
        if following is None:
            heappop(self.heap)
        else:
            heapreplace(self.heap, (following, entries))


class Overlay:
    """The view with all changes that the decision in progress has made so far."""

    def __init__(self, view: View) -> None:
        self.view = view
        #: Free resources of the node.
        self.room = view.free
        #: Operations that changed, and the amounts by which the usage of pools changed.
        self.touched: dict[OperationId, Operation] = {}
        self.pools: dict[PoolName, Resources] = {}
        #: Positions of touched operations by pool and by operation, and operations that changed since their position was computed.
        self._touched_in: dict[PoolName, list[Entry]] = {}
        self._entries: dict[OperationId, Entry | None] = {}
        self._moved: dict[PoolName, dict[Operation, None]] = {}
        self._heads: dict[PoolName, _Heads] = {}
        #: The same for pools, by the parent pool.
        self._pools_below: dict[PoolName, list[Entry]] = {}
        self._pool_places: dict[PoolName, Entry] = {}
        self._moved_pools: dict[PoolName, dict[PoolState, None]] = {}
        self._pool_entries: dict[PoolName, Entry] = {}
        #: Usage below pools that counts as free under their limits, because it may be preempted (older victim rules).
        self.going = _NONE_GOING
        #: Allocations that are to be taken back and no longer count as used.
        self.freed: set[Allocation] = set()
        #: True in a preemptive stage, which may exceed limits by their tolerance.
        self.passes_limits = False
        #: True while the decision is what would be preempted if pools that only observe preemption allowed it; and whether that decision
        #: came across an allocation of such a pool.
        self.observes = False
        self.met_observing_pool = False
        #: Operations of which no job fitted although the least that they need of each resource did. Reset when the stage is over.
        self.refused: set[OperationId] = set()
        #: Number of all refusals in this decision, and number of times a walk left a pool without an operation.
        self.refusals = self.leafless = 0
        #: Number of jobs given out, by operation and job size, for operations with several job sizes.
        self.tasks: dict[tuple[OperationId, Resources], int] = {}
        #: The batch of operations that take part, and the job classes that do not take part.
        self.batch: Batch | None = None
        self.left_out = 0
        #: True if only operations take part that are owed another whole job.
        self.owed_only = False
        #: The gang whose turn it is from this decision on.
        self.gang: OperationId | None = None
        #: The operation for which the node is reserved, until one of its jobs starts here.
        self.reserved = view.reserved
        self._freed_of: dict[OperationId, list[Allocation]] = {}
        self._jobs: dict[OperationId, int] = {}
        self._held: dict[OperationId, Resources] = {}
        for operation in view.moved:
            self._touch(operation)
        for name in self._moved:
            self._look_anew_at(view.pools.pool(name))

    def ready(self, operation: Operation) -> int:
        """Return the number of the operation's jobs that can be given out at once."""
        return operation.slots.ready_count - self._jobs.get(operation.id, 0)

    def pending(self, operation: Operation) -> int:
        """Return the number of the operation's pending jobs."""
        return operation.slots.pending_count - self._jobs.get(operation.id, 0)

    def held(self, operation: Operation) -> Resources:
        """Return all that the operation holds on nodes."""
        return self._held.get(operation.id, operation.held)

    def satisfaction(self, operation: Operation) -> float:
        """Return the operation's usage over its fair share."""
        return satisfaction(operation, self.held(operation))

    def held_back(self, operation: Operation) -> Reason | None:
        """Return the reason for which no more jobs of the operation may start; None if one may."""
        tolerant_in = self.view.pools if self.passes_limits else None
        own = held_back(operation, self.ready(operation), self.held(operation), tolerant_in=tolerant_in)
        pools = self.view.pools
        added = {pool.name: added_below(self, pool) for pool in pools.above(operation.spec.pool)}
        return own or pool_limit_reached(operation, pools, added, tolerant=self.passes_limits)

    def entry_applied(self, operation: Operation) -> Entry | None:
        """Return the operation's position after the decision is applied; None if it must be computed again."""
        moved = self._moved.get(operation.spec.pool)
        if (moved is not None and operation in moved) or operation.task_groups:
            return None
        if self.held(operation) != operation.held:
            return None
        return self._entries.get(operation.id)

    def entry_of_pool(self, pool: PoolState) -> Entry:
        """Return the position of a pool by its own satisfaction."""
        entry = self._pool_entries.get(pool.name)
        if entry is None:
            entry = entry_of_pool(pool, pool.used + self.pools.get(pool.name, ZERO), self.view.pools.total)
            self._pool_entries[pool.name] = entry
        return entry

    def open(self, pool: PoolState, order: PoolOrder) -> int:
        """Return the classes of which one more job stays within the pool's limit."""
        if not pool.limited:
            return ALL_CLASSES
        added = self.pools.get(pool.name)
        if added is None and not self.passes_limits:
            return order.open
        most = pool.limit(self.view.pools.options, tolerant=self.passes_limits)
        return self.view.order.classes.below(most, pool.charged + added_below(self, pool))

    def first_untouched(self, order: PoolOrder, fitting: int) -> Entry | None:
        """Return the first operation of a pool with a job of these classes, among the operations that did not change."""
        heads = self._heads.get(order.name)
        if heads is None or fitting & ~heads.fitting:
            heads = self._heads[order.name] = _Heads(order, fitting)
        heads.fitting = fitting
        touched, number, heap = self.touched, self.view.order.number, heads.heap
        while heap:
            entry = heap[0][0]
            name = OperationId(entry[-1])
            if name not in touched and fitting >> number(name) & 1 and self.takes_part(name):
                return entry
            heads.move_on()
        return None

    def touched_in(self, pool: PoolName) -> Sequence[Entry]:
        """Return the sorted positions of the changed operations of a pool that may start something."""
        moved = self._moved.pop(pool, None)
        if moved is None:
            return self._touched_in.get(pool, ())
        entries = self._touched_in.setdefault(pool, [])
        for operation in moved:
            before = self._entries.get(operation.id)
            if before is not None:
                del entries[bisect_left(entries, before)]
            entry = self._entries[operation.id] = self._entry(operation)
            if entry is not None:
                insort(entries, entry)
        return entries

    def pools_below(self, pool: PoolName) -> Sequence[Entry]:
        """Return the sorted positions of the changed child pools of a pool. Each is a lower bound of the pool's real position."""
        moved = self._moved_pools.pop(pool, None)
        if moved is None:
            return self._pools_below.get(pool, ())
        entries = self._pools_below.setdefault(pool, [])
        for below in moved:
            before = self._pool_places.get(below.name)
            if before is not None:
                del entries[bisect_left(entries, before)]
            entry = self.entry_of_pool(below)
            if not below.follows_own_satisfaction:
                entry = (0.0, *entry[1:])
            self._pool_places[below.name] = entry
            insort(entries, entry)
        return entries

    def use(self, operation: Operation, amount: Resources, jobs: int = 0) -> None:
        """Record that the operation holds `amount` more on this node and that `jobs` more of its jobs are given out.

        This changes the node's free resources, and the usage of the operation and of all pools above it. Which jobs they are is settled
        when the decision is applied. A negative amount frees resources: the search for victims removes them here and sees what fits then.
        """
        if jobs:
            if waits_for_a_turn(operation) and self.gang is None:
                self.gang = operation.id
            self._jobs[operation.id] = self._jobs.get(operation.id, 0) + jobs
            if operation is self.reserved and amount is not ZERO:
                self.reserved = None
        self.room = self.room - amount
        self._held[operation.id] = self.held(operation) + amount
        self._touch(operation)
        self._use(self.view.pools.pool(operation.spec.pool), amount)

    def usage(self, allocation: Allocation) -> Resources:
        """Return the amount that counts as used by an allocation."""
        return ZERO if allocation in self.freed else allocation.usage

    def group(self, operation: Operation, allocation: Allocation) -> Group:
        """Return the group of an allocation. Freed allocations no longer count among the allocations before it."""
        return operation.cut_groups(self.view.pools).group(allocation, self._freed_of.get(operation.id, ()))

    def free(self, operation: Operation, allocation: Allocation) -> None:
        """Free an allocation, so that others may have its resources at once."""
        self.use(operation, ZERO - allocation.usage)
        self.freed.add(allocation)
        self._freed_of.setdefault(operation.id, []).append(allocation)

    def consider(
        self,
        batch: Batch | None = None,
        *,
        high: bool | None = None,
        filtered: bool = False,
        owed_only: bool = False,
    ) -> None:
        """Let only some operations take part from now on; without arguments all of them.

        `batch` admits the operations of a batch. `high` admits operations with high priority (True) or without (False). `filtered` admits
        operations with tag filters. `owed_only` admits operations that are owed another job.
        """
        classes = self.view.order.classes
        self.batch, self.owed_only, self._heads = batch, owed_only, {}
        self._begin_stage()
        self.left_out = 0 if high is None else classes.high if not high else ~classes.high
        if filtered:
            self.left_out |= ~classes.filtered

    def takes_part(self, operation: OperationId) -> bool:
        """True if the operation is in the present batch, is owed a job if that is required, and is no gang that waits for its turn."""
        if self.gang is not None and operation != self.gang and waits_for_a_turn(self.view.operations[operation]):
            return False
        if self.owed_only:
            known = self.view.operations[operation]
            if not is_owed_a_job(known, self.held(known)):
                return False
        return self.batch is None or operation in self.batch.operations

    def refuse(self, operation: Operation, *, counts: bool = True) -> None:
        """Exclude an operation until the stage is over. `counts` is False if a job of it would fit; then it does not count as a refusal."""
        self.refused.add(operation.id)
        self.refusals += counts
        self._touch(operation)

    def pass_limits(self, passes: bool, going: Mapping[PoolName, Resources] = _NONE_GOING) -> None:
        """Set whether limits may be exceeded by their tolerance from now on, and which usage below pools counts as free under them."""
        self.passes_limits, self.going, order = passes, going, self.view.order
        for pool in map(self.view.pools.pool, going):
            # A pool at its limit is not listed in its parent.
            if order.has_pool(pool.name) and pool.above is not None:
                self.pools.setdefault(pool.name, ZERO)
                self._moved_pools.setdefault(pool.above.name, {})[pool] = None
        self._begin_stage()

    def keep(self, operation: Operation, allocation: Allocation) -> None:
        """Keep an allocation that was freed before."""
        self.freed.discard(allocation)
        self._freed_of[operation.id].remove(allocation)
        self.use(operation, allocation.usage)

    def _use(self, pool: PoolState, amount: Resources) -> None:
        """Add to the usage of a pool and of all pools above it."""
        pools, order, above = self.pools, self.view.order, pool.above
        while above is not None:
            name = pool.name
            before = pools.get(name)
            pools[name] = amount if before is None else before + amount
            self._pool_entries.pop(name, None)
            if order.has_pool(name):
                self._moved_pools.setdefault(above.name, {})[pool] = None
            pool, above = above, above.above

    def _look_anew_at(self, pool: PoolState) -> None:
        """Reposition a changed pool and the pools above it, up to a pool that is judged by its own satisfaction."""
        above = pool.above
        while above is not None and not pool.follows_own_satisfaction:
            self.pools.setdefault(pool.name, ZERO)
            self._moved_pools.setdefault(above.name, {})[pool] = None
            pool, above = above, above.above

    def _begin_stage(self) -> None:
        """Reposition the operations that were changed or refused before."""
        self.refused.clear()
        for operation in self.touched.values():
            self._touch(operation)

    def _touch(self, operation: Operation) -> None:
        self.touched[operation.id] = operation
        self._moved.setdefault(operation.spec.pool, {})[operation] = None

    def _entry(self, operation: Operation) -> Entry | None:
        """Return the operation's position now; None if it may start nothing.

        An operation that could start nothing before still cannot after allocations are freed here: its own jobs or limits hold it back.
        """
        view, held = self.view, self.held(operation)
        if operation.id not in view.order or operation.id in self.refused:
            return None
        tolerant_in = view.pools if self.passes_limits else None
        if held_back(operation, self.ready(operation), held, tolerant_in=tolerant_in) is not None:
            return None
        if operation.limited and tolerant_in is None and only_by_preemption(operation):
            return None
        return entry_of(operation, view.pools, held)


def added_below(overlay: Overlay, pool: PoolState) -> Resources:
    """Return what the decision adds to the usage that counts towards the pool's limit. It is negative where usage counts as free."""
    added = overlay.pools.get(pool.name, ZERO)
    return added - overlay.going[pool.name] if pool.name in overlay.going else added
