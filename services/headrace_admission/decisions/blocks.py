"""Blocks of jobs: an allocator attaches with its term, and draws indexes that it may give out.

Of an operation of several trees each draws a part of what is left, so that none sits on jobs that another could run at once.
"""

from __future__ import annotations

from typing import Final

from headrace.ids import TreeName
from headrace.wire.ledger import Attach, Attached, DrawAnswer, DrawBlock, ReturnAnswer, ReturnIndexes
from headrace.wire.log import AllocatorAttached, BlockDrawn, IndexesReturned
from headrace.wire.operations import OperationState
from headrace.wire.refusals import BadRequest, Refusal, StaleTerm, WrongState
from headrace.wire.version import LARGEST_JUMP
from headrace_admission import queries
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.state.index_owners import IndexOwners
from headrace_admission.state.operation import Operation

#: One draw of an operation of several trees is at most its tree's part of so many.
_PARTS_OF_A_TREE: Final = 2


def refused_term(transaction: Transaction, tree: TreeName, term: int) -> Refusal | None:
    """The refusal for an allocator of a lower term than was heard of, or of one out of all reach. A higher one is recorded."""
    highest = transaction.state.allocator_terms.get(tree, 0)
    if term > highest + LARGEST_JUMP:
        # Once recorded it would shut out every allocator that takes the next term.
        return BadRequest("term", str(term), f"at most {highest + LARGEST_JUMP}")
    if term > highest:
        transaction.record(AllocatorAttached(tree, term))
    return StaleTerm(role=f"allocator.{tree}", known=highest, got=term) if term < highest else None


def attach(transaction: Transaction, request: Attach, admission_term: int) -> Attached | Refusal:
    """Lets blocks be drawn by this allocator's term from now on."""
    refused = refused_term(transaction, request.tree, request.term)
    return refused or Attached(request.term, transaction.state.sequence, admission_term)


def _asked_for(transaction: Transaction, request: DrawBlock | ReturnIndexes) -> Operation | Refusal:
    """The operation that an allocator speaks of, if the allocator may and the operation is known."""
    refused = refused_term(transaction, request.tree, request.term)
    if refused is not None:
        return refused
    known = transaction.state.operations.get(request.operation)
    return known or queries.not_found(transaction.state, request.operation)


def draw(transaction: Transaction, request: DrawBlock) -> DrawAnswer | Refusal:
    """Lets more indexes of a running operation out, up to its number of jobs."""
    operation = _asked_for(transaction, request)
    if not isinstance(operation, Operation):
        return operation
    if operation.state is not OperationState.RUNNING:
        return WrongState("operation", operation.id, operation.state.value, "running")
    if operation.ledger.owners is not None:
        return _draw_in_tree(transaction, request, operation, operation.ledger.owners)
    below = min(request.below, operation.spec.job_count)
    if below > operation.ledger.block:
        transaction.record(BlockDrawn(operation=operation.id, below=below, term=request.term))
    return DrawAnswer(operation=operation.id, below=operation.ledger.block)


def return_indexes(transaction: Transaction, request: ReturnIndexes) -> ReturnAnswer | Refusal:
    """Takes indexes back that a tree has not given out, for each tree to draw. Refused if owners have changed meanwhile."""
    operation = _asked_for(transaction, request)
    if not isinstance(operation, Operation):
        return operation
    owners = operation.ledger.owners
    if operation.state is not OperationState.RUNNING or owners is None or owners.changes != request.change:
        # Also a repeated request comes to this: what it returned may be drawn and out again.
        changed = f"{operation.state.value}, changed {owners.changes if owners is not None else 0} times"
        return WrongState("operation", operation.id, changed, f"running, changed {request.change} times")
    transaction.record(
        IndexesReturned(
            operation=operation.id,
            tree=request.tree,
            change=owners.changes + 1,
            free=owners.free + owners.count(request.tree, request.runs),
            runs=request.runs,
        )
    )
    return ReturnAnswer(operation.id)


def _draw_in_tree(
    transaction: Transaction, request: DrawBlock, operation: Operation, owners: IndexOwners
) -> DrawAnswer | WrongState:
    placement = operation.placements.get(request.tree)
    if placement is None or placement.blocked_by is not None:
        return WrongState("operation", operation.id, f"without a slot in tree {request.tree}", "with one")
    part = max(1, owners.free // (_PARTS_OF_A_TREE * len(operation.placements)))
    runs = owners.next_free(min(request.more, part))
    drawn = sum(run.below - run.first for run in runs)
    if runs:
        transaction.record(
            BlockDrawn(
                operation=operation.id,
                below=max(operation.ledger.block, runs[-1].below),
                term=request.term,
                tree=request.tree,
                runs=runs,
                change=owners.changes + 1,
                free=owners.free - drawn,
            )
        )
    return DrawAnswer(operation=operation.id, below=operation.ledger.block, drawn=drawn)
