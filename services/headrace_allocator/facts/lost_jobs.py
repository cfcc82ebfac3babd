"""Ends of jobs that no node reports: jobs whose end is unknown, and jobs that never began."""

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

#: Upper bound of the unconfirmed jobs that are reported lost at once.
_MOST_LOST: Final = 1_000


class UnknownToNode(msgspec.Struct, frozen=True, tag="unknown_to_node"):
    """The node's heartbeat no longer shows the job."""

    #: False if no heartbeat showed that the job began.
    has_begun: bool = True


class NodeSilent(msgspec.Struct, frozen=True, tag="node_silent"):
    """The node that ran the job lost its lease."""

    lease_s: float


class LostNodeInDoubt(msgspec.Struct, frozen=True, tag="lost_node_in_doubt"):
    """A node that may have run the job lost its lease before this allocator received a heartbeat of it."""


class PlaceTaken(msgspec.Struct, frozen=True, tag="place_taken"):
    """The allocation was preempted before the job began.

    The job's end is recorded as if the job had run, so that the operation's history shows the preemption.
    """


LossReason = UnknownToNode | NodeSilent | LostNodeInDoubt | PlaceTaken


class LostJob(msgspec.Struct, frozen=True):
    """A job whose end the allocator itself reports to the ledger."""

    node: NodeName
    operation: OperationId
    slot: JobSlot
    allocation: AllocationId
    why: LossReason
    #: Record of the preemption of the job's allocation; None if the allocation was not preempted.
    preemption: PreemptionRecord | None = None
    #: Record of the start of the job's allocation; None if it is unknown.
    start: StartRecord | None = None
    #: Unix time in milliseconds at which the job began, as its node reported it; 0 if unknown.
    started_at_ms: int = 0

    @property
    def result(self) -> JobResult:
        return JobResult.ABORTED if isinstance(self.why, PlaceTaken) else JobResult.LOST

    @property
    def key(self) -> JobKey:
        return JobKey(self.operation, self.slot.index, self.slot.attempt)


def lost_in(allocation: Allocation, slot: JobSlot, why: LossReason) -> LostJob:
    """Return a lost job with the facts about its allocation."""
    job = allocation.job
    began_ms = job.started_at_ms if job is not None and (job.index, job.attempt) == (slot.index, slot.attempt) else 0
    told = allocation.preemption, allocation.start, began_ms
    return LostJob(allocation.node, allocation.operation, slot, allocation.id, why, *told)


def lose(facts: Facts, node: Node, allocation: Allocation, slots: Iterable[JobSlot], why: LossReason) -> list[LostJob]:
    """Take slots out of an allocation because no node will report their ends. Returns the lost jobs."""
    operation = facts.operations.get(allocation.operation)
    lost: list[LostJob] = []
    for slot in list(slots):
        allocation.drop(slot.index)
        lost.append(lost_in(allocation, slot, why))
        node.reporting.add(lost[-1].key)
        if operation is not None:
            if operation.slots.is_of_gang(slot.index):
                break_up(operation)
            operation.slots.end(slot.index, slot.attempt)
    return lost


def lose_node(facts: Facts, node: Node, lease_s: float, *, for_good: bool) -> list[LostJob]:
    """Remove all jobs from a node whose lease is over: the node's runner has ended the jobs, so other nodes may run them. Returns the lost
    jobs.

    Operations that wait for lost nodes keep their allocations, unless the node is gone `for_good`.
    """
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
    """Settle the unconfirmed jobs of these operations after recovery, when no node holds the jobs. Returns the lost jobs.

    If no node lost its lease, the jobs are ready again. If a node that may have run the jobs lost its lease, the jobs are lost: the ledger
    must durably record another attempt before such a job is given out again. Jobs of an operation that waits for lost nodes stay
    unconfirmed while such a node may come back.
    """
    lost: list[LostJob] = []
    for operation in operations:
        if not facts.recovery.lost_nodes:
            operation.slots.release_doubt()
            continue
        if operation.waits_for_lost_nodes and facts.recovery.some_may_return:
            continue
        node = next(iter(facts.recovery.lost_nodes))
        # There may be very many unconfirmed jobs. Jobs beyond the bound stay unconfirmed until the next call.
        for slot in operation.slots.in_doubt(_MOST_LOST - len(lost)):
            lost.append(LostJob(node, operation.id, slot, AllocationId("unknown"), LostNodeInDoubt()))
            facts.recovery.unrecorded_losses.add(lost[-1].key)
            operation.slots.end(slot.index, slot.attempt)
    return lost
