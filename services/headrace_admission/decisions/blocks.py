"""Blocks of jobs: an allocator attaches with its term, and draws indexes that it may give out."""

from __future__ import annotations

from headrace.ids import TreeName
from headrace.wire.ledger import Attach, Attached, DrawAnswer, DrawBlock
from headrace.wire.log import AllocatorAttached, BlockDrawn
from headrace.wire.operations import OperationState
from headrace.wire.refusals import NotFound, StaleTerm, WrongState
from headrace_admission import queries
from headrace_admission.decisions.transaction import Transaction

__all__ = ["attach", "draw", "stale_term"]


def stale_term(transaction: Transaction, tree: TreeName, term: int) -> StaleTerm | None:
    """The refusal for an allocator of a lower term than was heard of. A higher term is recorded."""
    highest = transaction.state.allocator_terms.get(tree, 0)
    if term > highest:
        transaction.record(AllocatorAttached(tree, term))
    return StaleTerm(role=f"allocator.{tree}", known=highest, got=term) if term < highest else None


def attach(transaction: Transaction, request: Attach, admission_term: int) -> Attached | StaleTerm:
    """Lets blocks be drawn by this allocator's term from now on."""
    stale = stale_term(transaction, request.tree, request.term)
    return stale or Attached(request.term, transaction.state.sequence, admission_term)


def draw(transaction: Transaction, request: DrawBlock) -> DrawAnswer | StaleTerm | NotFound | WrongState:
    """Lets more indexes of a running operation out, up to its number of jobs."""
    stale = stale_term(transaction, request.tree, request.term)
    if stale is not None:
        return stale
    operation = transaction.state.operations.get(request.operation)
    if operation is None:
        return queries.not_found(transaction.state, request.operation)
    if operation.state is not OperationState.RUNNING:
        return WrongState("operation", operation.id, operation.state.value, "running")
    below = min(request.below, operation.spec.job_count)
    if below > operation.ledger.block:
        transaction.record(BlockDrawn(operation=operation.id, below=below, term=request.term))
    return DrawAnswer(operation=operation.id, below=operation.ledger.block)
