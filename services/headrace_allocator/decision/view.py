"""The view of one node and the tree that a decision reads, and the overlay of changes that the decision writes.

A view is frozen for the length of one decision. An overlay stores only what the decision changes, so making one takes constant time,
however large the tree is. After the decision the overlay is dropped. The facts change only when the decision is applied.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final, Generic, TypeVar

import msgspec

from headrace.ids import OperationId, PoolName
from headrace.resources import ZERO, Resources
from headrace.wire.heartbeat import AllocationState
from headrace.wire.tasks import Task
from headrace_allocator.decision.job_classes import ALL_CLASSES
from headrace_allocator.decision.least_satisfied import LeastSatisfied, entry_of, entry_of_pool, satisfaction
from headrace_allocator.decision.pool_order import Entry, PoolOrder, remove_entry
from headrace_allocator.decision.scheduling_order import Batch
from headrace_allocator.decision.start_limits import gang_waits, held_back, pool_limit_reached
from headrace_allocator.explain.reasons import Reason
from headrace_allocator.facts.allocations import Allocation, rests_of
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.failing_nodes import ANYTHING, Allowed
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import (
    ROUND_TRIPS_AHEAD,
    Operation,
    in_gang,
    is_owed_a_job,
    starts_only_in_its_turn,
    waiting_tasks,
    waits_for_a_turn,
)
from headrace_allocator.facts.pool_tree import PoolState, PoolStates
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.gangs.sizes import ready_by_size

#: The enum member is looked up only once here, because a look-up costs as much as ten comparisons.
_RUNNING: Final = AllocationState.RUNNING
_NONE_GOING: Final[Mapping[PoolName, Resources]] = {}

Child = TypeVar("Child")


def restless(facts: Facts, node: Node, pace_ms: int) -> list[Allocation]:
    """Return the allocations of a node that may need an order or more jobs. All other allocations continue unchanged."""
    picture = node.picture
    if node.record.drained or node.ends_all(facts.timing):
        picture.rests = None
        return list(node.allocations.values())
    ahead_ms = ROUND_TRIPS_AHEAD * pace_ms
    if picture.booked is not None and picture.rests is not None:
        # First look at `rests`, which has about one entry per operation: a node has few operations, but more allocations than fit into the
        # CPU cache.
        for rest in picture.rests:
            if rest.job_ms < ahead_ms:
                break
        else:
            return []
    # The loop runs for each allocation, so it reads as few fields as possible. `settled` is True if the allocation runs the only job that
    # it has.
    stirring = [
        one
        for one in node.allocations.values()
        if one.rest.job_ms < ahead_ms
        or one.take_back is not None
        or not (one.settled or (one.state is _RUNNING and len(one.slots) <= 1))
    ]
    # `rests` must be None while an allocation is to be taken back. So it is computed only if `stirring` is empty, that is, no allocation
    # may need an order.
    picture.rests = None if stirring or picture.booked is None else rests_of(node.allocations.values())
    return stirring


class View(msgspec.Struct, frozen=True):
    """One node and the tree at the time of a heartbeat. A view is only read."""

    free: Resources
    tags: tuple[str, ...]
    allocations: tuple[Allocation, ...]
    #: The allocations that may need an order. All other allocations continue unchanged.
    restless: Sequence[Allocation]
    #: Resources of the whole tree that no allocation uses.
    free_in_tree: Resources
    #: All resources of the node that the tree may use.
    limits: Resources
    #: Upper bound of the allocations started on one heartbeat; None for as many as fit.
    most_starts: int | None
    #: The tree's minimum: nothing more starts on a node with fewer free resources than these.
    min_spare: Resources
    operations: Mapping[OperationId, Operation]
    pools: PoolStates
    order: LeastSatisfied
    #: Milliseconds until the node's next heartbeat.
    pace_ms: int
    #: CLOCK_BOOTTIME of the node's host at this heartbeat, in milliseconds.
    boottime_ms: int = 0
    #: Operations that this heartbeat changed and that are still at their earlier position in the order.
    moved: Sequence[Operation] = ()
    #: Operations with limits of their own.
    limited: Collection[OperationId] = ()
    #: True if resources are held for a gang, so that all other gangs wait for their turn.
    some_gang_gathers: bool = False
    #: The operation for which the node is reserved.
    reserved: Operation | None = None
    #: If the node is reserved: milliseconds within which a job of another operation must end to use the node's free resources.
    lent_ms: int = 0
    #: Jobs that may start on the node, considering the failures of jobs there.
    allowed: Allowed = ANYTHING
    #: Batches of operations that regular stages consider one after another. Key True: operations of high priority; key False: all others.
    #: Empty if the tree has no batches.
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
        allowed = facts.failing.allowed(node)
        return View(
            free=node.free,
            tags=tuple(node.record.tags),
            allocations=tuple(node.allocations.values()),
            restless=restless(facts, node, pace_ms) if stirring is None else stirring,
            free_in_tree=facts.total - facts.used,
            limits=node.total,
            most_starts=_least(facts.timing.most_starts, allowed.most_starts),
            allowed=allowed,
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
            lent_ms=node.lent_ms,
            batches=batches or {},
        )


def _least(one: int | None, other: int | None) -> int | None:
    """Return the lower of two bounds; None if there is no bound."""
    return min((bound for bound in (one, other) if bound is not None), default=None)


class _Heads:
    """Yields the operations of one pool in order, merged from the pool's sorted lists, and remembers which operations were passed over.

    An operation that was passed over is never yielded again. So a new object is needed once another job class begins to fit.
    """

    __slots__ = ("_heap", "fitting")

    def __init__(self, order: PoolOrder, fitting: int, *, owed_only: bool) -> None:
        self.fitting = fitting
        if owed_only:
            # A pool may have thousands of operations of which none is owed a whole job. A walk over all of them took most of the time of
            # such a heartbeat.
            lists = [iter(order.owed)] if order.owed else []
        else:
            lists = [iter(entries) for bucket, entries in order.buckets.items() if bucket.classes & fitting]
        self._heap: list[tuple[Entry, Iterator[Entry]]] = [(next(entries), entries) for entries in lists]
        heapify(self._heap)

    def __iter__(self) -> Iterator[Entry]:
        """Yield the operations in order. Once the caller takes the next operation, the operation before it is never yielded again."""
        heap = self._heap
        while heap:
            entry, entries = heap[0]
            yield entry
            following = next(entries, None)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (following, entries))


class _Changed(Generic[Child]):
    """The children of one pool that the decision changed: operations or pools.

    The lists of the pool still have these children at the positions that they had before the decision.
    """

    __slots__ = ("_entries", "_places", "moved")

    def __init__(self) -> None:
        #: Position of each child when it was last computed, by name; None if nothing may start.
        self._places: dict[str, Entry | None] = {}
        #: The positions in `_places`, sorted.
        self._entries: list[Entry] = []
        #: Children whose position must be computed again.
        self.moved: dict[str, Child] = {}

    def position(self, name: str) -> Entry | None:
        """Return the position of a child; None if nothing may start or the position must be computed again."""
        return None if name in self.moved else self._places.get(name)

    def among(self, listed: Iterable[Entry], place: Callable[[Child], Entry | None]) -> Iterator[Entry]:
        """Yield the entries of the pool's lists in order, with the changed children at the positions that `place` computes."""
        places, entries = self._places, self._entries
        for name, child in self.moved.items():
            before = places.get(name)
            if before is not None:
                remove_entry(entries, before)
            entry = places[name] = place(child)
            if entry is not None:
                insort(entries, entry)
        self.moved.clear()
        at = 0
        for entry in listed:
            if entry[-1] in places:
                continue
            while at < len(entries) and entries[at] < entry:
                yield entries[at]
                at += 1
            yield entry
        yield from entries[at:]


