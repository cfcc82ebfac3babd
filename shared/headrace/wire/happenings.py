"""Happenings: the history of an operation, and the stream that people follow.

Admission tells from its log what is durable: steps of an operation, and runs of jobs that ended, with the record of a preemption where
one ended them. The allocator tells of each decision when it makes it, and fair_share's snapshots tell who starves.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.resources import Finite, Share
from headrace.wire.heartbeat import LARGEST_ALLOCATION_JOBS, JobResult, JobSlot
from headrace.wire.log import (
    Event,
    JobsEnded,
    LoggedEnd,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    ParametersChanged,
    Published,
)
from headrace.wire.operations import OperationState
from headrace.wire.preemption import PreemptionRecord
from headrace.wire.snapshots import ElementKind, StarvationReason, StarvationStatus
from headrace.wire.start_stages import StartStage
from headrace.wire.version import Counter, Term

#: Of one message.
MOST_DECISIONS: Final = 80


class OperationStep(msgspec.Struct, frozen=True, tag="operation"):
    """An operation was started, or came into another state."""

    at_ms: Counter
    operation: OperationId
    state: OperationState
    #: Such as `started` or `jobs_done`.
    cause: str
    reason: str = ""
    #: Where it was started, or the pool whose limit holds it back.
    pool: PoolName = PoolName("")
    user: str = ""


class OperationChanged(msgspec.Struct, frozen=True, tag="operation_changed"):
    """An operation was suspended, resumed, moved, or got another weight. What did not change is null."""

    at_ms: Counter
    operation: OperationId
    suspended: bool | None = None
    pool: PoolName | None = None
    weight: Finite | None = None


class JobEnded(msgspec.Struct, frozen=True, tag="job_ended", omit_defaults=True):
    """A run of a job is over and recorded."""

    at_ms: Counter
    operation: OperationId
    slot: JobSlot
    node: NodeName | str
    allocation: AllocationId
    started_at_ms: Counter
    result: JobResult
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    #: The job is to run again.
    runs_again: bool = False
    #: Of one that ended after it was told that its place is preempted.
    preemption: PreemptionRecord | None = None
    #: How its allocation got its place, as `AllocationStarted` says it. Null where the log does not have it, as from former versions.
    stage: StartStage | None = None
    share_before: Share | None = None
    fair_share: Share | None = None
    places_taken: Counter | None = None

    @property
    def ran_ms(self) -> int | None:
        """Milliseconds that it ran. None of one that never began, or of which nobody knows when it did."""
        return max(0, self.at_ms - self.started_at_ms) if self.started_at_ms else None


class AllocationStarted(msgspec.Struct, frozen=True, gc=False, tag="allocation_started"):
    """The allocator gave an operation a place on a node. A history makes one of each job that runs."""

    at_ms: Counter
    tree: TreeName
    operation: OperationId
    node: NodeName
    allocation: AllocationId
    slots: Annotated[list[JobSlot], msgspec.Meta(max_length=LARGEST_ALLOCATION_JOBS)]
    #: The stage of the heartbeat that gave it; null where that is not known.
    stage: StartStage | None = None
    #: The shares of the operation at that moment: what it used without this place, and what it was owed. Null where nobody kept them.
    share_before: Share | None = None
    fair_share: Share | None = None
    #: The number of places of others that were taken for it.
    places_taken: Counter = 0


class AllocationPreempted(msgspec.Struct, frozen=True, tag="allocation_preempted"):
    """The allocator took a place of an operation back for another, or for a limit."""

    tree: TreeName
    #: The operation that loses the place.
    operation: OperationId
    pool: PoolName
    node: NodeName
    allocation: AllocationId
    #: The job that ran there, or was to.
    slot: JobSlot | None
    record: PreemptionRecord


class StarvationChanged(msgspec.Struct, frozen=True, tag="starvation_changed"):
    """A pool or operation began to starve, starves otherwise, or does not starve any more."""

    at_ms: Counter
    tree: TreeName
    kind: ElementKind
    name: str
    parent: PoolName
    status: StarvationStatus
    reason: StarvationReason = StarvationReason.NONE


class Missed(msgspec.Struct, frozen=True, tag="missed"):
    """Something happened that could not be told: the reader was too slow, or the bus was away."""

    at_ms: Counter
    #: `admission`, `allocator` or `fair_share`.
    of: str
    tree: TreeName
    #: Entries of the log, or decisions; null where nobody counted.
    count: Counter | None = None


Happening = (
    OperationStep | OperationChanged | JobEnded | AllocationStarted | AllocationPreempted | StarvationChanged | Missed
)


class Recorded(msgspec.Struct, frozen=True):
    """admission → whoever follows: what happened by an entry of the log. `headrace.wire.log.Published` has its other fields."""

    tree: TreeName
    term: Term
    sequence: Counter
    previous: Counter
    happenings: list[OperationStep | OperationChanged | JobEnded] = []
    announced: Counter = 0


class Decisions(msgspec.Struct, frozen=True):
    """allocator → whoever follows: its decisions since the message before. With none it is not sent."""

    tree: TreeName
    term: Term
    #: Of the first decision of the message among all of the term, those that are left out counted too.
    first: Counter
    decisions: Annotated[list[AllocationStarted | AllocationPreempted], msgspec.Meta(max_length=MOST_DECISIONS)]


class GetOperationHistory(msgspec.Struct, frozen=True):
    """person → admission: what the log has of an operation, behind one of its entries."""

    operation: Annotated[OperationId, msgspec.Meta(max_length=200)]
    after: Counter = 0


class OperationHistory(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """A page of an operation's history, the oldest first."""

    operation: OperationId
    happenings: list[OperationStep | OperationChanged | JobEnded]
    #: What the request for the next page says in `after`; None: this was the last one.
    next: Counter | None = None
    #: True if the log has forgotten what came before.
    begins_late: bool = False


