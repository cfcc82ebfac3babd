"""The log: what admission records before it answers, and how others hear of it.

One stream, one appender, one append in flight. An entry is a batch of events with the term of who wrote it. After an entry is
durable, admission publishes it with its sequence. A reader that misses one reads it from the stream.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from headrace.ids import NodeName, OperationId, PoolName, TreeName
from headrace.resources import Finite
from headrace.wire.heartbeat import JobEnd, JobSlot
from headrace.wire.operations import OperationSpec, OperationState, PerTree
from headrace.wire.placements import EphemeralPool, TreePlacement
from headrace.wire.version import Counter, Term

#: Indexes that the event of the start itself lets out.
FIRST_BLOCK = 256


class StateCause(enum.StrEnum):
    """Causes that move an operation to another state."""

    ADMITTED = "admitted"
    WAITING = "waiting"
    JOBS_DONE = "jobs_done"
    TOO_MANY_FAILURES = "too_many_failures"
    ABORTED_BY_USER = "aborted_by_user"
    RELEASED = "released"
    TREE_REMOVED = "tree_removed"
    COMPLETED_BY_USER = "completed_by_user"


class OperationStarted(msgspec.Struct, frozen=True, tag="operation_started"):
    """A new operation.

    Indexes below `block` may be out from now on, to the allocator of `block_term` or a later one; of an operation of several trees none,
    until one of them draws. Former versions said it again of a pending operation when another of its trees had room first.
    """

    operation: OperationId
    user: str
    spec: OperationSpec
    state: OperationState
    ephemeral_pool: bool
    block: Counter
    block_term: Term
    at_ms: Counter
    #: Its trees; none in entries from before there were limits, when it held a slot in the tree of its spec.
    placements: list[TreePlacement] = []


class OperationPlaced(msgspec.Struct, frozen=True, tag="operation_placed"):
    """Its place in one tree changed: it got a running slot, came into another queue, or into another pool."""

    operation: OperationId
    placement: TreePlacement


class OperationLeftTree(msgspec.Struct, frozen=True, tag="operation_left_tree"):
    """The operation has no part in that tree any more, but in others."""

    operation: OperationId
    tree: TreeName


class EphemeralPoolSet(msgspec.Struct, frozen=True, tag="ephemeral_pool_set"):
    """A pool lives by its operations from now on, or is another than it was.

    It is over with its last operation.
    """

    tree: TreeName
    pool: EphemeralPool


class EphemeralPoolAdopted(msgspec.Struct, frozen=True, tag="ephemeral_pool_adopted"):
    """Somebody configured a pool of that name: it lives by its configuration."""

    tree: TreeName
    pool: PoolName


class AllocatorAttached(msgspec.Struct, frozen=True, tag="allocator_attached"):
    """Only the allocator of this term, or of a later one, is heard in that tree from this entry on."""

    tree: TreeName
    term: Term


class OperationStateChanged(msgspec.Struct, frozen=True, tag="operation_state_changed"):
    """Moved along the table of states."""

    operation: OperationId
    state: OperationState
    cause: StateCause
    reason: str
    at_ms: Counter
    #: The pool whose limit holds it back, while pending.
    blocked_by: PoolName | None = None


class OperationSuspended(msgspec.Struct, frozen=True, tag="operation_suspended"):
    """Suspended or resumed."""

    operation: OperationId
    suspended: bool
    at_ms: Counter
    #: Jobs that run are to be ended; they run again when it goes on.
    abort_running_jobs: bool = False


class ParametersChanged(msgspec.Struct, frozen=True, tag="parameters_changed"):
    """The weight changed on the fly. What it says of the pool is told by `OperationPlaced` as well."""

    operation: OperationId
    pool: PoolName
    weight: Finite
    ephemeral_pool: bool
    at_ms: Counter
    #: What is said for single trees from now on; null: nothing new.
    per_tree: dict[TreeName, PerTree] | None = None

    def weight_in(self, tree: TreeName) -> float:
        """The weight in one tree."""
        return (self.per_tree or {}).get(tree, PerTree()).weight or self.weight


class IndexRun(msgspec.Struct, frozen=True, array_like=True):
    """Jobs whose indexes follow each other."""

    first: Counter
    below: Counter


class BlockDrawn(msgspec.Struct, frozen=True, tag="block_drawn"):
    """Every index below `below` may be out, as drawn by the allocator of `term`.

    Of an operation of several trees only those of `runs`, and in `tree` alone.
    """

    operation: OperationId
    below: Counter
    term: Term
    #: The fields from here on are of operations of several trees.
    tree: TreeName | None = None
    runs: list[IndexRun] = []
    #: How-manieth change of this operation's owners it is.
    change: Counter = 0
    #: Indexes that no tree has after it.
    free: Counter = 0


class IndexesReturned(msgspec.Struct, frozen=True, tag="indexes_returned"):
    """A tree has these jobs of an operation of several trees no more: each tree may draw them. Without runs: all that it had."""

    operation: OperationId
    tree: TreeName
    change: Counter
    free: Counter
    runs: list[IndexRun] = []


class LoggedEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """An end, where it happened, and whether the job runs again."""

    end: JobEnd
    node: NodeName | str
    #: The attempt that is out from now on; null when there is none, or none yet.
    retry: JobSlot | None = None
    #: It runs again then, which `JobsRetried` will tell; 0: it waits for no time.
    retry_at_ms: Counter = 0


class JobsEnded(msgspec.Struct, frozen=True, tag="jobs_ended"):
    """Ends of jobs of one operation."""

    operation: OperationId
    ends: list[LoggedEnd]
    at_ms: Counter


class JobsRetried(msgspec.Struct, frozen=True, tag="jobs_retried"):
    """Jobs of one operation that failed have waited for long enough: these attempts are out from now on."""

    operation: OperationId
    slots: list[JobSlot]
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
    | EphemeralPoolSet
    | EphemeralPoolAdopted
    | AllocatorAttached
)
#: Those that concern one operation.
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
)


def concerned(event: Event) -> OperationId | None:
    """The operation that an event is about, or None for one about a tree."""
    return event.operation if isinstance(event, OperationEvent) else None


class LogBatch(msgspec.Struct, frozen=True):
    """One entry of the log."""

    term: Term
    events: Annotated[list[Event], msgspec.Meta(max_length=100_000)]
    #: Makes every attempt at an entry recognisable: which process, and its how-manieth entry.
    writer: str = ""
    #: Negative in entries by which former versions announced a term.
    number: int = 0


class Published(msgspec.Struct, frozen=True):
    """An entry that is durable, as admission tells it. With no events it only says how far the log is."""

    tree: TreeName
    term: Term
    sequence: Counter
    #: Sequence of the entry published before; another one than the reader has: it missed something.
    previous: Counter
    events: list[Event] = []
    #: The entry that announced the term. Whoever knows that far of former terms knows entries that the log has lost.
    announced: Counter = 0
