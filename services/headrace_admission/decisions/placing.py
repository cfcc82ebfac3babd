"""A new place for an operation in one tree. With its first slot it runs."""

from __future__ import annotations

from headrace.ids import OperationId
from headrace.wire.log import OperationPlaced, StateCause
from headrace.wire.operations import OperationState
from headrace.wire.placements import TreePlacement
from headrace_admission.decisions.transaction import Transaction


def place(transaction: Transaction, name: OperationId, placement: TreePlacement) -> None:
    """Puts an operation at a place. One that waits in all its trees runs with its first slot."""
    transaction.record(OperationPlaced(name, placement))
    operation = transaction.state.operations[name]
    if operation.state is OperationState.PENDING and placement.blocked_by is None:
        transaction.change_state(operation, StateCause.ADMITTED)
