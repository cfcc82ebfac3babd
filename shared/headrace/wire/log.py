"""The log: what admission records before it answers, and how other services learn of it.

One stream, one appender, one append in flight. An entry is a batch of events with the term of its writer. When an entry is
durable, admission publishes it with its sequence. A reader that misses an entry reads it from the stream.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from headrace.ids import NodeName, OperationId, PoolName, TreeName
from headrace.resources import Finite
from headrace.wire.heartbeat import JobEnd, JobSlot, Retry, ShortText
from headrace.wire.operation_spec import Millis
from headrace.wire.operations import OperationSpec, OperationState, PerTree
from headrace.wire.placements import EphemeralPool, TreePlacement
from headrace.wire.version import Counter, Term

#: Number of job indexes that `OperationStarted` leases to the allocator, which need not ask for these indexes.
FIRST_BLOCK = 256


class StateCause(enum.StrEnum):
    """Causes of changes of an operation's state."""

    ADMITTED = "admitted"
    WAITING = "waiting"
    JOBS_DONE = "jobs_done"
    TOO_MANY_FAILURES = "too_many_failures"
    ABORTED_BY_USER = "aborted_by_user"
    RELEASED = "released"
    TREE_REMOVED = "tree_removed"
    COMPLETED_BY_USER = "completed_by_user"
    UPSTREAM_FAILED = "upstream_failed"
    #: The time limit of the operation is reached, or the operation fails because of jobs that timed out.
    TIME_LIMIT = "time_limit"


class OperationStarted(msgspec.Struct, frozen=True, tag="operation_started"):
    """A new operation.

    The event also leases the job indexes below `block` to the allocator of `block_term` or of a later term. If the operation is in several
    trees, no index is leased yet.

    Former releases wrote this event a second time if the first tree that could run a pending operation was not the tree in its spec. The
    second event has the spec with the new tree.
    """

    operation: OperationId
    user: str
    spec: OperationSpec
    state: OperationState
    ephemeral_pool: bool
    block: Counter
    block_term: Term
    at_ms: Counter
    #: Placements of the operation in its trees. Empty in entries of releases without limits on operations: the operation then held a
    #: running slot in the tree of its spec.
    placements: list[TreePlacement] = []
    #: Operations of `spec.after` that had not ended at the start.
    awaits: list[OperationId] = []
    #: Why the operation can never run: an operation that it waits for had not ended as required. Empty: the operation can run.
    upstream_failure: str = ""
    #: True if the operation in `spec.after_each` had not ended at the start.
    awaits_jobs: bool = False
    #: Number of jobs that may run from the start on, if the operation has `spec.after_each`.
    free: Counter = 0


class OperationPlaced(msgspec.Struct, frozen=True, tag="operation_placed"):
    """The operation's placement in one tree changed: it got a running slot, or moved to another queue or another pool."""

    operation: OperationId
    placement: TreePlacement
    #: Unix time in milliseconds; 0 in entries of former versions.
    at_ms: Counter = 0


class OperationLeftTree(msgspec.Struct, frozen=True, tag="operation_left_tree"):
    """The operation is no longer in this tree, but still in other trees."""

    operation: OperationId
    tree: TreeName


class EphemeralPoolSet(msgspec.Struct, frozen=True, tag="ephemeral_pool_set"):
    """An ephemeral pool was made or changed.

    The pool exists until its last operation is gone.
    """

    tree: TreeName
    pool: EphemeralPool


class EphemeralPoolAdopted(msgspec.Struct, frozen=True, tag="ephemeral_pool_adopted"):
    """A person configured a pool with the name of this ephemeral pool. The pool now stays even without operations."""

    tree: TreeName
    pool: PoolName


class AllocatorAttached(msgspec.Struct, frozen=True, tag="allocator_attached"):
    """From this entry on, admission accepts in that tree only an allocator of this term or of a later term."""

    tree: TreeName
    term: Term


class OperationStateChanged(msgspec.Struct, frozen=True, tag="operation_state_changed"):
    """The operation moved to another state, as the table of states allows."""

    operation: OperationId
    state: OperationState
    cause: StateCause
    reason: str
    at_ms: Counter
    #: Pool whose limit holds the operation back while it is pending.
    blocked_by: PoolName | None = None


class OperationSuspended(msgspec.Struct, frozen=True, tag="operation_suspended"):
    """The operation was suspended or resumed."""

    operation: OperationId
    suspended: bool
    at_ms: Counter
    #: True if running jobs must end; they run again when the operation is resumed.
    abort_running_jobs: bool = False
    #: Reason of the suspension, if no user suspended the operation.
    reason: ShortText = ""


class ParametersChanged(msgspec.Struct, frozen=True, tag="parameters_changed"):
    """The operation's weight or time limit changed on the fly. A move to another pool is recorded by `OperationPlaced`."""

    operation: OperationId
    pool: PoolName
    weight: Finite
    ephemeral_pool: bool
    at_ms: Counter
    #: Settings for single trees from now on; null: unchanged.
    per_tree: dict[TreeName, PerTree] | None = None
    #: Time limit of the whole operation from now on; 0: no limit; null: unchanged.
    operation_time_limit_ms: Millis | None = None

    def weight_in(self, tree: TreeName) -> float:
        """Return the weight in one tree."""
        return (self.per_tree or {}).get(tree, PerTree()).weight or self.weight


