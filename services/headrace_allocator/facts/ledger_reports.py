"""Applies reports of the ledger about operations: all live operations, or the events of its log. Repeated reports change nothing.

The allocator knows an operation from the event that starts it to the event that ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

import msgspec

from headrace.ids import NodeName, OperationId, TreeName
from headrace.wire.heartbeat import JobResult, Retry
from headrace.wire.ledger import LiveOperation, started_in
from headrace.wire.log import (
    AllocatorAttached,
    BlockDrawn,
    Event,
    IndexesReturned,
    IndexRun,
    JobsEnded,
    JobsRetried,
    LoggedEnd,
    OperationEvent,
    OperationLeftTree,
    OperationPlaced,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    ParametersChanged,
    SessionNoted,
)
from headrace.wire.operations import FINAL_STATES, OperationState
from headrace_allocator.facts.facts import Facts, note_limits
from headrace_allocator.facts.job_slots import has_ended, newer_attempts, not_ended
from headrace_allocator.facts.operations import Operation
from headrace_allocator.gangs.fitting import judge_size
from headrace_allocator.gangs.holds import let_go


class OperationNews:
    """The operations that a report of the ledger changed."""

    def __init__(self) -> None:
        #: The changed operations, in the order of their first change. Some of them may be over by now.
        self.changed: dict[OperationId, None] = {}
        #: Nodes that hold an allocation or a job that must be taken back.
        self.holders: set[NodeName] = set()

    def hold(self, operation: Operation) -> None:
        """Add the nodes that hold an allocation of the operation."""
        self.holders.update(each.node for each in operation.allocations.values())


def learn_live(facts: Facts, operations: Iterable[LiveOperation]) -> OperationNews:
    """Take over one page of all live operations. An operation that is known already keeps the known facts about its jobs."""
    news = OperationNews()
    for each in operations:
        facts.told.add(each.operation)
        known = facts.operations.get(each.operation)
        if known is None:
            _add(facts, each, news)
        else:
            _update(facts, known, each, news)
    return news


def forget_untold(facts: Facts) -> OperationNews:
    """End the operations that no page named, after the last page was taken over."""
    news = OperationNews()
    for operation in [known for name, known in facts.operations.items() if name not in facts.told]:
        _forget(facts, operation, news)
    facts.told.clear()
    facts.recovery.operations_known = True
    return news


def learn_events(facts: Facts, events: Iterable[Event]) -> OperationNews:
    """Take over events of the log, in the log's order."""
    news = OperationNews()
    for event in events:
        if not isinstance(event, OperationEvent):
            continue
        operation = facts.operations.get(event.operation)
        if isinstance(event, OperationStarted):
            _learn_start(facts, operation, event, news)
        elif operation is not None:
            _learn(facts, operation, event, news)
    return news


def drawing_terms(events: Iterable[Event], tree: TreeName) -> Iterator[int]:
    """Yield the terms of this tree's allocators that the events name. The allocators of these terms leased indexes, or may lease indexes
    from now on.
    """
    for event in events:
        if isinstance(event, AllocatorAttached) and event.tree == tree:
            yield event.term
        elif isinstance(event, OperationStarted) and event.spec.tree == tree:
            yield event.block_term
        elif isinstance(event, BlockDrawn) and event.tree == tree:
            yield event.term


def _learn_start(facts: Facts, operation: Operation | None, event: OperationStarted, news: OperationNews) -> None:
    live = started_in(event, facts.tree)
    if operation is None and live is not None:
        _add(facts, live, news)


def _learn(facts: Facts, operation: Operation, event: OperationEvent, news: OperationNews) -> None:
    match event:
        case OperationStateChanged():
            if event.state in FINAL_STATES:
                _forget(facts, operation, news)
                return
            if operation.slots.free is not None and event.state is OperationState.RUNNING:
                # Nothing to do here: `OperationPlaced` events say in which of its trees the operation runs.
                return
            operation.set_state(event.state, suspended=operation.suspended)
            if operation.taken_back is not None:
                news.hold(operation)
        case OperationSuspended():
            operation.ends_running_jobs = event.abort_running_jobs
            operation.set_state(operation.state, suspended=event.suspended)
            if operation.taken_back is not None:
                news.hold(operation)
        case BlockDrawn() | IndexesReturned() if operation.slots.free is not None:
            _learn_owners(facts, operation, event, news)
            return
        case BlockDrawn():
            operation.slots.draw(event.below)
            operation.block_term = event.term
        case JobsEnded():
            if all(_is_known(operation, one) for one in event.ends):
                # Most of these events say nothing new: the node reported the end to this allocator before the ledger recorded it.
                return
            for one in event.ends:
                _end(operation, one.end.index, one.end.attempt)
                if one.retry is not None:
                    operation.slots.retry(one.retry)
                elif one.end.result is JobResult.COMPLETED:
                    operation.slots.unsettled.discard(one.end.index)
            _raise_memory(facts, operation, [one.retry for one in event.ends if one.retry is not None])
        case JobsRetried():
            for slot in event.slots:
                operation.slots.retry(slot)
            _raise_memory(facts, operation, event.slots)
        case ParametersChanged():
            facts.set_spec(operation, msgspec.structs.replace(operation.spec, weight=event.weight_in(facts.tree)))
        case OperationPlaced(placement=placement) if placement.tree == facts.tree:
            facts.set_spec(operation, msgspec.structs.replace(operation.spec, pool=placement.pool))
            judge_size(facts, operation)
            if not operation.ending:
                waits = placement.blocked_by is not None
                state = OperationState.PENDING if waits else OperationState.RUNNING
                operation.set_state(state, suspended=operation.suspended)
        case OperationLeftTree(tree=facts.tree):
            operation.set_state(OperationState.ABORTING, suspended=operation.suspended)
            news.hold(operation)
        case OperationPlaced() | OperationLeftTree() | OperationStarted() | IndexesReturned() | SessionNoted():
            return
        case _:
            assert_never(event)
    _note_change(facts, operation, news)


