"""The allocator's side of operations: what the ledger says of them, as it says it.

An operation is in the books from its start to its end by the log. Every change gives it its place in the order, draws indexes where
few are left, and nudges as many nodes as it can use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

import msgspec

from headrace.ids import OperationId, TreeName
from headrace.wire.heartbeat import TakeBackReason
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import (
    BlockDrawn,
    EphemeralPoolAdopted,
    EphemeralPoolSet,
    Event,
    JobsEnded,
    OperationLeftTree,
    OperationPlaced,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    ParametersChanged,
)
from headrace.wire.operations import FINAL_STATES
from headrace_allocator.decision.placing import Scheduler
from headrace_allocator.effects import Draw, Effect, NudgeNode, Release
from headrace_allocator.facts.facts import Books, OperationBook
from headrace_allocator.facts.recovery import Recovery

__all__ = ["OperationsDesk"]

#: Nodes that one operation's news may nudge at once.
_MOST_NUDGES: Final = 200


class OperationsDesk:
    """Keeps the operations of the books in line with the ledger."""

    def __init__(self, books: Books, scheduler: Scheduler, recovery: Recovery, tree: TreeName, term: int) -> None:
        self._books = books
        self._scheduler = scheduler
        self._recovery = recovery
        self._tree = tree
        self._term = term
        self._arrivals = 0

    def on_operations(self, operations: Iterable[LiveOperation]) -> list[Effect]:
        """Everything live, as the ledger has it; what is known already keeps its slots, what is not there is over."""
        effects: list[Effect] = []
        live = {operation.operation: operation for operation in operations}
        for name in [name for name in self._books.operations if name not in live]:
            effects += self._forget_operation(name)
        for operation in live.values():
            if operation.operation in self._books.operations:
                effects += self._update_operation(operation)
            else:
                effects += self._add_operation(operation)
        self._recovery.operations_known = True
        return effects

    def on_events(self, events: Iterable[Event]) -> list[Effect]:
        """What the log recorded. An event that is known already changes nothing."""
        effects: list[Effect] = []
        for event in events:
            if isinstance(event, EphemeralPoolSet | EphemeralPoolAdopted):
                continue
            operation = self._books.operations.get(event.operation)
            match event:
                case OperationStarted():
                    effects += self._on_started(operation, event)
                case OperationStateChanged():
                    effects += self._on_state(operation, event)
                case BlockDrawn():
                    if operation is not None:
                        operation.slots.draw(event.below)
                        effects += self.changed(operation)
                case JobsEnded():
                    effects += self._on_jobs_ended(operation, event)
                case OperationSuspended():
                    if operation is not None:
                        effects += self._on_suspended(operation, event)
                case ParametersChanged():
                    if operation is not None:
                        self._books.limits.move(operation, event.pool)
                        operation.spec = msgspec.structs.replace(operation.spec, pool=event.pool, weight=event.weight)
                        self._scheduler.mark(operation.id)
                case OperationPlaced() | OperationLeftTree():
                    # Which limits hold it back is admission's; what follows for its jobs is a change of its state.
                    pass
                case _:
                    assert_never(event)
        return effects

    def on_drawn(self, operation: OperationId, below: int | None) -> list[Effect]:
        """The ledger's answer to a `Draw`; None: it could not be had, it is asked again on the next occasion."""
        book = self._books.operations.get(operation)
        if book is None:
            return []
        book.drawing = False
        if below is None:
            return []
        book.slots.draw(below)
        return self.changed(book)

    def _on_started(self, operation: OperationBook | None, event: OperationStarted) -> list[Effect]:
        if event.spec.tree != self._tree:
            # Pending so far, it is to run in another of its trees.
            return self._forget_operation(operation.id) if operation is not None else []
        return self._add_operation(_live_of(event)) if operation is None else []

    def _on_suspended(self, operation: OperationBook, event: OperationSuspended) -> list[Effect]:
        operation.suspended, operation.ends_running_jobs = event.suspended, event.abort_running_jobs
        effects = self.changed(operation)
        if operation.taken_back is not None:
            effects += [NudgeNode(node) for node in sorted({each.node for each in operation.allocations.values()})]
        return effects

    def _add_operation(self, live: LiveOperation) -> list[Effect]:
        self._arrivals += 1
        operation = OperationBook(live, self._arrivals, self._term)
        self._books.operations[operation.id] = operation
        self._scheduler.mark(operation.id)
        if self._recovery.done and operation.slots.in_doubt:
            operation.slots.release_doubt()
        return self.changed(operation)

    def _update_operation(self, live: LiveOperation) -> list[Effect]:
        """The whole came again after a gap: what the missed events would have told."""
        operation = self._books.operations[live.operation]
        operation.state, operation.suspended = live.state, live.suspended
        operation.ends_running_jobs = live.ends_running_jobs
        self._books.limits.move(operation, live.spec.pool)
        operation.spec = live.spec
        operation.slots.draw(live.block)
        for slot in live.attempts:
            operation.slots.retry(slot)
        for index in range(live.block):
            if live.done[index >> 3] >> (index & 7) & 1:
                operation.slots.end(index, operation.slots.attempt(index))
        return self.changed(operation)

    def _forget_operation(self, name: OperationId) -> list[Effect]:
        operation = self._books.operations.pop(name)
        self._books.limits.free(operation, operation.usage + operation.precommit)
        self._scheduler.order.remove(name)
        self._books.gone.add(name)
        nodes = set()
        for allocation in operation.allocations.values():
            # The book of the operation is closed; what still stands on nodes goes as they report.
            allocation.take_back = TakeBackReason.OPERATION_ENDED
            allocation.slots.clear()
            nodes.add(allocation.node)
        return [NudgeNode(node) for node in sorted(nodes)]

    def _on_state(self, operation: OperationBook | None, event: OperationStateChanged) -> list[Effect]:
        if operation is None:
            return []
        if event.state in FINAL_STATES:
            return self._forget_operation(operation.id)
        operation.state = event.state
        if not operation.ending:
            return self.changed(operation)
        self._scheduler.refresh(operation)
        self._books.touched.add(operation.id)
        nudges: list[Effect] = [NudgeNode(node) for node in sorted({a.node for a in operation.allocations.values()})]
        if self.is_released(operation):
            operation.release_told = True
            nudges.append(Release([operation.id]))
        return nudges

    def _on_jobs_ended(self, operation: OperationBook | None, event: JobsEnded) -> list[Effect]:
        if operation is None:
            return []
        for one in event.ends:
            operation.slots.end(one.end.index, one.end.attempt)
            if one.retry is not None:
                operation.slots.retry(one.retry)
        return self.changed(operation)

    def changed(self, operation: OperationBook) -> list[Effect]:
        """Its jobs to give out changed: its place in the order, indexes to draw, nodes to nudge."""
        self._books.touched.add(operation.id)
        self._scheduler.refresh(operation)
        return [*self.draw(operation), *self.nudges(operation)]

    def draw(self, operation: OperationBook) -> list[Effect]:
        """Asks for more indexes where few are left."""
        below = self._scheduler.wants_block(operation)
        if below is None:
            return []
        operation.drawing = True
        return [Draw(operation.id, below)]

    def nudges(self, operation: OperationBook) -> list[Effect]:
        """As many nodes with room as the operation can use, no more."""
        if operation.id not in self._scheduler.order or max(operation.fair_share) == 0.0:
            return []
        wanted = operation.slots.ready_count
        effects: list[Effect] = []
        for name, node in self._books.nodes.items():
            if wanted <= 0 or len(effects) >= _MOST_NUDGES:
                break
            places = operation.spec.resources.times_that_fit(node.free) if node.accepts_jobs else 0
            if places:
                wanted -= places
                if not node.nudged:
                    node.nudged = True
                    effects.append(NudgeNode(name))
        return effects

    def is_released(self, operation: OperationBook) -> bool:
        """True when an ending operation holds nothing on any node, and nobody was told yet."""
        return operation.ending and not operation.allocations and self._recovery.done and not operation.release_told


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
