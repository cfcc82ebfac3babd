"""Jobs of which nobody knows how they ended, and the reason for which each counts as lost."""

from __future__ import annotations

import msgspec

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.wire.heartbeat import JobKey, JobSlot
from headrace.wire.preemption import PreemptionRecord

__all__ = ["LossReason", "LostJob", "LostNodeInDoubt", "NodeSilent", "UnknownToNode"]


class UnknownToNode(msgspec.Struct, frozen=True, tag="unknown_to_node"):
    """The node's heartbeat does not show the job any more."""


class NodeSilent(msgspec.Struct, frozen=True, tag="node_silent"):
    """The node that ran it lost its lease."""

    lease_s: float


class LostNodeInDoubt(msgspec.Struct, frozen=True, tag="lost_node_in_doubt"):
    """A node that may have run it lost its lease before this allocator heard of it."""


LossReason = UnknownToNode | NodeSilent | LostNodeInDoubt


class LostJob(msgspec.Struct, frozen=True):
    """A job that is told to the ledger as lost."""

    node: NodeName
    operation: OperationId
    slot: JobSlot
    allocation: AllocationId
    why: LossReason
    #: Of a job whose place was preempted before it was lost.
    preemption: PreemptionRecord | None = None

    @property
    def key(self) -> JobKey:
        return JobKey(self.operation, self.slot.index, self.slot.attempt)
