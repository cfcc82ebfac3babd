"""The ledger: an allocator leases job indexes from admission, and reports which jobs ended.

Admission answers only when the change is durable. Every request carries the allocator's term; a term lower than the highest known
is refused.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import NodeName, OperationId, TreeName
from headrace.wire.heartbeat import MOST_SESSION_SPANS, JobEnd, JobKey, Retry, SessionSpan
from headrace.wire.log import IndexRun, OperationStarted
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.placements import EphemeralPool
from headrace.wire.version import Counter, Term


class Attach(msgspec.Struct, frozen=True):
    """An allocator has started: from now on admission leases job indexes of the tree only to an allocator of this term.

    Admission answers when the new term is recorded durably.
    """

    tree: TreeName
    term: Term


class Attached(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The allocator's term is in force. `sequence` is the log's sequence when the term came into force."""

    term: Term
    sequence: Counter
    admission_term: Term


class WholeOperationsRequest(msgspec.Struct, frozen=True):
    """Ask for a page of a tree: first its ephemeral pools by name, then its live operations by id.

    `after_pool` and `after` name the last pool and the last operation of the pages before; the page begins after them. If the operation
    `after` has attempts from `next_index` on, the page has only these attempts.
    """

    tree: TreeName
    after: str = ""
    after_pool: str = ""
    #: Job index from which on the attempts of the operation `after` are requested; 0: none of its attempts are requested.
    next_index: Counter = 0


class LiveOperation(msgspec.Struct, frozen=True):
    """An operation that is not over, as the allocator and fair_share of one of its trees need it.

    `spec` and `state` describe the operation in that tree. The operation may wait or be ended in that tree while it runs in other trees.
    """

    operation: OperationId
    user: str
    spec: OperationSpec
    state: OperationState
    suspended: bool
    ephemeral_pool: bool
    started_at_ms: Counter
    #: Indexes below this number may be leased to the allocator.
    block: Counter
    #: Term of the allocator that leased indexes last.
    block_term: Term
    #: One bit per index below `block`, lowest index first in each byte. The bit is set if the job is finished, was given up, waits for its
    #: retry, or does not belong to this tree.
    done: bytes = b""
    #: Newest attempts of the jobs that are beyond their first attempt, in the order of their indexes. If the operation is the last of its
    #: page, the next page may list more attempts of this operation.
    attempts: list[Retry] = []
    #: True while the operation is suspended and its running jobs must end.
    ends_running_jobs: bool = False
    #: Number of job indexes that may run and are leased to no tree; null unless the operation is in several trees or has `spec.after_each`.
    free: Counter | None = None
    #: Number of times that trees have leased or released indexes of the operation; 0 if `free` is null.
    changes: Counter = 0
    #: Number of failed jobs that wait for their retry. Their bits in `done` are set.
    pausing: Counter = 0


def started_in(event: OperationStarted, tree: TreeName) -> LiveOperation | None:
    """Return a new operation as one tree sees it, or None if it is not in that tree."""
    if event.placements:
        placement = next((each for each in event.placements if each.tree == tree), None)
        if placement is None:
            return None
        spec = event.spec.in_tree(tree, placement.pool)
        state = OperationState.RUNNING if placement.blocked_by is None else OperationState.PENDING
    else:
        # An entry without placements was written by a release without limits on operations.
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
            free=event.free if spec.after_each else spec.job_count if is_shared else None,
        )
    )


class WholeOperations(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """One page of all ephemeral pools and live operations.

    Each page may have a higher `sequence` than the page before. After the last page the reader applies all events after the
    `sequence` of the *first* page; applying an event twice changes nothing.
    """

    sequence: Counter
    term: Term
    operations: list[LiveOperation]
    more: bool = False
    #: Ephemeral pools of the tree. A page that has ephemeral pools has no operations.
    ephemeral_pools: list[EphemeralPool] = []
    #: More attempts of the last operation of the page before. A page that has such attempts has no operations.
    more_attempts: list[Retry] = []


class DrawBlock(msgspec.Struct, frozen=True):
    """Lease more job indexes of an operation to an allocator."""

    tree: TreeName
    term: Term
    operation: OperationId
    #: Wanted end of the range of leased indexes. Admission leases at most up to the operation's job count.
    below: Annotated[int, msgspec.Meta(ge=1, le=2**31)] = 1
    #: Number of indexes wanted, for an operation of several trees; `below` is then ignored.
    more: Counter = 0


class DrawAnswer(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The lease is durable. For an operation of one tree, all indexes below `below` are leased.

    For an operation of several trees, the event in the log names the newly leased indexes. `drawn` is the number of these indexes, at most
    the number wanted.
    """

    operation: OperationId
    below: Counter
    drawn: Counter = 0


class ReturnIndexes(msgspec.Struct, frozen=True):
    """Release job indexes that this allocator has not assigned to a node, so that other trees of the operation can lease them.

    Admission refuses the release if any tree has leased or released indexes of the operation since `change`.
    """

    tree: TreeName
    term: Term
    operation: OperationId
    #: Number of the last lease or release of the operation's indexes that this allocator knows, as in `BlockDrawn.change`.
    change: Counter
    runs: Annotated[list[IndexRun], msgspec.Meta(min_length=1, max_length=4_096)]


class ReturnAnswer(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The release is durable."""

    operation: OperationId


class Wanted(msgspec.Struct, frozen=True):
    """allocator → allocators of other trees: this tree could run jobs of these operations at once, but no index is free."""

    tree: TreeName
    operations: Annotated[list[OperationId], msgspec.Meta(max_length=5_000)]


class ReportedEnd(msgspec.Struct, frozen=True, array_like=True):
    """A job's end and the node that reported it."""

    node: NodeName
    end: JobEnd


class ReportedSession(msgspec.Struct, frozen=True, array_like=True):
    """A session span and the node that reported it, which is the node that had the job when the span began."""

    node: NodeName
    span: SessionSpan


class ReportEnds(msgspec.Struct, frozen=True):
    """Session spans and ends of jobs, delivered at least once. A span or an end that is reported again changes nothing and is confirmed
    again.
    """

    tree: TreeName
    term: Term
    ends: Annotated[list[ReportedEnd], msgspec.Meta(max_length=2_000)]
    #: Spans to record before the ends.
    sessions: Annotated[list[ReportedSession], msgspec.Meta(max_length=MOST_SESSION_SPANS)] = []


class ReportAnswer(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The ends of these jobs need not be reported again: they were recorded now or earlier, or admission no longer keeps their operation.

    The events of the log show which jobs are retried and which operations are over.
    """

    recorded: list[JobKey]
    #: Number of session spans that are durable; 0 if the release of admission does not record session spans.
    sessions: Counter = 0


class Released(msgspec.Struct, frozen=True):
    """No node holds an allocation of these operations any more, so operations that were completing, failing or aborting are over."""

    tree: TreeName
    term: Term
    operations: Annotated[list[OperationId], msgspec.Meta(max_length=10_000)]


class ReleasedAnswer(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The release of these operations is durable."""

    operations: list[OperationId]
