"""Ends of jobs that no node reports: those of which nobody knows how they ended, and those that never began."""

from __future__ import annotations

import msgspec

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.wire.heartbeat import JobKey, JobResult, JobSlot
from headrace.wire.preemption import PreemptionRecord
from headrace.wire.start_stages import StartRecord
from headrace_allocator.facts.allocations import Allocation


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
