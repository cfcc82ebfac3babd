"""Events that people read: the history of an operation, and the live stream of a tree.

The events have three sources. Admission publishes events that its log has durably: state changes of operations, and ended runs of
jobs, with the preemption record if a preemption ended the run. The allocator publishes each decision when it makes the decision.
The snapshots of fair_share show which elements starve.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.resources import Finite, Share
from headrace.wire.heartbeat import LARGEST_ALLOCATION_JOBS, JobResult, JobSlot, ToldOperation
from headrace.wire.log import (
    Event,
    JobsEnded,
    LoggedEnd,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    ParametersChanged,
    Published,
    SessionEnd,
    SessionNoted,
)
from headrace.wire.operations import OperationState
from headrace.wire.preemption import PreemptionRecord
from headrace.wire.snapshots import ElementKind, StarvationReason, StarvationStatus
from headrace.wire.start_stages import StartStage
from headrace.wire.version import Counter, Term

#: If a new operation waits for other operations, the event of its start names at most this many of them.
_MOST_AWAITED: Final = 3
#: Largest number of decisions in one message.
MOST_DECISIONS: Final = 80
#: Largest number of jobs that a request for the history of an operation may name.
MOST_JOBS_OF_HISTORY: Final = 1_000
#: Largest number of events in one message that say that a node became suspect or is no longer suspect.
MOST_SUSPECTS: Final = 5
#: Largest number of operations that one `NodeSuspected` names.
MOST_BLAMING: Final = 8
#: Longest text of how jobs fail on a node, in characters.
LONGEST_FAILURE_WORDS: Final = 500


class OperationStep(msgspec.Struct, frozen=True, tag="operation"):
    """An operation was started or changed its state."""

    at_ms: Counter
    operation: OperationId
    state: OperationState
    #: Cause of the change, such as `started` or `jobs_done`.
    cause: str
    reason: str = ""
    #: Pool in which the operation was started, or the pool whose limit holds it back.
    pool: PoolName = PoolName("")
    user: str = ""


class OperationChanged(msgspec.Struct, frozen=True, tag="operation_changed"):
    """An operation was suspended, resumed or moved, or its weight or time limit changed. Fields that did not change are null."""

    at_ms: Counter
    operation: OperationId
    suspended: bool | None = None
    pool: PoolName | None = None
    weight: Finite | None = None
    #: Time limit of the whole operation; 0: no limit.
    operation_time_limit_ms: Counter | None = None
    #: Reason of the suspension if Headrace, and not a user, suspended the operation.
    reason: str = ""


class JobEnded(msgspec.Struct, frozen=True, tag="job_ended", omit_defaults=True):
    """A run of a job has ended, and the end is recorded."""

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
    #: True if the job runs again.
    runs_again: bool = False
    #: Preemption record, if the run ended after the job was notified of its preemption.
    preemption: PreemptionRecord | None = None
    #: How the allocation was started, as in `AllocationStarted`. Null if the log lacks this, as in entries of former
    #: versions.
    stage: StartStage | None = None
    share_before: Share | None = None
    fair_share: Share | None = None
    places_taken: Counter | None = None
    #: CPU time in milliseconds; null if it was not measured.
    cpu_ms: Counter | None = None
    #: Peak memory in bytes; null if it was not measured.
    max_rss_bytes: Counter | None = None
    #: True if CPU time and peak memory are those of the job's cgroup. False: the CPU time covers only the processes
    #: that were waited for, and the peak memory is that of the largest single process.
    from_cgroup: bool = False
    #: True if the job failed because its memory was at its limit.
    out_of_memory: bool = False

    @property
    def ran_ms(self) -> int | None:
        """Milliseconds that the run took. None if it never started or its start is unknown."""
        return max(0, self.at_ms - self.started_at_ms) if self.started_at_ms else None


class SessionStep(msgspec.Struct, frozen=True, tag="session"):
    """A person began to have sessions with a job on a node, or has no more sessions with it. A session is a terminal (`headrace
    shell`) or a command (`headrace op exec`).
    """

    at_ms: Counter
    operation: OperationId
    slot: JobSlot
    node: NodeName
    user: str
    began_at_ms: Counter
    #: How the sessions ended; null if the event is their beginning.
    end: SessionEnd | None = None
    #: Unix time in milliseconds at which the last session ended; null: not ended, or unknown.
    ended_at_ms: Counter | None = None
    #: Number of sessions from the beginning to the end; null while the sessions have not ended, or if unknown.
    sessions: Counter | None = None


class AllocationStarted(msgspec.Struct, frozen=True, gc=False, tag="allocation_started"):
    """The allocator gave an operation an allocation on a node. The history of an operation has one such event for each running job."""

    at_ms: Counter
    tree: TreeName
    operation: OperationId
    node: NodeName
    allocation: AllocationId
    slots: Annotated[list[JobSlot], msgspec.Meta(max_length=LARGEST_ALLOCATION_JOBS)]
    #: Stage of the heartbeat that started the allocation; null if unknown.
    stage: StartStage | None = None
    #: Usage of the operation at the start, as a share, without this allocation. Null if it was not kept.
    share_before: Share | None = None
    #: Fair share of the operation at the start. Null if it was not kept.
    fair_share: Share | None = None
    #: Number of other operations' allocations that were preempted for this allocation.
    places_taken: Counter = 0


class AllocationPreempted(msgspec.Struct, frozen=True, tag="allocation_preempted"):
    """The allocator preempted an allocation, for another operation or because of a limit."""

    tree: TreeName
    #: Operation that loses the allocation.
    operation: OperationId
    pool: PoolName
    node: NodeName
    allocation: AllocationId
    #: Job that ran in the allocation, or would have run next.
    slot: JobSlot | None
    record: PreemptionRecord


class StarvationChanged(msgspec.Struct, frozen=True, tag="starvation_changed"):
    """A pool or an operation began to starve, changed its kind of starvation, or stopped starving."""

    at_ms: Counter
    tree: TreeName
    kind: ElementKind
    name: str
    parent: PoolName
    status: StarvationStatus
    reason: StarvationReason = StarvationReason.NONE


class NodeSuspected(msgspec.Struct, frozen=True, tag="node_suspected"):
    """A node became suspect, because jobs fail there although the same operations complete jobs on other nodes, or is no longer suspect."""

    at_ms: Counter
    tree: TreeName
    node: NodeName
    is_suspect: bool
    #: How jobs fail on the node; empty if the node is no longer suspect.
    words: Annotated[str, msgspec.Meta(max_length=LONGEST_FAILURE_WORDS)]
    #: Some of the operations whose jobs failed on the node in a row.
    operations: Annotated[list[ToldOperation], msgspec.Meta(max_length=MOST_BLAMING)] = []


class Missed(msgspec.Struct, frozen=True, tag="missed"):
    """Events that were not delivered, because the reader was too slow or the bus was not available."""

    at_ms: Counter
    #: Service whose events are missing: `admission`, `allocator` or `fair_share`.
    of: str
    tree: TreeName
    #: Number of missing log entries or decisions; null if unknown.
    count: Counter | None = None


Happening = (
    OperationStep
    | OperationChanged
    | JobEnded
    | SessionStep
    | AllocationStarted
    | AllocationPreempted
    | StarvationChanged
    | NodeSuspected
    | Missed
)


class Recorded(msgspec.Struct, frozen=True):
    """admission → readers: the events of one log entry. For the other fields see `headrace.wire.log.Published`."""

    tree: TreeName
    term: Term
    sequence: Counter
    previous: Counter
    happenings: list[OperationStep | OperationChanged | JobEnded | SessionStep] = []
    announced: Counter = 0


class Decisions(msgspec.Struct, frozen=True):
    """allocator → readers: the allocator's decisions since its previous message. Without decisions the allocator sends no message."""

    tree: TreeName
    term: Term
    #: Number of the first decision of this message. Decisions are counted from the beginning of the term, including decisions
    #: that were left out of messages.
    first: Counter
    decisions: Annotated[list[AllocationStarted | AllocationPreempted], msgspec.Meta(max_length=MOST_DECISIONS)]
    #: Nodes that became suspect or are no longer suspect. `first` does not count these changes.
    suspects: Annotated[list[NodeSuspected], msgspec.Meta(max_length=MOST_SUSPECTS)] = []