def _learn_owners(facts: Facts, operation: Operation, event: BlockDrawn | IndexesReturned, news: OperationNews) -> None:
    """Record that indexes of an operation of several trees changed owners: a tree leased or released them. A known change is ignored."""
    if event.change <= operation.changes:
        return
    operation.changes = event.change
    is_ours, returning = event.tree == facts.tree, operation.returning
    operation.returning = None
    if isinstance(event, BlockDrawn):
        operation.slots.share(event.below, event.runs if is_ours else (), event.free)
        operation.drawing &= not is_ours
    elif is_ours and not event.runs:
        # The event has no indexes: this tree has released all indexes that it had, so for this tree the operation is over.
        _forget(facts, operation, news)
        return
    else:
        operation.slots.free = event.free
        if is_ours and not operation.slots.are_ours:
            # Another allocator of this tree leads and has released these indexes. (A leader removes indexes from its slots before it
            # releases them, so for a leader there is nothing to do.)
            for run in event.runs:
                for index in range(run.first, run.below):
                    operation.slots.lose(index)
    if returning is not None and not (is_ours and isinstance(event, IndexesReturned)):
        operation.slots.share(0, returning.runs, event.free)
    _note_change(facts, operation, news)


def _add(facts: Facts, live: LiveOperation, news: OperationNews) -> None:
    operation = Operation(live, next(facts.arrivals), facts.term)
    if operation.gang is not None:
        facts.gangs.of[operation.id] = operation
    facts.operations[live.operation] = facts.in_pool[live.spec.pool][live.operation] = operation
    facts.failing.note_operation(operation)
    note_limits(facts, operation)
    if facts.recovery.doubt_over:
        operation.slots.release_doubt()
    judge_size(facts, operation)
    _note_change(facts, operation, news)


def _update(facts: Facts, operation: Operation, live: LiveOperation, news: OperationNews) -> None:
    """Update a known operation from the ledger's full state, which stands in for the events of the log that were missed."""
    operation.ends_running_jobs = live.ends_running_jobs
    operation.set_state(live.state, suspended=live.suspended)
    facts.set_spec(operation, live.spec)
    judge_size(facts, operation)
    if live.free is None:
        operation.block_term = live.block_term
        operation.slots.draw(live.block)
    else:
        operation.slots.share(live.block, (), live.free)
    for slot in newer_attempts(operation.slots, live.attempts):
        _end(operation, slot.index, slot.attempt - 1)
        operation.slots.retry(slot)
    _raise_memory(facts, operation, live.attempts)
    for index in not_ended(operation.slots, live.done):
        _end(operation, index, operation.slots.attempt(index))
    for index in [index for index in operation.slots.unsettled if live.done[index >> 3] >> (index & 7) & 1]:
        operation.slots.unsettled.discard(index)
    operation.slots.pausing = live.pausing
    if live.free is not None:
        _update_owners(operation, live)
    _note_change(facts, operation, news)


def _update_owners(operation: Operation, live: LiveOperation) -> None:
    """Take over from the ledger's full state which indexes are this tree's.

    Indexes that this tree is releasing do not count as its own while the ledger may still accept the release.
    """
    slots, returning = operation.slots, operation.returning
    not_ours = [index for index in range(live.block) if live.done[index >> 3] >> (index & 7) & 1]
    for index in not_ours:
        slots.lose(index)
    ends = [0, *(index + 1 for index in not_ours)]
    ours = [IndexRun(first, below) for first, below in zip(ends, [*not_ours, live.block], strict=True) if first < below]
    if returning is not None and live.changes > returning.change:
        operation.returning = returning = None
    slots.share(live.block, ours, live.free or 0)
    for run in returning.runs if returning is not None else ():
        for index in range(run.first, run.below):
            slots.lose(index)
    operation.changes, operation.drawing = live.changes, False


def _is_known(operation: Operation, one: LoggedEnd) -> bool:
    """True if the end of a run changes nothing here.

    Always False for a gang, since its phases follow what the ledger has recorded. Always False for an operation that is ending, since after
    the end of its last job the operation may be released. Always False for an operation of several trees, since an end may let other trees
    run jobs.
    """
    if one.retry is not None or operation.gang is not None or operation.ending or operation.slots.free is not None:
        return False
    return has_ended(operation.slots, one.end.index, one.end.attempt)


def _raise_memory(facts: Facts, operation: Operation, retried: Iterable[Retry]) -> None:
    """Compute the sizes of jobs whose memory was raised, if it was raised for any of the retried jobs."""
    if operation.spec.memory_on_oom and any(slot.memory_step for slot in retried):
        judge_size(facts, operation)


def _end(operation: Operation, index: int, attempt: int) -> None:
    """Apply the end of a run that the ledger has recorded. If another allocator reported the end to the ledger, an allocation known to this
    allocator may still hold the job.
    """
    if operation.slots.is_out(index) and attempt >= operation.slots.attempt(index):
        for allocation in operation.allocations.values():
            if index in allocation.slots:
                allocation.drop(index)
    operation.slots.end(index, attempt)


def _forget(facts: Facts, operation: Operation, news: OperationNews) -> None:
    let_go(facts, operation)
    facts.gangs.forget(operation.id)
    facts.forget(operation)
    news.changed[operation.id] = None
    news.hold(operation)


def _note_change(facts: Facts, operation: Operation, news: OperationNews) -> None:
    facts.note_jobs(operation)
    news.changed[operation.id] = None
