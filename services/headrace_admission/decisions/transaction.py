"""One decision in progress: the state, the time, and the events so far."""

from __future__ import annotations

from headrace.ids import OperationId
from headrace.runtime.engine import Moment
from headrace.wire.log import Event, OperationPlaced, OperationStateChanged, StateCause
from headrace.wire.operations import OperationState
from headrace.wire.placements import TreePlacement
from headrace_admission.log.byte_budget import encode_event
from headrace_admission.state.operation import Operation
from headrace_admission.state.operation_states import next_state
from headrace_admission.state.state import State


class Transaction:
    """Collects the events of a decision. Each event takes effect at once."""

    def __init__(self, state: State, now: Moment) -> None:
        self.state = state
        self.now_ms = now.wall_ms
        #: Events to be recorded in the log, in this order.
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        """Apply an event to the state and keep it for the log. Raises `EventTooLarge` before anything takes effect."""
        encode_event(event)
        self.state.apply(event)
        self.events.append(event)

    def place(self, name: OperationId, placement: TreePlacement) -> None:
        """Set the placement of an operation in one tree. An operation that waited in all its trees runs from its first slot on."""
        self.record(OperationPlaced(name, placement, self.now_ms))
        operation = self.state.operations[name]
        if operation.state is OperationState.PENDING and placement.blocked_by is None:
            self.change_state(operation, StateCause.ADMITTED)

    def change_state(self, operation: Operation, cause: StateCause, reason: str = "") -> bool:
        """Change the state of an operation by the table of transitions. Return False if the cause has no effect in the present state."""
        state = next_state(operation.state, cause)
        if state is None:
            return False
        self.record(
            OperationStateChanged(operation=operation.id, state=state, cause=cause, reason=reason, at_ms=self.now_ms)
        )
        return True