class GetOperationHistory(msgspec.Struct, frozen=True):
    """person → admission: ask for the events of an operation that the log has after the entry `after`."""

    operation: Annotated[OperationId, msgspec.Meta(max_length=200)]
    after: Counter = 0
    #: If not empty, the answer has only the ends of runs of the jobs with these indexes. Empty: all events.
    jobs: Annotated[list[Counter], msgspec.Meta(max_length=MOST_JOBS_OF_HISTORY)] = []


class OperationHistory(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """A page of an operation's history, the oldest event first."""

    operation: OperationId
    happenings: list[OperationStep | OperationChanged | JobEnded | SessionStep]
    #: Value of `after` in the request for the next page; None on the last page.
    next: Counter | None = None
    #: True if the log no longer has the beginning of the history.
    begins_late: bool = False
    #: Value of `after` in a later request that asks for what the log got since this page; 0 from an admission before this release.
    read_to: Counter = 0


def time_of(happening: Happening) -> int:
    """Return the Unix time of an event in milliseconds."""
    return happening.record.decided_at_ms if isinstance(happening, AllocationPreempted) else happening.at_ms


def happenings_of(event: Event) -> list[OperationStep | OperationChanged | JobEnded | SessionStep]:
    """Return the events that a person sees for one event of the log. The list is empty for an event that is mere bookkeeping."""
    match event:
        case OperationStarted():
            pool, user = event.spec.pool, event.user
            return [OperationStep(event.at_ms, event.operation, event.state, "started", _awaited(event), pool, user)]
        case OperationStateChanged():
            cause, pool = event.cause.value, event.blocked_by or PoolName("")
            return [OperationStep(event.at_ms, event.operation, event.state, cause, event.reason, pool)]
        case OperationSuspended():
            return [OperationChanged(event.at_ms, event.operation, suspended=event.suspended, reason=event.reason)]
        case ParametersChanged():
            return [
                OperationChanged(
                    event.at_ms,
                    event.operation,
                    pool=event.pool,
                    weight=event.weight,
                    operation_time_limit_ms=event.operation_time_limit_ms,
                )
            ]
        case JobsEnded():
            return [_job_ended(event.operation, each) for each in event.ends]
        case SessionNoted():
            return [_session(event)]
        case _:
            return []


def recorded(published: Published) -> Recorded:
    """Return a log entry in the form that people read."""
    happenings = [each for event in published.events for each in happenings_of(event)]
    return Recorded(
        published.tree, published.term, published.sequence, published.previous, happenings, published.announced
    )


def _awaited(event: OperationStarted) -> str:
    """Return a text that says what a new operation waits for; empty if it waits for nothing."""
    named = ", ".join(event.awaits[:_MOST_AWAITED]) + (", …" if len(event.awaits) > _MOST_AWAITED else "")
    jobs = f"jobs of {event.spec.after_each}" if event.awaits_jobs else ""
    words = " and ".join(filter(None, (named, jobs)))
    return f"waits for {words}" if words else ""


def _session(event: SessionNoted) -> SessionStep:
    return SessionStep(
        (event.ended_at_ms or event.at_ms) if event.end is not None else event.began_at_ms,
        event.operation,
        event.slot,
        event.node,
        event.user,
        event.began_at_ms,
        event.end,
        event.ended_at_ms or None,
        event.sessions or None,
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
        cpu_ms=end.cpu_ms if end.is_measured else None,
        max_rss_bytes=end.max_rss_bytes if end.is_measured else None,
        from_cgroup=end.from_cgroup,
        out_of_memory=end.out_of_memory,
    )
