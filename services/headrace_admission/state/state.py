"""What admission knows, as the log tells it: operations, the ledgers of their jobs, and the books of the trees.

Event sourced: the same events give the same state, whatever the configuration is by now. An entry of the log that comes again
changes nothing (`take_entry`), so that a checkpoint may be followed by entries that it covers already.

Invariants (`check`): an operation is in `live` exactly while its state is not final; it waits only while it is pending; the order of
`operations` is the order of their starts; every ledger's and every book's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

from headrace.ids import OperationId, PoolName, TreeName
from headrace.wire.log import (
    BlockDrawn,
    EphemeralPoolAdopted,
    EphemeralPoolSet,
    Event,
    JobsEnded,
    LoggedEnd,
    OperationEvent,
    OperationLeftTree,
    OperationPlaced,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    ParametersChanged,
)
from headrace.wire.operations import OperationState
from headrace.wire.placements import EphemeralPool, TreePlacement
from headrace_admission.state.ledger import Verdict
from headrace_admission.state.life import is_final
from headrace_admission.state.operation import Operation, OperationRecord
from headrace_admission.state.rules import TreeRules
from headrace_admission.state.tree_book import TreeBook

__all__ = ["AdmissionState", "TreePools"]


class TreePools(msgspec.Struct, frozen=True):
    """The ephemeral pools of a tree, as a checkpoint keeps them."""

    tree: TreeName
    pools: list[EphemeralPool]


class AdmissionState:
    """All operations, of all trees. Changed only by `apply` and `restore`."""

    def __init__(self, *, keep_finished: int = 10_000) -> None:
        self._keep_finished = keep_finished
        #: In the order of their starts.
        self.operations: dict[OperationId, Operation] = {}
        self.live: dict[OperationId, Operation] = {}
        self._finished: dict[OperationId, None] = {}
        self.books: dict[TreeName, TreeBook] = {}
        self._allocator_terms: dict[TreeName, int] = {}
        #: Configurations that cannot be taken yet, and why.
        self.held_back: dict[TreeName, tuple[TreeRules, str]] = {}
        #: The last entry of the log that is part of this.
        self.sequence = 0

    def take_entry(self, events: Iterable[Event], sequence: int) -> None:
        """Takes an entry of the log, unless it is part of the state already."""
        if sequence > self.sequence:
            self.sequence = sequence
            for event in events:
                self.apply(event, sequence)

    def apply(self, event: Event, sequence: int = 0) -> None:
        """Takes an event that was decided or recorded. The same again, before any other, changes nothing."""
        match event:
            case EphemeralPoolSet():
                self._book(event.tree).set_ephemeral(event.pool)
                self._flag(event.tree, event.pool.name, ephemeral=True)
            case EphemeralPoolAdopted():
                self._book(event.tree).adopt(event.pool)
                self._flag(event.tree, event.pool, ephemeral=False)
            case _:
                operation = self._apply_to_operation(event)
                if operation is not None and sequence:
                    operation.sequence = sequence

    def restore(
        self, records: Iterable[OperationRecord], pools: Iterable[TreePools] = (), *, sequence: int = 0
    ) -> None:
        """Takes what a checkpoint kept, operations in the order of their starts; `sequence` is the last entry that it covers."""
        self.sequence = sequence
        for tree in pools:
            for pool in tree.pools:
                self._book(tree.tree).set_ephemeral(pool)
        waiting: list[tuple[int, Operation, TreePlacement]] = []
        for record in records:
            operation = Operation.from_record(record)
            self.operations[operation.id] = operation
            self._see_term(operation.spec.tree, operation.ledger.block_term)
            if is_final(operation.state):
                self._finished[operation.id] = None
            else:
                self.live[operation.id] = operation
                waiting += [(each.ticket, operation, each) for each in operation.placements.values()]
        for _, operation, placement in sorted(waiting, key=lambda each: each[0]):
            self._place(operation, placement)

    def ephemeral_pools(self) -> list[TreePools]:
        """For a checkpoint."""
        return [TreePools(tree, list(book.ephemeral.values())) for tree, book in self.books.items() if book.ephemeral]

    def check(self) -> list[str]:
        """Broken invariants, in words; empty when all hold."""
        broken = [
            f"{name} is {operation.state} and {'' if name in self.live else 'not '}in live"
            for name, operation in self.operations.items()
            if (name in self.live) == is_final(operation.state)
        ]
        for name, operation in self.operations.items():
            broken += [f"{name}: {what}" for what in operation.ledger.check()]
            waits = all(placement.blocked_by is not None for placement in operation.placements.values())
            if name in self.live and waits != (operation.state is OperationState.PENDING):
                broken.append(f"{name} is {operation.state} with {list(operation.placements.values())}")
        for tree, book in self.books.items():
            broken += [f"tree {tree}: {what}" for what in book.check()]
            members = {name for name, operation in self.live.items() if tree in operation.placements}
            if members != book.members.keys():
                broken.append(f"tree {tree} has other members than there are operations in it")
        return broken

    def _apply_to_operation(self, event: OperationEvent) -> Operation | None:
        operation = self.operations.get(event.operation)
        if isinstance(event, OperationStarted):
            return self._start(operation, event)
        if operation is None:
            return None
        match event:
            case OperationStateChanged():
                self._change_state(operation, event)
            case OperationPlaced():
                if operation.id in self.live:
                    self._place(operation, event.placement)
            case OperationLeftTree():
                if operation.placements.pop(event.tree, None) is not None:
                    self.books[event.tree].remove(operation.id)
            case BlockDrawn():
                operation.ledger.draw(event.below, event.term)
                self._see_term(operation.spec.tree, event.term)
            case JobsEnded():
                _book(operation, event.ends)
            case OperationSuspended():
                operation.suspended, operation.ends_running_jobs = event.suspended, event.abort_running_jobs
            case ParametersChanged():
                _change_parameters(operation, event)
            case _:
                assert_never(event)
        return operation

    def _flag(self, tree: TreeName, pool: PoolName, *, ephemeral: bool) -> None:
        for name in self._book(tree).in_pool.get(pool, ()):
            if self.live[name].spec.tree == tree:
                self.live[name].ephemeral_pool = ephemeral

    def _start(self, known: Operation | None, event: OperationStarted) -> Operation:
        if known is not None:
            known.spec = msgspec.structs.replace(known.spec, tree=event.spec.tree, pool=event.spec.pool)
            known.ephemeral_pool = event.ephemeral_pool
            return known
        operation = Operation(event.operation, event.user, event.spec, event.state, event.at_ms)
        operation.ephemeral_pool = event.ephemeral_pool
        operation.ledger.draw(event.block, event.block_term)
        self.operations[operation.id] = operation
        self.live[operation.id] = operation
        # An entry from before there were limits names no places: the operation ran in the tree of its spec.
        placements = event.placements or [TreePlacement(event.spec.tree, event.spec.pool, ticket=0)]
        for placement in placements:
            self._place(operation, placement)
        self._see_term(event.spec.tree, event.block_term)
        return operation

    def _place(self, operation: Operation, placement: TreePlacement) -> None:
        known = operation.placements.get(placement.tree)
        if known is not None and placement.ticket < known.ticket:
            return
        operation.placements[placement.tree] = placement
        self._book(placement.tree).place(operation.id, operation.user, operation.is_vanilla, placement)

    def _change_state(self, operation: Operation, event: OperationStateChanged) -> None:
        if is_final(operation.state):
            return
        operation.state = event.state
        operation.reason = event.reason
        if is_final(event.state):
            operation.ended_at_ms = event.at_ms
            del self.live[operation.id]
            for tree in operation.placements:
                self.books[tree].remove(operation.id)
            self._finished[operation.id] = None
            while len(self._finished) > self._keep_finished:
                oldest = next(iter(self._finished))
                del self._finished[oldest]
                del self.operations[oldest]

    def _book(self, tree: TreeName) -> TreeBook:
        book = self.books.get(tree)
        if book is None:
            book = self.books[tree] = TreeBook()
        return book

    def _see_term(self, tree: TreeName, term: int) -> None:
        self._allocator_terms[tree] = max(term, self._allocator_terms.get(tree, 0))


def _book(operation: Operation, ends: list[LoggedEnd]) -> None:
    for one in ends:
        if operation.ledger.judge(one.end) is Verdict.NEW:
            operation.ledger.record(one.end, one.node, one.retry)


def _change_parameters(operation: Operation, event: ParametersChanged) -> None:
    per_tree = operation.spec.scheduling_options_per_pool_tree if event.per_tree is None else event.per_tree
    operation.spec = msgspec.structs.replace(
        operation.spec, pool=event.pool, weight=event.weight, scheduling_options_per_pool_tree=per_tree
    )
    operation.ephemeral_pool = event.ephemeral_pool
