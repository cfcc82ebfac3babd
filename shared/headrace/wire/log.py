"""The log: what admission records before it answers, and how others hear of it.

One stream, one appender, one append in flight; an entry is a batch of events with the term of who wrote it. After an entry is
durable, admission publishes it with its sequence; a reader that misses one reads it from the stream.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from headrace.ids import NodeName, OperationId, PoolName, TreeName
from headrace.wire.heartbeat import JobEnd, JobSlot
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.version import Counter, Term

__all__ = [
    "FIRST_BLOCK",
    "BlockDrawn",
    "Event",
    "JobsEnded",
    "LogBatch",
    "LoggedEnd",
    "OperationStarted",
    "OperationStateChanged",
    "OperationSuspended",
    "ParametersChanged",
    "Published",
    "StateCause",
]

#: Indexes that the event of the start itself lets out.
FIRST_BLOCK = 256


class StateCause(enum.StrEnum):
    """What moved an operation to another state."""

    ADMITTED = "admitted"
    WAITING = "waiting"
    JOBS_DONE = "jobs_done"
    TOO_MANY_FAILURES = "too_many_failures"
    ABORTED_BY_USER = "aborted_by_user"
    RELEASED = "released"
    TREE_REMOVED = "tree_removed"
    COMPLETED_BY_USER = "completed_by_user"


class OperationStarted(msgspec.Struct, frozen=True, tag="operation_started"):
    """A new operation; indexes below `block` may be out from now on, to the allocator of `block_term` or a later one."""

    operation: OperationId
    user: str
    spec: OperationSpec
    state: OperationState
    ephemeral_pool: bool
    block: Counter
    block_term: Term
    at_ms: Counter


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


class ParametersChanged(msgspec.Struct, frozen=True, tag="parameters_changed"):
    """Weight or pool changed on the fly."""

    operation: OperationId
    pool: PoolName
    weight: float
    ephemeral_pool: bool
    at_ms: Counter


class BlockDrawn(msgspec.Struct, frozen=True, tag="block_drawn"):
    """Every index below `below` may be out, as drawn by the allocator of `term`."""

    operation: OperationId
    below: Counter
    term: Term


class LoggedEnd(msgspec.Struct, frozen=True):
    """An end, where it happened, and whether the job runs again."""

    end: JobEnd
    node: NodeName | str
    #: The attempt that is out from now on; null when there is none.
    retry: JobSlot | None = None


class JobsEnded(msgspec.Struct, frozen=True, tag="jobs_ended"):
    """Ends of jobs of one operation."""

    operation: OperationId
    ends: list[LoggedEnd]
    at_ms: Counter


Event = OperationStarted | OperationStateChanged | OperationSuspended | ParametersChanged | BlockDrawn | JobsEnded


class LogBatch(msgspec.Struct, frozen=True):
    """One entry of the log."""

    term: Term
    events: Annotated[list[Event], msgspec.Meta(max_length=100_000)]
    #: Makes every attempt at an entry recognisable: which process, and its how-manieth entry.
    writer: str = ""
    number: Counter = 0


class Published(msgspec.Struct, frozen=True):
    """An entry that is durable, as admission tells it; with no events it only says how far the log is."""

    tree: TreeName
    term: Term
    sequence: Counter
    #: Sequence of the entry published before; another one than the reader has: it missed something.
    previous: Counter
    events: list[Event] = []