class Overlay:
    """The view with all changes that the decision in progress has made so far."""

    def __init__(self, view: View) -> None:
        self.view = view
        #: Free resources of the node.
        self.room = view.free
        #: Operations that changed.
        self.touched: dict[OperationId, Operation] = {}
        #: By pool, the amount by which the decision changes the pool's usage.
        self.pools: dict[PoolName, Resources] = {}
        #: The touched operations by their pool, at their new positions.
        self._touched_in: defaultdict[PoolName, _Changed[Operation]] = defaultdict(_Changed)
        #: The changed pools by their parent, at their new positions.
        self._changed_in: defaultdict[PoolName, _Changed[PoolState]] = defaultdict(_Changed)
        self._heads: dict[PoolName, _Heads] = {}
        #: By pool, usage that does not count under the pool's limit, because it may be preempted. Set only under the older victim rules.
        self.going = _NONE_GOING
        #: Allocations that are to be taken back and no longer count as used.
        self.freed: set[Allocation] = set()
        #: True in a preemptive stage, which may exceed limits by their tolerance.
        self.passes_limits = False
        #: True while the decision computes what would be preempted if the pools that only observe preemption allowed it.
        self.observes = False
        #: True if this decision came across an allocation of a pool that only observes preemption.
        self.met_observing_pool = False
        #: Operations that are excluded until the stage is over: of each resource, enough was available for the job that needs least of it,
        #: but no single job fitted.
        self.refused: set[OperationId] = set()
        #: `refusals`: number of all refusals in this decision. `leafless`: number of times that a walk found no operation below a
        #: pool.
        self.refusals = self.leafless = 0
        #: Number of jobs given out, by operation and number of the task, for operations with tasks.
        self.tasks: Counter[tuple[OperationId, int]] = Counter()
        #: The batch of operations that take part; None if all operations do.
        self.batch: Batch | None = None
        #: The job classes that do not take part, as a set with one bit per class.
        self.left_out = 0
        #: True if only operations that are owed another whole job take part.
        self.owed_only = False
        #: The gang that gets its turn by this decision; None if no gang does.
        self.gang: OperationId | None = None
        #: The operation for which the node is reserved, until one of its jobs starts here; for a gang, until all its jobs have resources.
        self.reserved = view.reserved
        self._jobs: dict[OperationId, int] = {}
        #: Number of allocations that this decision starts, by user.
        self._starts_of: Counter[str] = Counter()
        self._held: dict[OperationId, Resources] = {}
        for operation in view.moved:
            self._touch(operation)
        for pool in dict.fromkeys(view.pools.pool(operation.spec.pool) for operation in view.moved):
            for each in pool.path():
                # A pool that is judged by its own satisfaction keeps its position when operations below it move, and so do the pools above
                # it.
                if each.follows_own_satisfaction:
                    break
                self._use(each, ZERO)

    def ready(self, operation: Operation) -> int:
        """Return the number of the operation's jobs that can be given out at once."""
        elsewhere = self.view.allowed.elsewhere.get(operation.id, ())
        return operation.slots.ready_count - len(elsewhere) - self._jobs.get(operation.id, 0)

    def pending(self, operation: Operation) -> int:
        """Return the number of the operation's pending jobs."""
        return operation.slots.pending_count - self._jobs.get(operation.id, 0)

    def held(self, operation: Operation) -> Resources:
        """Return all resources that the operation holds on nodes, with the changes of this decision."""
        return self._held.get(operation.id, operation.held)

    def satisfaction(self, operation: Operation) -> float:
        """Return the operation's usage over its fair share."""
        return satisfaction(operation, self.held(operation))

    def held_back(self, operation: Operation) -> Reason | None:
        """Return the reason for which no more jobs of the operation may start; None if another job may start."""
        tolerant_in = self.view.pools if self.passes_limits else None
        own = held_back(operation, self.ready(operation), self.held(operation), tolerant_in=tolerant_in)
        pools = self.view.pools
        added = {pool.name: added_below(self, pool) for pool in pools.above(operation.spec.pool)}
        return own or pool_limit_reached(operation, pools, added, tolerant=self.passes_limits)

    def entry_applied(self, operation: Operation) -> Entry | None:
        """Return the operation's position after the decision is applied; None if it must be computed again."""
        if operation.kinds or self.held(operation) != operation.held:
            return None
        return self._touched_in[operation.spec.pool].position(operation.id)

    def entry_of_pool(self, pool: PoolState) -> Entry:
        """Return the position of a pool by its own satisfaction."""
        return entry_of_pool(pool, pool.used + self.pools.get(pool.name, ZERO), self.view.pools.total)

    def open(self, pool: PoolState, order: PoolOrder) -> int:
        """Return the classes for which the pool's limit allows one more job."""
        if not pool.limited:
            return ALL_CLASSES
        added = self.pools.get(pool.name)
        if added is None and not self.passes_limits:
            return order.open
        most = pool.limit(self.view.pools.options, tolerant=self.passes_limits)
        return self.view.order.classes.below(most, pool.charged + added_below(self, pool))

    def operations_of(self, order: PoolOrder, fitting: int) -> Iterator[Entry]:
        """Yield the operations of a pool in order. Operations without a job of these classes, and those that `owed_only`
        excludes, may be left out.
        """
        heads = self._heads.get(order.name)
        if heads is None or fitting & ~heads.fitting:
            heads = self._heads[order.name] = _Heads(order, fitting, owed_only=self.owed_only)
        heads.fitting = fitting
        touched = self._touched_in.get(order.name)
        return iter(heads) if touched is None else touched.among(heads, self._entry)

    def pools_of(self, order: PoolOrder, fitting: int) -> Iterable[Entry]:
        """Yield the child pools of a pool in order. Pools without any pending job of these classes may be left out.

        The entry of a changed pool is a lower bound of its position.
        """
        children = order.children_with(fitting)
        self.leafless += len(order.children) - len(children)
        changed = self._changed_in.get(order.name)
        return children if changed is None else changed.among(children, self._earliest)

    def use(self, operation: Operation, amount: Resources, jobs: int = 0, task: int | None = None) -> None:
        """Record that the operation holds `amount` more on this node, and that `jobs` more jobs of the operation (of its task `task`) are
        given out.

        This changes the node's free resources, and the usage of the operation and of all pools above it. The jobs are chosen when the
        decision is applied. A negative amount frees resources: the search for victims frees allocations here to see what fits then.
        """
        if jobs:
            if self.gang is None and waits_for_a_turn(operation) and in_gang(operation, task):
                self.gang = operation.id
            self._jobs[operation.id] = self._jobs.get(operation.id, 0) + jobs
            self._starts_of[operation.user] += amount is not ZERO
            if task is not None:
                self.tasks[operation.id, task] += jobs
            # While the gang still lacks resources for more jobs, the node goes on draining for it.
            if (
                operation is self.reserved
                and amount is not ZERO
                and (operation.gang is None or not self.ready(operation))
            ):
                self.reserved = None
        self.room = self.room - amount
        self._held[operation.id] = self.held(operation) + amount
        self._touch(operation)
        for pool in self.view.pools.pool(operation.spec.pool).path():
            self._use(pool, amount)

    def usage(self, allocation: Allocation) -> Resources:
        """Return the amount that counts as used by an allocation."""
        return ZERO if allocation in self.freed else allocation.usage

    def freed_of(self, operation: Operation) -> list[Allocation]:
        """Return the allocations of an operation that no longer count as used."""
        return [one for one in self.freed if one.operation == operation.id]

    def group(self, operation: Operation, allocation: Allocation) -> Group:
        """Return the group of an allocation. The group depends on the operation's older allocations; freed allocations no longer count
        among these.
        """
        return operation.cut_groups(self.view.pools).group(allocation, self.freed_of(operation))

    def free(self, operation: Operation, allocation: Allocation) -> None:
        """Free an allocation, so that other operations may use its resources at once."""
        self.use(operation, ZERO - allocation.usage)
        self.freed.add(allocation)

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
        """True if the operation is in the present batch, is owed a job if that is required, and does not avoid the node.

        An operation of which only a gang waits takes no part in the turn of another gang.
        """
        if operation in self.view.allowed.avoided:
            return False
        if operation in self.view.allowed.once and self._jobs.get(operation):
            return False
        most = self.view.allowed.most_of_a_user
        if most is not None and self._starts_of and self._starts_of[self.view.operations[operation].user] >= most:
            return False
        if (
            self.gang is not None
            and operation != self.gang
            and starts_only_in_its_turn(self.view.operations[operation])
        ):
            return False
        if self.owed_only:
            known = self.view.operations[operation]
            if not is_owed_a_job(known, self.held(known)):
                return False
        return self.batch is None or operation in self.batch.operations

    def refuse(self, operation: Operation, *, counts: bool = True) -> None:
        """Exclude an operation until the stage is over.

        With `counts` False the exclusion does not count as a refusal, because a job of the operation would fit.
        """
        self.refused.add(operation.id)
        self.refusals += counts
        self._touch(operation)

    def pass_limits(self, passes: bool, going: Mapping[PoolName, Resources] = _NONE_GOING) -> None:
        """Set the rules for limits from now on.

        `passes` is True if limits may be exceeded by their tolerance. `going` is, by pool, the usage that does not count under the pool's
        limit.
        """
        self.passes_limits, self.going = passes, going
        for pool in going:
            # A pool at its limit is not listed in its parent, so it is added here.
            self._use(self.view.pools.pool(pool), ZERO)
        self._begin_stage()

    def keep(self, operation: Operation, allocation: Allocation) -> None:
        """Keep an allocation that was freed before."""
        self.freed.discard(allocation)
        self.use(operation, allocation.usage)

    def _use(self, pool: PoolState, amount: Resources) -> None:
        """Add to the usage of one pool, and have its position computed again."""
        name, above = pool.name, pool.above
        before = self.pools.get(name)
        self.pools[name] = amount if before is None else before + amount
        if above is not None and self.view.order.has_pool(name):
            self._changed_in[above.name].moved[name] = pool

    def _begin_stage(self) -> None:
        """Begin a stage: no operation counts as refused any more, and the operations that earlier stages changed or refused are
        repositioned.
        """
        self.refused.clear()
        for operation in self.touched.values():
            self._touch(operation)

    def _touch(self, operation: Operation) -> None:
        self.touched[operation.id] = operation
        self._touched_in[operation.spec.pool].moved[operation.id] = operation

    def _entry(self, operation: Operation) -> Entry | None:
        """Return the operation's position now; None if it may start nothing.

        An operation that is not in the order stays out of it even if allocations are freed here: its own jobs or limits hold it back.
        """
        view, held = self.view, self.held(operation)
        if operation.id not in view.order or operation.id in self.refused:
            return None
        tolerant_in = view.pools if self.passes_limits else None
        if held_back(operation, self.ready(operation), held, tolerant_in=tolerant_in) is not None:
            return None
        return entry_of(operation, view.pools, held)

    def _earliest(self, pool: PoolState) -> Entry:
        """Return a lower bound of a pool's position.

        A pool that is not judged by its own satisfaction is judged by the operation that would be chosen below it. This may be any
        operation, so the pool's satisfaction is taken to be 0.
        """
        entry = self.entry_of_pool(pool)
        return entry if pool.follows_own_satisfaction else (0.0, *entry[1:])


