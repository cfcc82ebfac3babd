"""The ledger: allocator asks admission which jobs may be given out, and tells it which ended.

Admission answers only what is durable. Every request carries the allocator's term. A lower one than it knows is refused.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import NodeName, OperationId, TreeName
from headrace.wire.heartbeat import JobEnd, JobKey, JobSlot
from headrace.wire.log import IndexRun, OperationStarted
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.placements import EphemeralPool
from headrace.wire.version import Counter, Term


class Attach(msgspec.Struct, frozen=True):
    """An allocator starts: from now on blocks are drawn by its term. Answered when that is so."""

    tree: TreeName
    term: Term


class Attached(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The allocator's term holds. `sequence` is where the log was."""

    term: Term
    sequence: Counter
    admission_term: Term


class WholeOperationsRequest(msgspec.Struct, frozen=True):
    """A page of a tree: first its ephemeral pools by name, then its live operations by id.

    Each page begins behind the last of both that the pages before told, and behind the last attempt told of that operation.
    """

    tree: TreeName
    after: str = ""
    after_pool: str = ""
    #: 0 is «none told».
    next_index: Counter = 0


class LiveOperation(msgspec.Struct, frozen=True):
    """An operation that is not over, as the allocator and fair_share of one of its trees need to know it.

    Spec and state are those in that tree, where it may wait or be ended while it runs in others.
    """

    operation: OperationId
    user: str
    spec: OperationSpec
    state: OperationState
    suspended: bool
    ephemeral_pool: bool
    started_at_ms: Counter
    #: Indexes below may be out; drawn last by the allocator of this term.
    block: Counter
    block_term: Term
    #: One bit per index below `block`, lowest first in each byte: that job is done for good, failed and waits until it may run again,
    #: or is not the tree's.
    done: bytes = b""
    #: Newest attempt of indexes that are past their first, by index. The last operation of a page may have more of them.
    attempts: list[JobSlot] = []
    #: While it is suspended: what runs of it is to be ended.
    ends_running_jobs: bool = False
    #: Of an operation of several trees: the indexes that no tree has, and how often owners of indexes have changed.
    free: Counter | None = None
    changes: Counter = 0
    #: Jobs that failed and wait until they may run again. They are among those that are done.
    pausing: Counter = 0


def started_in(event: OperationStarted, tree: TreeName) -> LiveOperation | None:
    """A new operation as one tree has it, or None if it is not in that tree."""
    if event.placements:
        placement = next((each for each in event.placements if each.tree == tree), None)
        if placement is None:
            return None
        spec = event.spec.in_tree(tree, placement.pool)
        state = OperationState.RUNNING if placement.blocked_by is None else OperationState.PENDING
    else:
        # From before there were limits.
        spec, state = event.spec, event.state
    is_shared = len(event.placements) > 1
    return (
        None
        if spec.tree != tree
        else LiveOperation(
            operation=event.operation,
            user=event.user,
            spec=spec,
            state=state,
            suspended=False,
            ephemeral_pool=event.ephemeral_pool,
            started_at_ms=event.at_ms,
            block=event.block,
            block_term=event.block_term,
            done=bytes((event.block + 7) // 8),
            free=spec.job_count if is_shared else None,
        )
    )


class WholeOperations(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """One page of all ephemeral pools and live operations.

    Every page of one reading may be of a later sequence than the one before: events after `sequence` of the *first* page are applied on
    top, and applying one twice changes nothing.
    """

    sequence: Counter
    term: Term
    operations: list[LiveOperation]
    more: bool = False
    #: Pools of the tree that live by their operations. A page that has any names no operations.
    ephemeral_pools: list[EphemeralPool] = []
    #: More attempts of the operation that was told last. A page that has any names no operations.
    more_attempts: list[JobSlot] = []


class DrawBlock(msgspec.Struct, frozen=True):
    """Let more indexes of an operation out."""

    tree: TreeName
    term: Term
    operation: OperationId
    #: The new border wanted; it is cut at the operation's job count.
    below: Annotated[int, msgspec.Meta(ge=1, le=2**31)] = 1
    #: Of an operation of several trees in place of a border: the number of indexes wanted.
    more: Counter = 0


class DrawAnswer(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Durable: everything below `below` may be out.

    Of an operation of several trees the event tells which indexes, and `drawn` how many, at most as many as were wanted.
    """

    operation: OperationId
    below: Counter
    drawn: Counter = 0


class ReturnIndexes(msgspec.Struct, frozen=True):
    """Take back indexes of an operation of several trees that this allocator has not given out. Refused if it is overtaken."""

    tree: TreeName
    term: Term
    operation: OperationId
    #: The last change of the operation's owners that this allocator knows.
    change: Counter
    runs: Annotated[list[IndexRun], msgspec.Meta(min_length=1, max_length=4_096)]


class ReturnAnswer(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Durable."""

    operation: OperationId


class Wanted(msgspec.Struct, frozen=True):
    """A tree could run jobs of these operations at once, and no index is free. Told to the allocators of other trees."""

    tree: TreeName
    operations: Annotated[list[OperationId], msgspec.Meta(max_length=5_000)]


class ReportedEnd(msgspec.Struct, frozen=True, array_like=True):
    """An end and the node it came from."""

    node: NodeName
    end: JobEnd


class ReportEnds(msgspec.Struct, frozen=True):
    """Ends of jobs, at least once: the same end again changes nothing and is confirmed again."""

    tree: TreeName
    term: Term
    ends: Annotated[list[ReportedEnd], msgspec.Meta(max_length=2_000)]


class ReportAnswer(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Durable: these ends are recorded (or were before, or are of an operation that is not kept any more).

    What runs again and what is over is learnt from the events."""

    recorded: list[JobKey]


class Released(msgspec.Struct, frozen=True):
    """No node holds an allocation of these any more: what was completing, failing or aborting is over."""

    tree: TreeName
    term: Term
    operations: Annotated[list[OperationId], msgspec.Meta(max_length=10_000)]


class ReleasedAnswer(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Durable."""

    operations: list[OperationId]
