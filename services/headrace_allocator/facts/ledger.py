"""The ledger's word on operations: all that live, or the events of its log. Saying it again changes nothing.

An operation is known from its start to its end by the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

from headrace.ids import NodeName, OperationId
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import (
    BlockDrawn,
    Event,
    JobsEnded,
    OperationEvent,
    OperationLeftTree,
    OperationPlaced,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    ParametersChanged,
)
from headrace.wire.operations import FINAL_STATES
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.operations import Operation

__all__ = ["OperationNews", "learn_events", "learn_whole"]


class OperationNews:
    """The operations that a word of the ledger changed."""

    def __init__(self) -> None:
        #: In the order of the first change; some may be gone.
        self.changed: dict[OperationId, None] = {}
        #: Nodes that hold what is to be taken back.
        self.holders: set[NodeName] = set()

    def hold(self, operation: Operation) -> None:
        """Notes the nodes that hold something of the operation."""
        self.holders.update(each.node for each in operation.allocations.values())


def learn_whole(facts: Facts, operations: Iterable[LiveOperation]) -> OperationNews:
    """Learns everything live. A known operation keeps its slots, and one that is not told of is over."""
    news = OperationNews()
    live = {operation.operation: operation for operation in operations}
    for operation in [known for name, known in facts.operations.items() if name not in live]:
        _forget(facts, operation, news)
    for each in live.values():
        known = facts.operations.get(each.operation)
        if known is None:
            _add(facts, each, news)
        else:
            _update(facts, known, each, news)
    facts.recovery.operations_known = True
    return news


def learn_events(facts: Facts, events: Iterable[Event]) -> OperationNews:
    """Learns what the log recorded, in its order."""
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


def _learn_start(facts: Facts, operation: Operation | None, event: OperationStarted, news: OperationNews) -> None:
    if event.spec.tree != facts.tree:
        # Pending so far, it is to run in another of its trees.
        if operation is not None:
            _forget(facts, operation, news)
    elif operation is None:
        _add(facts, _live_of(event), news)


def _learn(facts: Facts, operation: Operation, event: OperationEvent, news: OperationNews) -> None:
    match event:
        case OperationStateChanged():
            if event.state in FINAL_STATES:
                _forget(facts, operation, news)
                return
            operation.state = event.state
            if operation.taken_back is not None:
                news.hold(operation)
        case OperationSuspended():
            operation.suspended, operation.ends_running_jobs = event.suspended, event.abort_running_jobs
            if operation.taken_back is not None:
                news.hold(operation)
        case BlockDrawn():
            operation.slots.draw(event.below)
        case JobsEnded():
            for one in event.ends:
                _end(operation, one.end.index, one.end.attempt)
                if one.retry is not None:
                    operation.slots.retry(one.retry)
        case ParametersChanged():
            spec = msgspec.structs.replace(operation.spec, pool=event.pool, weight=event.weight)
            facts.set_spec(operation, spec)
        case OperationPlaced() | OperationLeftTree():
            # Which limits hold it back is admission's; what follows for its jobs is a change of its state.
            return
        case OperationStarted():
            return
        case _:
            assert_never(event)
    _note_change(facts, operation, news)


def _add(facts: Facts, live: LiveOperation, news: OperationNews) -> None:
    operation = facts.operations[live.operation] = Operation(live, next(facts.arrivals), facts.term)
    if facts.recovery.doubt_over:
        operation.slots.release_doubt()
    facts.judge_size(operation)
    _note_change(facts, operation, news)


def _update(facts: Facts, operation: Operation, live: LiveOperation, news: OperationNews) -> None:
    """The whole came again after a gap: it says what the missed events would have told."""
    operation.state, operation.suspended = live.state, live.suspended
    operation.ends_running_jobs = live.ends_running_jobs
    facts.set_spec(operation, live.spec)
    operation.slots.draw(live.block)
    for slot in live.attempts:
        _end(operation, slot.index, slot.attempt - 1)
        operation.slots.retry(slot)
    for index in range(live.block):
        if live.done[index >> 3] >> (index & 7) & 1:
            _end(operation, index, operation.slots.attempt(index))
    _note_change(facts, operation, news)


def _end(operation: Operation, index: int, attempt: int) -> None:
    """A run is over by the ledger. An allocation here may hold it still, if another allocator reported the end."""
    if operation.slots.is_out(index) and attempt >= operation.slots.attempt(index):
        for allocation in operation.allocations.values():
            allocation.slots.pop(index, None)
    operation.slots.end(index, attempt)


def _forget(facts: Facts, operation: Operation, news: OperationNews) -> None:
    facts.forget(operation)
    news.changed[operation.id] = None
    news.hold(operation)


def _note_change(facts: Facts, operation: Operation, news: OperationNews) -> None:
    facts.note_jobs(operation)
    news.changed[operation.id] = None


def _live_of(event: OperationStarted) -> LiveOperation:
    return LiveOperation(
        operation=event.operation,
        user=event.user,
        spec=event.spec,
        state=event.state,
        suspended=False,
        ephemeral_pool=event.ephemeral_pool,
        started_at_ms=event.at_ms,
        block=event.block,
        block_term=event.block_term,
        done=bytes((event.block + 7) // 8),
    )
