"""The allocator's books: nodes, allocations, operations, and sums over them that are kept as they change.

Invariants (`check`): an operation's usage and precommit are the sums over its allocations, a node's over those on it, the tree's over
the online nodes; a slot in an allocation is out by its operation's slots.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from headrace.ids import AllocationId, Incarnation, NodeName, OperationId
from headrace.resources import ZERO, ZERO_SHARE, Resources, Share
from headrace.wire.heartbeat import AllocationState, JobKey, JobSlot, NodeState, Orders, RunningJob, TakeBackReason
from headrace.wire.ledger import LiveOperation
from headrace.wire.nodes import NodeRecord
from headrace.wire.operations import OperationState
from headrace_allocator.facts.limits import Limits
from headrace_allocator.facts.slots import JobSlots

__all__ = ["Allocation", "Books", "Node", "NodeStatus", "OperationBook", "Sent"]

_FORMER_INCARNATIONS: Final = 8


class NodeStatus(enum.StrEnum):
    """What the allocator knows of a node."""

    UNHEARD = "unheard"
    ONLINE = "online"
    OFFLINE = "offline"


class Allocation:
    """A place on a node that an operation owns."""

    def __init__(self, name: AllocationId, operation: OperationId, node: NodeName, resources: Resources) -> None:
        self.id = name
        self.operation = operation
        self.node = node
        self.resources = resources
        #: Jobs given to it that have not ended, running one included.
        self.slots: dict[int, JobSlot] = {}
        #: False until a heartbeat shows it: it counts as precommit.
        self.confirmed = False
        self.state = AllocationState.WAITING
        self.job: RunningJob | None = None
        #: Why it is to be taken back; ordered again with each answer until the node shows it closing.
        self.take_back: TakeBackReason | None = None


class Sent:
    """The answer to a node's newest heartbeat, as far as it must be taken back when it is not obeyed."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders

    @property
    def seq(self) -> int:
        return self.orders.seq


class Node:
    """An enrolled node, or one that reported without being enrolled."""

    def __init__(self, record: NodeRecord, heard_s: float) -> None:
        self.record = record
        self.status = NodeStatus.UNHEARD
        self.incarnation: Incarnation | None = None
        self.former: list[Incarnation] = []
        self.seq = 0
        #: When it was heard last, or when the allocator began to listen for it.
        self.heard_s = heard_s
        #: What it has, as it says; what of it the tree may use.
        self.reported = ZERO
        self.total = ZERO
        #: The tree's node filter leaves it out: it ends what it runs and gets nothing new.
        self.outside = False
        #: Resources of all its allocations.
        self.used = ZERO
        self.allocations: dict[AllocationId, Allocation] = {}
        self.sent: Sent | None = None
        #: Ends told to the ledger, not confirmed yet; and confirmed ones that the node may forget.
        self.reporting: set[JobKey] = set()
        self.recorded: set[JobKey] = set()
        self.nudged = False
        self.state = NodeState.OPEN
        self.isolation = ""
        self.trouble = ""
        self.lease_lost = False

    @property
    def free(self) -> Resources:
        return self.total - self.used

    @property
    def accepts_jobs(self) -> bool:
        return (
            self.status is NodeStatus.ONLINE
            and self.state is NodeState.OPEN
            and not self.record.drained
            and not self.outside
            and not self.trouble
        )

    def new_incarnation(self, incarnation: Incarnation) -> None:
        if self.incarnation is not None:
            self.former = [*self.former[1 - _FORMER_INCARNATIONS :], self.incarnation]
        self.incarnation = incarnation
        self.seq = 0


class OperationBook:
    """An operation as the allocator deals with it."""

    def __init__(self, live: LiveOperation, arrival: int, own_term: int) -> None:
        self.id = live.operation
        self.spec = live.spec
        self.user = live.user
        self.state = live.state
        self.suspended = live.suspended
        self.ends_running_jobs = live.ends_running_jobs
        self.arrival = arrival
        self.slots = JobSlots.from_ledger(live, own_term=own_term)
        self.usage = ZERO
        self.precommit = ZERO
        self.running_jobs = 0
        self.allocations: dict[AllocationId, Allocation] = {}
        self.fair_share: Share = ZERO_SHARE
        self.demand_share: Share = ZERO_SHARE
        #: Mean length of its jobs, a moving average; None before the first ended.
        self.mean_job_ms: float | None = None
        #: A block is being drawn.
        self.drawing = False
        self.fits_somewhere = True
        self.release_told = False

    @property
    def schedulable(self) -> bool:
        return self.state is OperationState.RUNNING and not self.suspended

    @property
    def ending(self) -> bool:
        return self.state in (OperationState.ABORTING, OperationState.FAILING, OperationState.COMPLETING)

    @property
    def taken_back(self) -> TakeBackReason | None:
        """Why all that it holds is to be taken back; None while it may keep it."""
        if self.ending:
            return TakeBackReason.OPERATION_ENDED
        return TakeBackReason.SUSPENDED if self.suspended and self.ends_running_jobs else None

    def note_length(self, ms: int) -> None:
        """A job of it ran for this long."""
        self.mean_job_ms = ms if self.mean_job_ms is None else 0.8 * self.mean_job_ms + 0.2 * ms


