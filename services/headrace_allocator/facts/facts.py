"""Everything the allocator knows of one tree, with exact sums that are read in constant time.

Every change of an allocation goes through this module, because such a change also changes the usage of the allocation's node, of its
operation, and of the pools above the operation.

Invariants (`checks`): the tree's total and its usage are the sums over the online nodes. Nodes, operations and pools have further
invariants of their own.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count, product
from operator import attrgetter
from typing import Final, TypeVar

from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.resources import RESOURCE_NAMES, ZERO, Resources
from headrace.runtime.engine import Check, Moment
from headrace.wire.heartbeat import Heartbeat, JobSlot, RunningJob
from headrace.wire.nodes import NodeRecord
from headrace.wire.operations import OperationSpec
from headrace.wire.snapshots import UsageFrame
from headrace_allocator.changed_operations import Unsettled
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.empty_nodes import EmptyNodes
from headrace_allocator.facts.failing_nodes import FailingNodes
from headrace_allocator.facts.free_resources import FreeResources
from headrace_allocator.facts.node_shapes import NodeShapes, TaggedRooms
from headrace_allocator.facts.nodes import LastHeard, Node, NodeRules, Timing
from headrace_allocator.facts.operations import Operation, charge_doubt, note_in_gang, note_progress
from headrace_allocator.facts.pool_tree import PoolStates
from headrace_allocator.facts.recovery import Recovery
from headrace_allocator.facts.reservations import ReservationEnd, Reservations
from headrace_allocator.gangs.book import Gangs

#: Number of nodes judged in one call after the tree's node rules changed; 50 take about 1 ms.
_FILTERED_AT_ONCE: Final = 50

K = TypeVar("K", NodeName, OperationId)


class Facts:
    """One tree as known to one allocator with one term."""

    def __init__(self, tree: TreeName, term: int, timing: Timing) -> None:
        self.tree = tree
        #: Term of this allocator; 0 while it is a standby.
        self.term = term
        #: True once the ledger has leased job indexes for a later term: another allocator leads and gives out the jobs. Also true while
        #: this allocator stops.
        self.superseded = False
        #: True while an operator has paused starts, or preemption, in the tree.
        self.starts_paused = self.preemption_paused = False
        self.timing = timing
        #: Seconds without a heartbeat after which a node's jobs are given to other nodes. This time is longer than the lease that this
        #: allocator sends if an earlier allocator sent nodes a longer lease.
        self.longest_lease_s = max(timing.node_lease_s, timing.longest_lease_s)
        self.nodes: dict[NodeName, Node] = {}
        self.operations: dict[OperationId, Operation] = {}
        #: The live operations by pool.
        self.in_pool: defaultdict[PoolName, dict[OperationId, Operation]] = defaultdict(dict)
        #: Operations named by the pages of live operations read so far; cleared after the last page.
        self.told: set[OperationId] = set()
        #: Operations with unconfirmed jobs.
        self.doubtful: dict[OperationId, Operation] = {}
        #: Operations that run in several trees.
        self.of_several_trees: dict[OperationId, Operation] = {}
        #: Operations with limits of their own. Most clusters have no such operation; then no time is spent on checking operations' limits
        #: on a heartbeat.
        self.limited: set[OperationId] = set()
        #: Source of arrival numbers: numbers operations in the order in which this allocator learns of them.
        self.arrivals = count(1)
        #: Numbers allocations in the order in which their current progress began (`Position`).
        self._beginnings = count(1)
        self.pools = PoolStates()
        #: Time of the last snapshot of shares, even if nothing in it was new (steady clock, seconds). None before the first snapshot.
        self.shares_heard_s: float | None = None
        self.rooms = FreeResources()
        self.last_heard = LastHeard()
        #: Nodes that are no longer enrolled and may still hold allocations.
        self.leaving: set[NodeName] = set()
        self.recovery = Recovery()
        self.empty_nodes = EmptyNodes()
        #: `total`: resources of all online nodes together; `used`: usage on all of them.
        self.total = self.used = ZERO
        #: Number of online nodes.
        self.online_nodes = 0
        #: Operations whose usage must be published again.
        self.touched: dict[OperationId, None] = {}
        #: Operations that ended since their usage was published.
        self.gone: dict[OperationId, None] = {}
        #: Total of the tree, and whether the usage was complete, as published last.
        self.told_frame = UsageFrame()
        self.unsettled = Unsettled()
        self.gangs = Gangs()
        self.reservations = Reservations()
        self._node_rules = NodeRules()
        #: Nodes that have not been judged yet by the current node rules.
        self.unfiltered: deque[NodeName] = deque()
        #: Tags and sizes of the nodes that accept jobs.
        self.shapes = NodeShapes()
        #: Resources of the online nodes, summed up by tags.
        self.tagged_rooms = TaggedRooms()
        self.failing = FailingNodes(self.nodes, self.operations, self.pools, self.shapes, self.gangs.of)

    def lead(self, term: int, timing: Timing) -> None:
        """Make this allocator the leader with the given term."""
        self.term = term
        self.timing = timing
        self.longest_lease_s = max(timing.node_lease_s, timing.longest_lease_s)

    def shares_are_old(self, now: Moment) -> bool:
        """True if the shares are too old to justify a preemption, because fair_share has been silent for too long."""
        heard_s = self.shares_heard_s
        return heard_s is None or now.steady_s - heard_s > self.timing.shares_count_for_s

    # --- nodes ----------------------------------------------------------------------------------------------------

    def enrol(self, record: NodeRecord, now: Moment) -> bool:
        """Take over the enrolment record of a node.

        Returns True if this changes the tree's resources or which jobs some node admits.
        """
        node = self.nodes.get(record.node)
        if node is None:
            node = self.nodes[record.node] = Node(record, heard_s=now.steady_s)
            self.last_heard.note(node, now)
        self.leaving.discard(record.node)
        retagged = node.record.tags != record.tags
        if record.key != node.record.key:
            # Another agent took the node's name with a new token. Incarnations that the earlier agent reported no longer count.
            node.incarnation = None
        node.record, node.enrolled = record, True
        changed = self._set_room(node)
        changed |= self._note_shape(node)
        self.tagged_rooms.note(node)
        return changed or retagged

    def let_go(self, node: Node) -> bool:
        """Mark a node that is no longer enrolled. It may still hold allocations.

        Returns True if this changes which jobs some node admits.
        """
        node.enrolled = False
        self.leaving.add(node.record.node)
        return self._note_shape(node)

    def remove_node(self, node: Node) -> None:
        """Remove a node that is no longer enrolled and holds nothing."""
        self.set_offline(node)
        self.reservations.end_at(node, ReservationEnd.RELEASED)
        self.failing.clear(node)
        self.rooms.forget(node)
        self.last_heard.forget(node)
        self.empty_nodes.discard(node.record.node)
        self.leaving.discard(node.record.node)
        del self.nodes[node.record.node]

    def set_node_rules(self, rules: NodeRules) -> None:
        """Set the rules by which the tree uses nodes. `filter_nodes` then judges all nodes by them."""
        if rules != self._node_rules:
            self._node_rules = rules
            self.unfiltered = deque(self.nodes)

    def hear(self, node: Node, heartbeat: Heartbeat, now: Moment) -> bool:
        """Take over what a heartbeat reports of its node.

        Returns True if this changes the tree's resources or which jobs some node admits.
        """
        accepted = node.accepts_jobs
        self.failing.now_s = now.steady_s
        node.hear(heartbeat)
        self.last_heard.note(node, now)
        changed = False
        is_settled = node.online and not (self.unfiltered or node.record.drained or node.drained_empty)
        terms = node.record.terms
        reported = heartbeat.total if terms is None else terms.cut(heartbeat.total)
        if not is_settled or node.reported != reported:
            empty = not (heartbeat.allocations or heartbeat.ends or node.allocations or node.reporting)
            changed = self._set_room(node, online=True, reported=reported, empty=empty)
        if accepted != node.accepts_jobs:
            changed |= self._note_shape(node)
        return changed

    def set_offline(self, node: Node) -> bool:
        """Take a silent node's resources out of the total. Returns True if the total changed."""
        return self._set_room(node, online=False)

    # --- allocations ----------------------------------------------------------------------------------------------

    def start(
        self, name: AllocationId, operation: Operation, node: Node, jobs: int, job: Resources, task: int | None = None
    ) -> Allocation:
        """Give out `jobs` jobs of one size in a new allocation. The allocation counts as precommit until a heartbeat shows it.

        In an operation with tasks, `task` is the number of the task to which the jobs belong.
        """
        allocation = Allocation(name, operation.id, node.record.node, job)
        taken = operation.slots.take(jobs, self.failing.kept_from(node, operation), task)
        allocation.slots = {slot.index: slot for slot in taken}
        self.failing.note_start(node, operation)
        self.add(allocation)
        self.reservations.end(operation.id, ReservationEnd.STARTED)
        return allocation

    def extend(self, allocation: Allocation, jobs: int) -> list[JobSlot]:
        """Give out `jobs` further jobs to an existing allocation and return their slots."""
        operation = self.operations[allocation.operation]
        slots = operation.slots.take(jobs, self.failing.kept_from(self.nodes[allocation.node], operation))
        allocation.hold(slots)
        self.touch(allocation.operation)
        return slots

    def add(self, allocation: Allocation, *, since_ms: int | None = None, held: bool = False) -> None:
        """Book a new allocation.

        `since_ms` is given for an allocation that an earlier allocator started: the time at which its running job began. Such allocations
        are sorted before all allocations that this allocator started. `held` is True for resources that are held for a gang.
        """
        node = self.nodes[allocation.node]
        (node.holds if held else node.allocations)[allocation.id] = allocation
        allocation.picture, node.picture.booked = node.picture, None
        operation = self.operations.get(allocation.operation)
        if operation is not None:
            allocation.rest = operation.rest
            operation.allocations[allocation.node, allocation.id] = allocation
            if not allocation.confirmed:
                operation.unconfirmed[allocation] = None
            number = next(self._beginnings)
            operation.groups.add(allocation, (1, 0, number) if since_ms is None else (0, since_ms, number))
            if operation.gang is not None:
                note_in_gang(operation, allocation, allocation.slots)
        self._charge(node, operation, allocation.usage)

    def set_usage(self, allocation: Allocation, usage: Resources) -> None:
        """Change the amount that counts as used by an allocation: on its node, for its operation and for the pools above."""
        before, allocation.usage = allocation.usage, usage
        allocation.picture.rests = None
        operation = self.operations.get(allocation.operation)
        if operation is not None:
            operation.groups.note_usage(allocation, before)
        self._charge(self.nodes[allocation.node], operation, usage - before)

    def confirm(self, allocation: Allocation) -> None:
        """Record that a heartbeat shows the allocation: its precommit becomes usage."""
        if allocation.confirmed:
            return
        allocation.confirmed = True
        operation = self.operations.get(allocation.operation)
        if operation is not None:
            del operation.unconfirmed[allocation]
            self.touch(operation.id)

    def remove(self, allocation: Allocation) -> None:
        """Remove an allocation. Before the call, the caller must have settled the jobs that the allocation still holds."""
        node, operation = self.nodes[allocation.node], self.operations.get(allocation.operation)
        del (node.holds if node.holds.get(allocation.id) is allocation else node.allocations)[allocation.id]
        node.picture.booked = None
        if operation is not None:
            operation.running_jobs -= allocation.job is not None
            note_progress(operation, allocation.job, None)
            del operation.allocations[allocation.node, allocation.id]
            operation.unconfirmed.pop(allocation, None)
            operation.groups.remove(allocation)
            if operation.gang is not None:
                operation.gang.allocations.pop(allocation, None)
        self._charge(node, operation, ZERO - allocation.usage)

    def set_job(self, allocation: Allocation, job: RunningJob | None) -> None:
        """Record the job that an allocation runs now. If the allocation ran another job before, its progress begins anew."""
        operation = self.operations.get(allocation.operation)
        if operation is not None and (allocation.job is None) != (job is None):
            operation.running_jobs += 1 if job is not None else -1
            self.touch(operation.id)
        if job is not None and job.started_at_ms != allocation.progress_started_ms:
            if operation is not None and allocation.progress_started_ms is not None:
                operation.groups.remove(allocation)
                operation.groups.add(allocation, (1, 0, next(self._beginnings)))
            allocation.progress_started_ms = job.started_at_ms
        if operation is not None:
            note_progress(operation, allocation.job, job)
        allocation.job = job

    # --- operations and pools -------------------------------------------------------------------------------------

    def set_spec(self, operation: Operation, spec: OperationSpec) -> None:
        """Set the spec of an operation. If the pool changed, the operation moves to the new pool with all resources that it holds."""
        if spec.pool != operation.spec.pool:
            self._leave_pool(operation)
            self.in_pool[spec.pool][operation.id] = operation
            self.pools.use(spec.pool, operation.held, operation.in_doubt)
        operation.set_spec(spec)
        note_limits(self, operation)

    def note_jobs(self, operation: Operation) -> None:
        """Record that the jobs of an operation changed: publish its usage again and count its unconfirmed jobs under limits."""
        self.touch(operation.id)
        if operation.slots.free is not None:
            self.of_several_trees[operation.id] = operation
        if operation.charged_doubt or operation.slots.in_doubt_count:
            more = charge_doubt(operation)
            if more != ZERO:
                self.pools.use(operation.spec.pool, ZERO, more)
            if operation.charged_doubt:
                self.doubtful[operation.id] = operation
            else:
                self.doubtful.pop(operation.id, None)

    def forget(self, operation: Operation) -> None:
        """Remove an operation that is over. Each of its allocations is removed later, when a node reports that the allocation is gone."""
        del self.operations[operation.id]
        self.doubtful.pop(operation.id, None)
        self.of_several_trees.pop(operation.id, None)
        self.limited.discard(operation.id)
        self.reservations.forget(operation.id)
        self.failing.forget_operation(operation)
        self._leave_pool(operation)
        self.gone[operation.id] = None
        for allocation in operation.allocations.values():
            allocation.orphan()

    # --- checks ---------------------------------------------------------------------------------------------------

    def checks(self) -> Iterator[Check]:
        """Yield the checks of each node, each operation, the totals and each pool."""
        for name in list(self.nodes):
            yield partial(_check, self.nodes, name)
        for operation in list(self.operations):
            yield partial(_check, self.operations, operation)
        for node in list(self.nodes.values()):
            yield partial(self.rooms.check, node)
            yield partial(self.shapes.check, node)
            yield partial(self.tagged_rooms.check, node)
            yield partial(self.failing.check, node)
        yield from self.last_heard.checks()
        yield from (self._check_online, self._check_used, self._check_limited)
        yield from (self.gangs.check, self.reservations.check)
        # One resource per check: with 10,000 nodes the sum of one resource takes some 3 ms.
        yield from (partial(self._check_total, resource) for resource in RESOURCE_NAMES)
        for pool, resource in product(self.pools.known, RESOURCE_NAMES):
            yield partial(self._check_pool, pool, resource)

    def _check_online(self) -> list[str]:
        online = sum(node.online for node in self.nodes.values())
        return [] if self.online_nodes == online else ["online_nodes differs from the number of online nodes"]

    def _check_limited(self) -> list[str]:
        limited = {name for name, operation in self.operations.items() if operation.limited}
        return [] if self.limited == limited else ["limited differs from the operations with limits"]

    def _check_used(self) -> list[str]:
        # The sums are read from the table of free resources, since reading 10,000 nodes takes 9 ms. Other checks compare each node with the
        # table.
        sums = zip(RESOURCE_NAMES, self.rooms.online().as_tuple(), (self.total - self.used).as_tuple(), strict=True)
        return [
            f"used {resource} differs from the sum over the online nodes"
            for resource, room, free in sums
            if room != free
        ]

    def _check_total(self, resource: str) -> list[str]:
        amount, broken = attrgetter(resource), []
        if amount(self.total) != sum(amount(room) for room in self.tagged_rooms.of.values()):
            broken.append(f"total {resource} differs from the sum of the resources by tags")
        if amount(self.total) != sum(amount(node.total) for node in self.nodes.values()):
            broken.append(f"total {resource} differs from the sum over the nodes")
        return broken

    def _check_pool(self, pool: PoolName, resource: str) -> list[str]:
        operations = self.in_pool.get(pool, {}).values()
        in_doubt = (each.in_doubt for each in operations if each.charged_doubt)
        return self.pools.check(pool, resource, map(attrgetter("held"), operations), in_doubt)

    def _leave_pool(self, operation: Operation) -> None:
        pool = operation.spec.pool
        self.pools.use(pool, ZERO - operation.held, ZERO - operation.in_doubt)
        self.in_pool[pool].pop(operation.id)
        if not self.in_pool[pool]:
            del self.in_pool[pool]

    def touch(self, operation: OperationId) -> None:
        """Record that something of the operation changed, so that its usage is published again and the operation is settled again."""
        self.touched[operation] = None
        self.unsettled.note(operation)
        self.gangs.note(operation)

    def _set_room(
        self, node: Node, *, online: bool | None = None, reported: Resources | None = None, empty: bool | None = None
    ) -> bool:
        """Update the resources that a node offers; None keeps the present amount. Returns True if the tree's total or the node shapes
        changed.
        """
        online = node.online if online is None else online
        empty = node.drained_empty if empty is None else empty
        reported = node.reported if reported is None else reported
        outside, drained_empty = node.left_out_by(self._node_rules), node.record.drained and empty
        now = (online, outside, drained_empty, reported)
        if now == (node.online, node.outside, node.drained_empty, node.reported):
            return False
        before = self.total
        self._count(node, -1)
        node.set_room(reported, online=online, outside=outside, drained_empty=drained_empty)
        self._count(node, 1)
        changed = self.shapes.note(node)
        self.tagged_rooms.note(node)
        return changed or self.total != before

    def _note_shape(self, node: Node) -> bool:
        self.rooms.note(node)
        return self.shapes.note(node)

    def _count(self, node: Node, times: int) -> None:
        self.rooms.note(node)
        if node.online:
            self.total = self.total + node.total * times
            self.used = self.used + node.used * times
            self.online_nodes += times

    def _charge(self, node: Node, operation: Operation | None, amount: Resources) -> None:
        """Add an amount to the usage of a node, of an operation and of the pools above the operation."""
        node.used = node.used + amount
        self.rooms.note(node)
        if node.online:
            self.used = self.used + amount
        if operation is not None:
            operation.held = operation.held + amount
            self.pools.use(operation.spec.pool, amount)
            self.touch(operation.id)


def note_limits(facts: Facts, operation: Operation) -> None:
    """Record whether the operation has limits of its own."""
    (facts.limited.add if operation.limited else facts.limited.discard)(operation.id)


def filter_nodes(facts: Facts) -> bool:
    """Judge some nodes by the node rules that changed. Returns True if the tree's total or the node shapes changed."""
    names = [facts.unfiltered.popleft() for _ in range(min(_FILTERED_AT_ONCE, len(facts.unfiltered)))]
    return any([facts._set_room(node) for name in names if (node := facts.nodes.get(name)) is not None])


def _check(of: Mapping[K, Node] | Mapping[K, Operation], name: K) -> list[str]:
    one = of.get(name)
    return [] if one is None else one.check()