def happenings_of(event: Event) -> list[OperationStep | OperationChanged | JobEnded]:
    """Tells an event of the log as a person follows it. There are none of what is only bookkeeping."""
    match event:
        case OperationStarted():
            pool, user = event.spec.pool, event.user
            return [OperationStep(event.at_ms, event.operation, event.state, "started", pool=pool, user=user)]
        case OperationStateChanged():
            cause, pool = event.cause.value, event.blocked_by or PoolName("")
            return [OperationStep(event.at_ms, event.operation, event.state, cause, event.reason, pool)]
        case OperationSuspended():
            return [OperationChanged(event.at_ms, event.operation, suspended=event.suspended)]
        case ParametersChanged():
            return [OperationChanged(event.at_ms, event.operation, pool=event.pool, weight=event.weight)]
        case JobsEnded():
            return [_job_ended(event.operation, each) for each in event.ends]
        case _:
            return []


def recorded(published: Published) -> Recorded:
    """Tells an entry as a person follows it."""
    happenings = [each for event in published.events for each in happenings_of(event)]
    return Recorded(
        published.tree, published.term, published.sequence, published.previous, happenings, published.announced
    )


def _job_ended(operation: OperationId, logged: LoggedEnd) -> JobEnded:
    end, start = logged.end, logged.end.start
    return JobEnded(
        at_ms=end.ended_at_ms,
        operation=operation,
        slot=JobSlot(end.index, end.attempt),
        node=logged.node,
        allocation=end.allocation,
        started_at_ms=end.started_at_ms,
        result=end.result,
        exit_code=end.exit_code,
        signal=end.signal,
        reason=end.reason,
        runs_again=logged.retry is not None or logged.retry_at_ms > 0,
        preemption=end.preemption,
        stage=start.stage if start is not None else None,
        share_before=start.share_before if start is not None else None,
        fair_share=start.fair_share if start is not None else None,
        places_taken=start.places_taken if start is not None else None,
    )
