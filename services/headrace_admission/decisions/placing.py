"""A new place for an operation in one tree. Its pool is told to everybody, and with its first slot it runs."""

from __future__ import annotations

import msgspec

from headrace.ids import OperationId, TreeName
from headrace.wire.log import OperationPlaced, OperationStarted, ParametersChanged, StateCause
from headrace.wire.operations import OperationState
from headrace.wire.placements import TreePlacement
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.state.operation import Operation

__all__ = ["place"]


def place(transaction: Transaction, name: OperationId, placement: TreePlacement) -> None:
    """Puts an operation at a place. A waiting operation that gets a slot runs from now on, in that tree."""
    transaction.record(OperationPlaced(name, placement))
    operation = transaction.state.operations[name]
    if placement.tree == operation.spec.tree and placement.pool != operation.spec.pool:
        _tell_pool(transaction, operation, placement)
    if operation.state is OperationState.PENDING and placement.blocked_by is None:
        _run_in(transaction, operation, placement.tree)
        transaction.change_state(operation, StateCause.ADMITTED)


def _tell_pool(transaction: Transaction, operation: Operation, placement: TreePlacement) -> None:
    """Tells allocator and fair share the operation's new pool."""
    transaction.record(
        ParametersChanged(
            operation=operation.id,
            pool=placement.pool,
            weight=operation.spec.weight,
            ephemeral_pool=transaction.state.books[placement.tree].is_ephemeral(placement.pool),
            at_ms=transaction.now_ms,
        )
    )


def _run_in(transaction: Transaction, operation: Operation, tree: TreeName) -> None:
    """Chooses the tree in which its jobs run: of several the first that has a slot for it."""
    if operation.spec.tree == tree:
        return
    pool = operation.placements[tree].pool
    transaction.record(
        OperationStarted(
            operation=operation.id,
            user=operation.user,
            spec=msgspec.structs.replace(operation.spec, tree=tree, pool=pool),
            state=operation.state,
            ephemeral_pool=transaction.state.books[tree].is_ephemeral(pool),
            block=operation.ledger.block,
            block_term=operation.ledger.block_term,
            at_ms=operation.started_at_ms,
            placements=list(operation.placements.values()),
        )
    )
