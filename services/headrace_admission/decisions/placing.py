"""A new placement of an operation in one tree. The operation runs from its first slot on."""

from __future__ import annotations

from headrace.ids import OperationId
from headrace.wire.log import OperationPlaced, StateCause
from headrace.wire.operations import OperationState
from headrace.wire.placements import TreePlacement
from headrace_admission.decisions.transaction import Transaction


def place(transaction: Transaction, name: OperationId, placement: TreePlacement) -> None:
    """Set the placement of an operation. An operation that waited in all its trees runs from its first slot on."""
    transaction.record(OperationPlaced(name, placement))
    operation = transaction.state.operations[name]
    if operation.state is OperationState.PENDING and placement.blocked_by is None:
        transaction.change_state(operation, StateCause.ADMITTED)
