"""The end of an operation, and the running slots that it frees for other operations."""

from __future__ import annotations

from headrace.wire.log import StateCause
from headrace_admission.decisions.configuration import take_held_back
from headrace_admission.decisions.promotion import offer_slots
from headrace_admission.decisions.sessions import end_with_operation
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.state.operation import Operation
from headrace_admission.state.operation_states import is_final, next_state


def end_and_offer_slots(transaction: Transaction, operation: Operation, cause: StateCause, reason: str) -> bool:
    """Move an operation towards its end. Return False if the cause has no effect in the operation's present state.

    When the operation ends, its running slots are offered to waiting operations, and a configuration that waited for its end is
    applied.
    """
    state = transaction.state
    chains = {
        tree: list(state.books[tree].upwards(placement.pool))
        for tree, placement in operation.placements.items()
        if placement.blocked_by is None
    }
    following = next_state(operation.state, cause)
    if following is not None and is_final(following):
        end_with_operation(transaction, operation)
    if not transaction.change_state(operation, cause, reason):
        return False
    if is_final(operation.state):
        for tree, chain in chains.items():
            offer_slots(transaction, tree, chain)
        for tree in operation.placements:
            take_held_back(transaction, tree)
    return True