def ready_tasks(overlay: Overlay, operation: Operation, *, preempts: bool = False) -> Iterator[tuple[int, Task]]:
    """Yield each task of the operation that has jobs to give out at once on the node, with the number of the task.

    The tasks of a gang come by the size of their jobs, the largest first: smaller jobs also fit into what is left. Tasks that do not belong
    to the gang come last. `preempts` is True if allocations are preempted for the job.
    """
    without = overlay.view.allowed.elsewhere.get(operation.id, ())
    tasks = waiting_tasks(operation) if operation.gang is None else _gang_first(overlay, operation, preempts=preempts)
    for number, task in tasks:
        if operation.slots.ready_of(number, without) > overlay.tasks[operation.id, number]:
            yield number, task


def _gang_first(overlay: Overlay, operation: Operation, *, preempts: bool) -> Iterator[tuple[int, Task]]:
    waiting, of_gang = dict(waiting_tasks(operation)), operation.slots.gang_tasks
    if of_gang is None or _gang_may_start(overlay, operation, preempts=preempts):
        order = ready_by_size(operation)
        yield from ((one.task, waiting[one.task]) for one in order if one.task is not None and one.task in waiting)
    if of_gang is not None:
        yield from (each for each in waiting.items() if each[0] not in of_gang)


def _gang_may_start(overlay: Overlay, operation: Operation, *, preempts: bool) -> bool:
    """True if resources may be held for a gang beside which the operation has other jobs.

    For a gang alone the walk down the order answers this.
    """
    view = overlay.view
    if gang_waits(operation) is not None or (preempts and view.pools.options.preempt_gangs_whole):
        return False
    return not waits_for_a_turn(operation) or (not view.some_gang_gathers and overlay.gang in (None, operation.id))


def added_below(overlay: Overlay, pool: PoolState) -> Resources:
    """Return what the decision adds to the usage that counts under the pool's limit.

    The result may be negative, because the usage in `Overlay.going` does not count.
    """
    added = overlay.pools.get(pool.name, ZERO)
    return added - overlay.going[pool.name] if pool.name in overlay.going else added