class Books:
    """Everything the allocator knows, with the sums that heartbeats need in constant time."""

    def __init__(self) -> None:
        self.nodes: dict[NodeName, Node] = {}
        self.operations: dict[OperationId, OperationBook] = {}
        #: Over online nodes.
        self.total = ZERO
        self.used = ZERO
        #: Operations whose usage item must be published anew.
        self.touched: set[OperationId] = set()
        self.gone: set[OperationId] = set()
        self.limits = Limits()

    def set_total(self, node: Node, status: NodeStatus, reported: Resources) -> bool:
        """A node's status or room; true when the tree's total changed by it. One that is outside has no room for the tree."""
        before = self.total
        node.reported = reported
        total = ZERO if node.outside else reported
        if node.status is NodeStatus.ONLINE:
            self.total, self.used = self.total - node.total, self.used - node.used
        node.status, node.total = status, total
        if status is NodeStatus.ONLINE:
            self.total, self.used = self.total + total, self.used + node.used
        return self.total != before

    def add(self, allocation: Allocation) -> None:
        """A new allocation, ordered or reported."""
        node = self.nodes[allocation.node]
        node.allocations[allocation.id] = allocation
        self._use(node, allocation.resources)
        operation = self.operations.get(allocation.operation)
        if operation is not None:
            operation.allocations[allocation.id] = allocation
            if allocation.confirmed:
                operation.usage = operation.usage + allocation.resources
            else:
                operation.precommit = operation.precommit + allocation.resources
            self.limits.use(operation, allocation.resources)
            self.touched.add(operation.id)

    def confirm(self, allocation: Allocation) -> None:
        """A heartbeat showed it: its precommit becomes usage."""
        if allocation.confirmed:
            return
        allocation.confirmed = True
        operation = self.operations.get(allocation.operation)
        if operation is not None:
            operation.precommit = operation.precommit - allocation.resources
            operation.usage = operation.usage + allocation.resources
            self.touched.add(operation.id)

    def remove(self, allocation: Allocation) -> None:
        """The allocation is no more; its slots must have been dealt with."""
        node = self.nodes[allocation.node]
        del node.allocations[allocation.id]
        self._use(node, ZERO - allocation.resources)
        self.set_job(allocation, None)
        operation = self.operations.get(allocation.operation)
        if operation is not None:
            del operation.allocations[allocation.id]
            if allocation.confirmed:
                operation.usage = operation.usage - allocation.resources
            else:
                operation.precommit = operation.precommit - allocation.resources
            self.limits.free(operation, allocation.resources)
            self.touched.add(operation.id)

    def set_job(self, allocation: Allocation, job: RunningJob | None) -> None:
        """What an allocation runs now."""
        operation = self.operations.get(allocation.operation)
        if operation is not None and (allocation.job is None) != (job is None):
            operation.running_jobs += 1 if job is not None else -1
            self.touched.add(operation.id)
        allocation.job = job

    def check(self) -> list[str]:
        """Broken invariants, in words; empty when all hold."""
        broken = [
            f"node {node.record.node}: used differs from its allocations"
            for node in self.nodes.values()
            if node.used != Resources.sum(one.resources for one in node.allocations.values())
        ]
        for operation in self.operations.values():
            held = list(operation.allocations.values())
            if operation.usage != Resources.sum(one.resources for one in held if one.confirmed):
                broken.append(f"{operation.id}: usage differs from its allocations")
            if operation.precommit != Resources.sum(one.resources for one in held if not one.confirmed):
                broken.append(f"{operation.id}: precommit differs from its allocations")
            if operation.running_jobs != sum(one.job is not None for one in held):
                broken.append(f"{operation.id}: running_jobs differs from its allocations")
            broken += [f"{operation.id}: {what}" for what in operation.slots.check()]
            broken += _check_slots(operation, held)
        online = [node for node in self.nodes.values() if node.status is NodeStatus.ONLINE]
        if self.total != Resources.sum(node.total for node in online):
            broken.append("total differs from the online nodes")
        if self.used != Resources.sum(node.used for node in online):
            broken.append("used differs from the online nodes")
        return broken + self.limits.check(self.operations.values())

    def _use(self, node: Node, resources: Resources) -> None:
        node.used = node.used + resources
        if node.status is NodeStatus.ONLINE:
            self.used = self.used + resources


def _check_slots(operation: OperationBook, held: Iterable[Allocation]) -> list[str]:
    in_allocations: dict[int, int] = {}
    broken: list[str] = []
    for allocation in held:
        for slot in allocation.slots.values():
            if slot.index in in_allocations:
                broken.append(f"{operation.id}: index {slot.index} is in two allocations")
            in_allocations[slot.index] = slot.attempt
    if in_allocations != operation.slots.out:
        broken.append(f"{operation.id}: slots out differ from those in allocations")
    return broken
