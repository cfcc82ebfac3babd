"""The removal of a tree, and its consequences for the operations in it."""

from __future__ import annotations

from headrace.ids import TreeName
from headrace.wire.log import OperationLeftTree, StateCause
from headrace_admission.decisions.ends_and_retries import end_operation
from headrace_admission.decisions.transaction import Transaction


def remove_tree(transaction: Transaction, tree: TreeName) -> None:
    """Takes a tree from all its operations. Those that are in no other are aborted."""
    state = transaction.state
    state.configure(tree, None)
    for name in list(state.books[tree].members) if tree in state.books else []:
        operation = state.live[name]
        if len(operation.placements) == 1:
            end_operation(transaction, operation, StateCause.TREE_REMOVED, f"tree {tree} was removed")
        else:
            transaction.record(OperationLeftTree(name, tree))
