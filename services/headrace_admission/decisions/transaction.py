"""How decisions are made: each is an event that takes effect at once, and what follows of it is decided next.

A running slot that is given back is offered to who waits for it; an operation that gets its first slot runs from then on.
"""

from __future__ import annotations

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.wire.log import (
    Event,
    OperationPlaced,
    OperationStarted,
    OperationStateChanged,
    ParametersChanged,
    StateCause,
)
from headrace.wire.operations import OperationState
from headrace_admission.decisions import promotion
from headrace_admission.decisions.configuration import fifo_above_ephemeral, reconfigure
from headrace_admission.state.life import after, is_final
from headrace_admission.state.operation import Operation
from headrace_admission.state.rules import TreeRules
from headrace_admission.state.state import AdmissionState

__all__ = ["Deciding", "Decision"]


class Decision(msgspec.Struct, frozen=True):
    """Events to record, in this order, and the answer to let out when they are durable."""

    events: list[Event]
    answer: msgspec.Struct


class Deciding(AdmissionState):
    """The state, with the rules of the trees and the events of the decision that is being made."""

    def __init__(self, *, keep_finished: int = 10_000) -> None:
        super().__init__(keep_finished=keep_finished)
        #: Trees that are configured; the state has books of others too, while there are operations in them.
        self.configured: set[TreeName] = set()
        self._now_ms = 0
        self._events: list[Event] = []

    def _begin(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def _decided(self) -> list[Event]:
        """The events of the decision, which is over with this."""
        events, self._events = self._events, []
        return events

    def _answer(self, answer: msgspec.Struct) -> Decision:
        return Decision(self._decided(), answer)

    def _record(self, event: Event) -> None:
        self.apply(event)
        self._events.append(event)

    def _decide(self, event: Event) -> None:
        """Records what the books of trees decided; who has its first slot by it runs."""
        self._record(event)
        if not isinstance(event, OperationPlaced):
            return
        operation = self.operations[event.operation]
        if event.placement.tree == operation.spec.tree and event.placement.pool != operation.spec.pool:
            self._tell_pool(operation, event.placement.pool)
        if operation.state is OperationState.PENDING and event.placement.blocked_by is None:
            self._run_in(operation, event.placement.tree)
            self._change(operation, StateCause.ADMITTED)

    def _tell_pool(self, operation: Operation, pool: PoolName) -> None:
        """Tells those who run it in which pool it is."""
        self._record(
            ParametersChanged(
                operation=operation.id,
                pool=pool,
                weight=operation.spec.weight,
                ephemeral_pool=self.books[operation.spec.tree].is_ephemeral(pool),
                at_ms=self._now_ms,
            )
        )

    def _change(self, operation: Operation, cause: StateCause, reason: str = "") -> bool:
        """Moves it along the table of states; False where the cause means nothing to it. Slots it gives back are given on."""
        state = after(operation.state, cause)
        if state is None:
            return False
        gone = is_final(state)
        slots = self._slots(operation) if gone else []
        self._record(
            OperationStateChanged(operation=operation.id, state=state, cause=cause, reason=reason, at_ms=self._now_ms)
        )
        for tree, chain in slots:
            self._offer(tree, chain)
        if gone:
            for tree in operation.placements:
                self._retry_rules(tree)
        return True

    def _offer(self, tree: TreeName, chain: list[PoolName]) -> None:
        promotion.offer_slots(tree, self.books[tree], chain, self._decide)

    def _slots(self, operation: Operation) -> list[tuple[TreeName, list[PoolName]]]:
        """Where it holds a slot: the tree, and the pools from its own up."""
        return [
            (tree, list(self.books[tree].upwards(placement.pool)))
            for tree, placement in operation.placements.items()
            if placement.blocked_by is None
        ]

    def _run_in(self, operation: Operation, tree: TreeName) -> None:
        """Its jobs run in this tree: of several the first that has a slot for it."""
        if operation.spec.tree == tree:
            return
        pool = operation.placements[tree].pool
        self._record(
            OperationStarted(
                operation=operation.id,
                user=operation.user,
                spec=msgspec.structs.replace(operation.spec, tree=tree, pool=pool),
                state=operation.state,
                ephemeral_pool=self.books[tree].is_ephemeral(pool),
                block=operation.ledger.block,
                block_term=operation.ledger.block_term,
                at_ms=operation.started_at_ms,
                placements=list(operation.placements.values()),
            )
        )

    def _take_rules(self, tree: TreeName, rules: TreeRules) -> None:
        book = self._book(tree)
        in_the_way = fifo_above_ephemeral(book, rules) if tree in self.configured else {}
        if in_the_way:
            words = "; ".join(f"{pool} has {', '.join(below[:3])}" for pool, below in in_the_way.items())
            self.held_back[tree] = (rules, f"a fifo pool has no pools below it, but ephemeral ones live there: {words}")
            return
        self.held_back.pop(tree, None)
        self.configured.add(tree)
        reconfigure(tree, book, rules, self._decide)

    def _retry_rules(self, tree: TreeName) -> None:
        """A configuration that waited for the end of ephemeral pools is taken when they are gone."""
        held = self.held_back.get(tree)
        if held is not None:
            self._take_rules(tree, held[0])