class IndexRun(msgspec.Struct, frozen=True, array_like=True):
    """Jobs with consecutive indexes: `first` is included, `below` is not."""

    first: Counter
    below: Counter


class BlockDrawn(msgspec.Struct, frozen=True, tag="block_drawn"):
    """All job indexes below `below` are leased to the allocator of `term`.

    If the operation is in several trees, only the indexes in `runs` are leased, and only to `tree`.
    """

    operation: OperationId
    below: Counter
    term: Term
    #: This field and the fields after it are for operations of several trees.
    tree: TreeName | None = None
    runs: list[IndexRun] = []
    #: Number of this lease, counted over all leases and releases of the operation's indexes.
    change: Counter = 0
    #: Number of job indexes that are leased to no tree after this event.
    free: Counter = 0


class IndexesReturned(msgspec.Struct, frozen=True, tag="indexes_returned"):
    """A tree released job indexes of an operation of several trees, so that any tree of the operation may lease them.

    If `runs` is empty, the tree released all indexes that it had. If `tree` is empty, the jobs in `runs` may run from now on, because the
    jobs with the same indexes in the operation `spec.after_each` have completed.
    """

    operation: OperationId
    tree: TreeName
    change: Counter
    free: Counter
    runs: list[IndexRun] = []


class LoggedEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job's end, its node, and whether the job runs again."""

    end: JobEnd
    node: NodeName | str
    #: Next attempt of the job, if it may run from now on; null if the job is not retried, or is retried after a delay.
    retry: Retry | None = None
    #: Unix time in milliseconds of a delayed retry, which `JobsRetried` will record; 0: no retry is delayed.
    retry_at_ms: Counter = 0


class JobsEnded(msgspec.Struct, frozen=True, tag="jobs_ended"):
    """Ends of jobs of one operation."""

    operation: OperationId
    ends: list[LoggedEnd]
    at_ms: Counter


class JobsRetried(msgspec.Struct, frozen=True, tag="jobs_retried"):
    """The backoff of failed jobs of one operation is over: these attempts may run from now on."""

    operation: OperationId
    slots: list[Retry]
    at_ms: Counter


class SessionEnd(enum.StrEnum):
    """How a session span ended, as far as admission knows."""

    #: The node reported the end of the last session of the span.
    CLOSED = "closed"
    #: The job ended before the node reported the end of the sessions. The sessions ended with the job at the latest.
    JOB_ENDED = "job_ended"
    #: The end is unknown, because the agent of the node was restarted, or the node was lost.
    UNKNOWN = "unknown"


class SessionNoted(msgspec.Struct, frozen=True, tag="session_noted", omit_defaults=True):
    """A session span began or ended: a time in which a person has at least one session with a run of a job."""

    operation: OperationId
    slot: JobSlot
    node: NodeName
    user: str
    began_at_ms: Counter
    at_ms: Counter
    #: How the span ended; null: this event records its beginning.
    end: SessionEnd | None = None
    #: Unix time in milliseconds at which the last session ended; 0: not ended, or unknown.
    ended_at_ms: Counter = 0
    #: Number of sessions; 0: not known.
    sessions: Counter = 0


class ClockMoved(msgspec.Struct, frozen=True, tag="clock_moved"):
    """The wall clock of admission was set while an operation had a time limit.

    The times from which time limits count are moved by the same amount, so that no operation ends early or late. While no operation has a
    time limit, admission does not record moves of the clock.
    """

    #: Sum of all moves so far, in milliseconds; negative if the clock was set back.
    total_ms: int
    at_ms: Counter


Event = (
    OperationStarted
    | OperationStateChanged
    | OperationPlaced
    | OperationLeftTree
    | OperationSuspended
    | ParametersChanged
    | BlockDrawn
    | IndexesReturned
    | JobsEnded
    | JobsRetried
    | SessionNoted
    | EphemeralPoolSet
    | EphemeralPoolAdopted
    | AllocatorAttached
    | ClockMoved
)
#: Events that concern one operation.
OperationEvent = (
    OperationStarted
    | OperationStateChanged
    | OperationPlaced
    | OperationLeftTree
    | OperationSuspended
    | ParametersChanged
    | BlockDrawn
    | IndexesReturned
    | JobsEnded
    | JobsRetried
    | SessionNoted
)


def concerned(event: Event) -> OperationId | None:
    """Return the operation that an event is about, or None for an event about a tree or the clock."""
    return event.operation if isinstance(event, OperationEvent) else None


class LogBatch(msgspec.Struct, frozen=True):
    """One entry of the log."""

    term: Term
    events: Annotated[list[Event], msgspec.Meta(max_length=100_000)]
    #: Process that wrote the entry. Together with `number` it identifies every attempt to append an entry.
    writer: str = ""
    #: Number that the process gave to the entry. It is negative in entries by which former versions announced a term.
    number: int = 0


class Published(msgspec.Struct, frozen=True):
    """A durable entry, as admission publishes it. A message without events only reports the newest sequence of the log."""

    tree: TreeName
    term: Term
    sequence: Counter
    #: Sequence of the entry published before this entry. A reader whose newest entry has another sequence has missed an entry.
    previous: Counter
    events: list[Event] = []
    #: Sequence of the entry that announced the term. If a reader has read an entry of a former term with this or a
    #: higher sequence, the log has lost that entry.
    announced: Counter = 0
