"""Everything the allocator knows of one tree, with sums that are exact and read in constant time.

Every change of an allocation goes through here, since it changes its node, its operation and the limits above. Invariants (`checks`):
the tree's total and what is used of it are the sums over the online nodes. See also those of nodes, operations and limits.
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
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.empty_nodes import EmptyNodes
from headrace_allocator.facts.node_shapes import NodeShapes, TaggedRooms
from headrace_allocator.facts.nodes import LastHeard, Node, NodeRules, Timing
from headrace_allocator.facts.operations import Operation, note_progress
from headrace_allocator.facts.pool_tree import PoolTree
from headrace_allocator.facts.recovery import Recovery
from headrace_allocator.facts.reservations import ReservationEnd, Reservations
from headrace_allocator.facts.rooms import Rooms
from headrace_allocator.gangs.book import Gangs
from headrace_allocator.unsettled import Unsettled

#: Nodes that are judged at once by rules that changed, a millisecond.
_FILTERED_AT_ONCE: Final = 50

K = TypeVar("K", NodeName, OperationId)


class Facts:
    """One tree as one allocator of one term knows it."""

    def __init__(self, tree: TreeName, term: int, timing: Timing) -> None:
        self.tree = tree
        #: 0 while another allocator leads.
        self.term = term
        #: True once the ledger told of jobs drawn by a later term: another allocator leads, and gives them out.
        self.superseded = False
        #: True while an operator lets no job start.
        self.starts_paused = False
        #: True while an operator lets nothing be taken for others.
        self.preemption_paused = False
        self.timing = timing
        #: No heartbeat for this long: a node's jobs are given to others. Longer than ours where a former allocator told a longer one.
        self.longest_lease_s = max(timing.node_lease_s, timing.longest_lease_s)
        self.nodes: dict[NodeName, Node] = {}
        self.operations: dict[OperationId, Operation] = {}
        #: The same by pool.
        self.in_pool: defaultdict[PoolName, dict[OperationId, Operation]] = defaultdict(dict)
        #: Operations that the pages of everything live told of, until the last page.
        self.told: set[OperationId] = set()
        #: Operations with jobs in doubt; those whose jobs other trees run as well.
        self.doubtful: dict[OperationId, Operation] = {}
        self.of_several_trees: dict[OperationId, Operation] = {}
        #: Operations with limits of their own. Most clusters have none, and then no heartbeat asks its allocations for theirs.
        self.limited: set[OperationId] = set()
        #: Numbers operations in the order in which they are heard of.
        self.arrivals = count(1)
        #: Numbers allocations in the order in which their progress began.
        self._beginnings = count(1)
        self.pools = PoolTree()
        #: When the last snapshot of shares came, even one with nothing new.
        self.shares_heard_s: float | None = None
        self.rooms = Rooms()
        self.last_heard = LastHeard()
        #: Nodes that are enrolled no more, and may still hold something.
        self.leaving: set[NodeName] = set()
        self.recovery = Recovery()
        self.empty_nodes = EmptyNodes()
        #: Over online nodes.
        self.total = ZERO
        self.used = ZERO
        self.online_nodes = 0
        #: Operations whose usage must be published anew; those that are gone since it was published.
        self.touched: dict[OperationId, None] = {}
        self.gone: dict[OperationId, None] = {}
        #: The tree as a whole, as it was published last.
        self.told_frame = UsageFrame()
        self.unsettled = Unsettled()
        self.gangs = Gangs()
        self.reservations = Reservations()
        self._node_rules = NodeRules()
        #: Nodes that were not judged by the node filter since it changed.
        self.unfiltered: deque[NodeName] = deque()
        #: Tags and sizes of nodes that accept jobs.
        self.shapes = NodeShapes()
        self.tagged_rooms = TaggedRooms()

    def lead(self, term: int, timing: Timing) -> None:
        """This allocator leads with that term."""
        self.term = term
        self.timing = timing
        self.longest_lease_s = max(timing.node_lease_s, timing.longest_lease_s)

    def shares_are_old(self, moment: Moment) -> bool:
        """True if nobody may lose a place by the shares that are known: fair_share has been silent for too long."""
        heard_s = self.shares_heard_s
        return heard_s is None or moment.steady_s - heard_s > self.timing.shares_count_for_s

    # --- nodes ----------------------------------------------------------------------------------------------------

    def enrol(self, record: NodeRecord, moment: Moment) -> bool:
        """Notes what is enrolled of a node. True if the tree's room changed by it, or which jobs some node admits."""
        node = self.nodes.get(record.node)
        if node is None:
            node = self.nodes[record.node] = Node(record, heard_s=moment.steady_s)
            self.last_heard.note(node, moment)
        self.leaving.discard(record.node)
        retagged = node.record.tags != record.tags
        if record.key != node.record.key:
            # Another agent has the name by a new token. Lives that the former holder of the name claimed do not count.
            node.incarnation = None
        node.record, node.enrolled = record, True
        changed = self._set_room(node)
        changed |= self._note_shape(node)
        self.tagged_rooms.note(node)
        return changed or retagged

    def let_go(self, node: Node) -> bool:
        """The node is enrolled no more, and may still hold something. True if other jobs are admitted by some node than before."""
        node.enrolled = False
        self.leaving.add(node.record.node)
        return self._note_shape(node)

    def remove_node(self, node: Node) -> None:
        """The node is enrolled no more and holds nothing."""
        self.set_offline(node)
        if node.reserved is not None:
            self.reservations.end(node.reserved.operation, ReservationEnd.RELEASED)
        self.rooms.forget(node)
        self.last_heard.forget(node)
        self.empty_nodes.discard(node.record.node)
        self.leaving.discard(node.record.node)
        del self.nodes[node.record.node]

    def set_node_rules(self, rules: NodeRules) -> None:
        """The tree uses nodes that meet these rules. `filter_nodes` judges all of them."""
        if rules != self._node_rules:
            self._node_rules = rules
            self.unfiltered = deque(self.nodes)

    def hear(self, node: Node, heartbeat: Heartbeat, moment: Moment) -> bool:
        """Notes what a heartbeat says of its node. True if the tree's room changed by it, or which jobs some node admits."""
        accepted = node.accepts_jobs
        node.hear(heartbeat)
        self.last_heard.note(node, moment)
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
        """The node fell silent: its room leaves the total. True if there was any."""
        return self._set_room(node, online=False)

    # --- allocations ----------------------------------------------------------------------------------------------

    def start(self, name: AllocationId, operation: Operation, node: Node, jobs: int, job: Resources) -> Allocation:
        """Gives out so many jobs of one size in a new allocation, which is precommit until a heartbeat shows it."""
        for group in operation.task_groups:
            if group.job == job and group.pending:
                group.pending -= 1
                operation.set_task_groups(operation.task_groups)
                break
        allocation = Allocation(name, operation.id, node.record.node, job)
        allocation.slots = {slot.index: slot for slot in operation.slots.take(jobs)}
        self.add(allocation)
        self.reservations.end(operation.id, ReservationEnd.STARTED)
        return allocation

    def extend(self, allocation: Allocation, jobs: int) -> list[JobSlot]:
        """Gives out so many more jobs in an allocation that lives."""
        slots = self.operations[allocation.operation].slots.take(jobs)
        allocation.hold(slots)
        self.touch(allocation.operation)
        return slots

    def add(self, allocation: Allocation, *, since_ms: int | None = None, held: bool = False) -> None:
        """A new allocation. One that is older than this allocator has its progress `since_ms`, and comes before all others."""
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
        self._charge(node, operation, allocation.usage)

    def set_usage(self, allocation: Allocation, usage: Resources) -> None:
        """Counts another amount as used by it: on its node, for its operation and under the limits above."""
        before, allocation.usage = allocation.usage, usage
        allocation.picture.rests = None
        operation = self.operations.get(allocation.operation)
        if operation is not None:
            operation.groups.note_usage(allocation, before)
        self._charge(self.nodes[allocation.node], operation, usage - before)

    def confirm(self, allocation: Allocation) -> None:
        """A heartbeat showed it: its precommit becomes usage."""
        if allocation.confirmed:
            return
        allocation.confirmed = True
        operation = self.operations.get(allocation.operation)
        if operation is not None:
            del operation.unconfirmed[allocation]
            self.touch(operation.id)

    def remove(self, allocation: Allocation) -> None:
        """The allocation is no more. Its slots must have been dealt with."""
        node, operation = self.nodes[allocation.node], self.operations.get(allocation.operation)
        del (node.holds if node.holds.get(allocation.id) is allocation else node.allocations)[allocation.id]
        node.picture.booked = None
        if operation is not None:
            operation.running_jobs -= allocation.job is not None
            note_progress(operation, allocation.job, None)
            del operation.allocations[allocation.node, allocation.id]
            operation.unconfirmed.pop(allocation, None)
            operation.groups.remove(allocation)
        self._charge(node, operation, ZERO - allocation.usage)

    def set_job(self, allocation: Allocation, job: RunningJob | None) -> None:
        """Notes the job that an allocation runs now. With a new one after another its progress begins anew."""
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
        """The operation has this spec from now on. In another pool it stands with all that it holds."""
        if spec.pool != operation.spec.pool:
            self._leave_pool(operation)
            self.in_pool[spec.pool][operation.id] = operation
            self.pools.use(spec.pool, operation.held, operation.in_doubt)
        operation.set_spec(spec)
        note_limits(self, operation)

    def note_jobs(self, operation: Operation) -> None:
        """Its jobs changed: its usage is told anew, and limits are charged with those in doubt."""
        self.touch(operation.id)
        if operation.slots.free is not None:
            self.of_several_trees[operation.id] = operation
        if operation.charged_doubt != operation.slots.in_doubt_count:
            before, operation.charged_doubt = operation.in_doubt, operation.slots.in_doubt_count
            self.pools.use(operation.spec.pool, ZERO, operation.in_doubt - before)
            if operation.charged_doubt:
                self.doubtful[operation.id] = operation
            else:
                del self.doubtful[operation.id]

    def forget(self, operation: Operation) -> None:
        """The operation is over. What still stands of it on nodes goes as they report."""
        del self.operations[operation.id]
        self.doubtful.pop(operation.id, None)
        self.of_several_trees.pop(operation.id, None)
        self.limited.discard(operation.id)
        self.reservations.forget(operation.id)
        self._leave_pool(operation)
        self.gone[operation.id] = None
        for allocation in operation.allocations.values():
            allocation.orphan()

    # --- checks ---------------------------------------------------------------------------------------------------

    def checks(self) -> Iterator[Check]:
        """Each node, each operation, the totals, each pool."""
        for name in list(self.nodes):
            yield partial(_check, self.nodes, name)
        for operation in list(self.operations):
            yield partial(_check, self.operations, operation)
        for node in list(self.nodes.values()):
            yield partial(self.rooms.check, node)
            yield partial(self.shapes.check, node)
            yield partial(self.tagged_rooms.check, node)
        yield from self.last_heard.checks()
        yield from (self._check_online, self._check_used, self._check_limited)
        yield from (self.gangs.check, self.reservations.check)
        # One resource each: at 10,000 nodes the sum of one takes some 3 ms.
        yield from (partial(self._check_total, resource) for resource in RESOURCE_NAMES)
        for pool, resource in product(self.pools.known, RESOURCE_NAMES):
            yield partial(self._check_pool, pool, resource)

    def _check_online(self) -> list[str]:
        online = sum(node.online for node in self.nodes.values())
        return [] if self.online_nodes == online else ["online_nodes differs from the online nodes"]

    def _check_limited(self) -> list[str]:
        limited = {name for name, operation in self.operations.items() if operation.limited}
        return [] if self.limited == limited else ["limited differs from the operations with limits"]

    def _check_used(self) -> list[str]:
        # From the table, in which each node is checked: at 10,000 nodes a look at each takes 9 ms.
        sums = zip(RESOURCE_NAMES, self.rooms.online().as_tuple(), (self.total - self.used).as_tuple(), strict=True)
        return [f"used {resource} differs from the online nodes" for resource, room, free in sums if room != free]

    def _check_total(self, resource: str) -> list[str]:
        amount, broken = attrgetter(resource), []
        if amount(self.total) != sum(amount(room) for room in self.tagged_rooms.of.values()):
            broken.append(f"total {resource} differs from the rooms by tags")
        if amount(self.total) != sum(amount(node.total) for node in self.nodes.values()):
            broken.append(f"total {resource} differs from the nodes")
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
        """Something of the operation changed."""
        self.touched[operation] = None
        self.unsettled.note(operation)
        self.gangs.note(operation)

    def _set_room(
        self, node: Node, *, online: bool | None = None, reported: Resources | None = None, empty: bool | None = None
    ) -> bool:
        """Notes a node's room as it is now, None for what is as before. True if the total or the shapes of nodes changed by it."""
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
        """Adds to what is held on a node, by an operation and under the limits above."""
        node.used = node.used + amount
        self.rooms.note(node)
        if node.online:
            self.used = self.used + amount
        if operation is not None:
            operation.held = operation.held + amount
            self.pools.use(operation.spec.pool, amount)
            self.touch(operation.id)


def note_limits(facts: Facts, operation: Operation) -> None:
    """Notes whether the operation has limits of its own."""
    (facts.limited.add if operation.limited else facts.limited.discard)(operation.id)


def filter_nodes(facts: Facts) -> bool:
    """Judges some nodes by rules that changed. True if the tree's room changed by it."""
    names = [facts.unfiltered.popleft() for _ in range(min(_FILTERED_AT_ONCE, len(facts.unfiltered)))]
    return any([facts._set_room(node) for name in names if (node := facts.nodes.get(name)) is not None])


def _check(of: Mapping[K, Node] | Mapping[K, Operation], name: K) -> list[str]:
    one = of.get(name)
    return [] if one is None else one.check()
