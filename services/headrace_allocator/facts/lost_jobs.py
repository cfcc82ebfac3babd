"""Ends of jobs that no node reports: those of which nobody knows how they ended, and those that never began."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.wire.heartbeat import JobKey, JobResult, JobSlot
from headrace.wire.preemption import PreemptionRecord
from headrace.wire.start_stages import StartRecord
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation, break_up

#: Jobs in doubt that are given up as lost at once.
_MOST_LOST: Final = 1_000


class UnknownToNode(msgspec.Struct, frozen=True, tag="unknown_to_node"):
    """The node's heartbeat does not show the job any more."""

    #: False if none showed that it began, either.
    has_begun: bool = True


class NodeSilent(msgspec.Struct, frozen=True, tag="node_silent"):
    """The node that ran it lost its lease."""

    lease_s: float


class LostNodeInDoubt(msgspec.Struct, frozen=True, tag="lost_node_in_doubt"):
    """A node that may have run it lost its lease before this allocator heard of it."""


class PlaceTaken(msgspec.Struct, frozen=True, tag="place_taken"):
    """Its place was preempted before it began. That the history of its operation shows it, it ends as a job that ran does."""


LossReason = UnknownToNode | NodeSilent | LostNodeInDoubt | PlaceTaken


class LostJob(msgspec.Struct, frozen=True):
    """A job whose end is told to the ledger by the allocator itself."""

    node: NodeName
    operation: OperationId
    slot: JobSlot
    allocation: AllocationId
    why: LossReason
    #: Of a job whose place was preempted before it was lost.
    preemption: PreemptionRecord | None = None
    #: How its allocation got its place.
    start: StartRecord | None = None

    @property
    def result(self) -> JobResult:
        return JobResult.ABORTED if isinstance(self.why, PlaceTaken) else JobResult.LOST

    @property
    def key(self) -> JobKey:
        return JobKey(self.operation, self.slot.index, self.slot.attempt)


def lost_in(allocation: Allocation, slot: JobSlot, why: LossReason) -> LostJob:
    """A job that was lost with all that is known of its place."""
    told = allocation.preemption, allocation.start
    return LostJob(allocation.node, allocation.operation, slot, allocation.id, why, *told)


def lose(facts: Facts, node: Node, allocation: Allocation, slots: Iterable[JobSlot], why: LossReason) -> list[LostJob]:
    """Takes slots out of an allocation, whose ends no node reports."""
    operation = facts.operations.get(allocation.operation)
    lost: list[LostJob] = []
    for slot in list(slots):
        allocation.drop(slot.index)
        lost.append(lost_in(allocation, slot, why))
        node.reporting.add(lost[-1].key)
        if operation is not None:
            break_up(operation)
            operation.slots.end(slot.index, slot.attempt)
    return lost


def lose_node(facts: Facts, node: Node, lease_s: float, *, for_good: bool) -> list[LostJob]:
    """The node's lease is over: its runner has ended all jobs, others may run them. Nobody waits for one that is gone for good."""
    lost: list[LostJob] = []
    for allocation in list(node.allocations.values()):
        operation = facts.operations.get(allocation.operation)
        if operation is not None and operation.waits_for_lost_nodes and not for_good:
            continue
        lost += lose(facts, node, allocation, allocation.slots.values(), NodeSilent(lease_s))
        facts.remove(allocation)
    node.sent = None
    return lost


def lose_doubtful(facts: Facts, operations: Iterable[Operation]) -> list[LostJob]:
    """Settles the jobs in doubt of these operations once recovering is over: nobody holds them.

    If a node that may have run them lost its lease, the next attempt must be another one, durably, before it goes out, or they stay
    in doubt, if their operation waits for such nodes.
    """
    lost: list[LostJob] = []
    for operation in operations:
        if not facts.recovery.lost_nodes:
            operation.slots.release_doubt()
            continue
        if operation.waits_for_lost_nodes and facts.recovery.some_may_return:
            continue
        node = next(iter(facts.recovery.lost_nodes))
        # Very many may be in doubt: the others stay so until the next time.
        for slot in operation.slots.in_doubt(_MOST_LOST - len(lost)):
            lost.append(LostJob(node, operation.id, slot, AllocationId("unknown"), LostNodeInDoubt()))
            facts.recovery.unrecorded_losses.add(lost[-1].key)
            operation.slots.end(slot.index, slot.attempt)
    return lost
