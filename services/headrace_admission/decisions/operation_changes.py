"""Changes of a live operation on request of users: abort, complete, suspend, resume, another weight or pool."""

from __future__ import annotations

import msgspec

from headrace.ids import OperationId
from headrace.wire import operations as wire
from headrace.wire.log import OperationSuspended, ParametersChanged, StateCause
from headrace.wire.operations import OperationView, PerTree
from headrace.wire.refusals import Refusal, WrongState
from headrace_admission import queries
from headrace_admission.decisions.ends_and_retries import end_operation
from headrace_admission.decisions.moves import move, plan_move
from headrace_admission.decisions.rights import no_change
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.state.operation import Operation
from headrace_admission.state.operation_states import is_ending, is_final
from headrace_admission.state.state import State


def abort(transaction: Transaction, request: wire.AbortOperation, user: str) -> OperationView | Refusal:
    """Abort an operation. An operation that is aborting already or has ended stays as it is."""
    operation = _changeable(transaction.state, request.operation, user)
    if not isinstance(operation, Operation):
        return operation
    words = f"aborted by {user}" + (f": {request.reason}" if request.reason else "")
    end_operation(transaction, operation, StateCause.ABORTED_BY_USER, words)
    return queries.view(transaction.state, operation)


def complete(transaction: Transaction, request: wire.CompleteOperation, user: str) -> OperationView | Refusal:
    """End a running operation as completed. Refused in any other state."""
    operation = _changeable(transaction.state, request.operation, user)
    if not isinstance(operation, Operation):
        return operation
    if not end_operation(transaction, operation, StateCause.COMPLETED_BY_USER, f"completed by {user}"):
        return WrongState("operation", operation.id, operation.state.value, "running")
    return queries.view(transaction.state, operation)


def suspend(transaction: Transaction, request: wire.SuspendOperation, user: str) -> OperationView | Refusal:
    """Suspend an operation. A later request with `abort_running_jobs` also ends its running jobs. Refused once the operation is ending."""
    operation = _changeable(transaction.state, request.operation, user)
    if not isinstance(operation, Operation):
        return operation
    if is_ending(operation.state) or is_final(operation.state):
        return WrongState("operation", operation.id, operation.state.value, "pending or running")
    if not operation.suspended or request.abort_running_jobs:
        _record_suspended(transaction, operation, suspended=True, abort_running_jobs=request.abort_running_jobs)
    return queries.view(transaction.state, operation)


def resume(transaction: Transaction, request: wire.ResumeOperation, user: str) -> OperationView | Refusal:
    """Resume a suspended operation. Refused if it is not suspended."""
    operation = _changeable(transaction.state, request.operation, user)
    if not isinstance(operation, Operation):
        return operation
    if not operation.suspended or is_final(operation.state):
        state = operation.state.value if is_final(operation.state) else "not suspended"
        return WrongState("operation", operation.id, state, "suspended")
    _record_suspended(transaction, operation, suspended=False)
    return queries.view(transaction.state, operation)


def update(transaction: Transaction, request: wire.UpdateOperation, user: str) -> OperationView | Refusal:
    """Change weight, pool and time limit: either everything that was requested, or nothing."""
    operation = _changeable(transaction.state, request.operation, user)
    if not isinstance(operation, Operation):
        return operation
    targets = plan_move(transaction.state, operation, request, user)
    if not isinstance(targets, dict):
        return targets
    _set_parameters(transaction, operation, request)
    move(transaction, operation, targets)
    return queries.view(transaction.state, operation)


def _changeable(state: State, name: OperationId, user: str) -> Operation | Refusal:
    """Return the operation with this id, or a refusal for a user who may not change it."""
    operation = state.operations.get(name)
    if operation is None:
        return queries.not_found(state, name)
    return no_change(state, operation, user) or operation


def _record_suspended(
    transaction: Transaction, operation: Operation, *, suspended: bool, abort_running_jobs: bool = False
) -> None:
    transaction.record(
        OperationSuspended(
            operation.id, suspended=suspended, at_ms=transaction.now_ms, abort_running_jobs=abort_running_jobs
        )
    )


def _set_parameters(transaction: Transaction, operation: Operation, request: wire.UpdateOperation) -> None:
    """Record the new weights, for all trees and for single trees, and the new time limit."""
    spec = operation.spec
    per_tree = dict(spec.scheduling_options_per_pool_tree)
    for tree, said in request.scheduling_options_per_pool_tree.items():
        known = per_tree.get(tree, PerTree())
        per_tree[tree] = PerTree(said.pool or known.pool, said.weight or known.weight)
    if request.weight is not None:
        # A new weight for the whole operation replaces all weights for single trees.
        per_tree = {tree: msgspec.structs.replace(said, weight=None) for tree, said in per_tree.items()}
    weight, limit_ms = request.weight or spec.weight, request.operation_time_limit_ms
    is_same_limit = limit_ms is None or limit_ms == (spec.operation_time_limit_ms or 0)
    if weight != spec.weight or per_tree != spec.scheduling_options_per_pool_tree or not is_same_limit:
        transaction.record(
            ParametersChanged(
                operation=operation.id,
                pool=spec.pool,
                weight=weight,
                ephemeral_pool=operation.ephemeral_pool,
                at_ms=transaction.now_ms,
                per_tree=per_tree,
                operation_time_limit_ms=None if is_same_limit else limit_ms,
            )
        )
