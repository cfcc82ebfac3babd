"""Leases of job indexes: an allocator attaches with its term, and leases indexes that it may assign.

If the jobs of an operation follow the jobs of another operation (`after_each`), only jobs that may run are leased. For an operation of
several trees each tree leases a part of the free indexes, so that no tree holds jobs that another tree could run at once.
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

#: For an operation of several trees, one lease has at most this part of the free indexes: 1 / (number of trees * `_PARTS_OF_A_TREE`).
_PARTS_OF_A_TREE: Final = 2


def refused_term(transaction: Transaction, tree: TreeName, term: int) -> Refusal | None:
    """Return the refusal for an allocator whose term is lower than the known term or impossibly high.

    A higher term is recorded.
    """
    highest = transaction.state.allocator_terms.get(tree, 0)
    if term > highest + LARGEST_JUMP:
        # If this term were recorded, every allocator with the next regular term would be refused.
        return BadRequest("term", str(term), f"at most {highest + LARGEST_JUMP}")
    if term > highest:
        transaction.record(AllocatorAttached(tree, term))
    return StaleTerm(role=f"allocator.{tree}", known=highest, got=term) if term < highest else None


def attach(transaction: Transaction, request: Attach, admission_term: int) -> Attached | Refusal:
    """Let the allocator of the request lease blocks with its term from now on. Allocators of lower terms are refused after that."""
    refused = refused_term(transaction, request.tree, request.term)
    return refused or Attached(request.term, transaction.state.sequence, admission_term)


def _asked_for(transaction: Transaction, request: DrawBlock | ReturnIndexes) -> Operation | Refusal:
    """Return the operation that an allocator names, or a refusal of its term or of an unknown operation."""
    refused = refused_term(transaction, request.tree, request.term)
    if refused is not None:
        return refused
    known = transaction.state.operations.get(request.operation)
    return known or queries.not_found(transaction.state, request.operation)


def draw(transaction: Transaction, request: DrawBlock) -> DrawAnswer | Refusal:
    """Lease more indexes of a running operation, up to its number of jobs."""
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
    """Release indexes that a tree has not assigned, so that any tree can lease them.

    Refused if indexes of the operation were leased or released since the change that the request names.
    """
    operation = _asked_for(transaction, request)
    if not isinstance(operation, Operation):
        return operation
    owners = operation.ledger.owners
    if operation.state is not OperationState.RUNNING or owners is None or owners.changes != request.change:
        # A repeated request is refused here too: another tree may have leased the released indexes by now.
        changed = (
            f"{operation.state.value}, with {owners.changes if owners is not None else 0} changes of its index leases"
        )
        return WrongState("operation", operation.id, changed, f"running, with {request.change} changes")
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
        return WrongState(
            "operation", operation.id, f"without a running slot in tree {request.tree}", "a running slot there"
        )
    is_shared = operation.spec.after_each is None
    part = max(1, owners.free // (_PARTS_OF_A_TREE * len(operation.placements))) if is_shared else owners.free
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
