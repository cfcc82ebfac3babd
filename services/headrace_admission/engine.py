"""The decisions of admission: which operations start, run and wait, and what people change while they do.

Every `on_…` looks at the state, decides on events, and has taken each of them into the state (`AdmissionState`) before it decides on
the next; it returns them with the answer. The shell records the events, and only then lets the answer out.
"""

from __future__ import annotations

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.near import near
from headrace.wire import operations as wire
from headrace.wire.log import (
    Event,
    OperationLeftTree,
    StateCause,
)
from headrace.wire.nodes import Enrol, NodeRecord
from headrace.wire.operations import OperationState
from headrace.wire.refusals import (
    NotAllowed,
    NotFound,
    Refusal,
    WrongState,
)
from headrace_admission.decisions import promotion
from headrace_admission.decisions.starts import LARGEST_SPEC_BYTES, Caps
from headrace_admission.decisions.transaction import Decision
from headrace_admission.decisions.updates import UpdateEngine
from headrace_admission.queries import Queues, counted_pools, levels_of, list_operations
from headrace_admission.state.life import is_final
from headrace_admission.state.rules import TreeRules

__all__ = ["LARGEST_SPEC_BYTES", "AdmissionEngine", "Caps", "Decision"]


class AdmissionEngine(UpdateEngine):
    """All operations, of all trees."""

    # --- what people ask ------------------------------------------------------------------------------------------

    def on_get(self, request: wire.GetOperation) -> wire.OperationView | Refusal:
        operation = self.operations.get(request.operation)
        return Queues(self).view(operation) if operation else self._no_operation(request.operation)

    def on_list(self, request: wire.ListOperations) -> wire.OperationList | Refusal:
        """Newest first; an unknown state is refused."""
        return list_operations(self, request)

    def on_explain(self, request: wire.ExplainOperation) -> wire.OperationExplanation | Refusal:
        """Every level that an operation's slot is counted at; none for one that is over."""
        operation = self.operations.get(request.operation)
        if operation is None:
            return self._no_operation(request.operation)
        over = is_final(operation.state)
        book = self.books[operation.spec.tree]
        return wire.OperationExplanation(
            view=Queues(self).view(operation),
            levels=[] if over else levels_of(self, operation),
            lightweight=not over and book.is_lightweight(operation.spec.pool, vanilla=operation.is_vanilla),
        )

    def on_counts(self, request: wire.CountPools) -> wire.PoolCounts | Refusal:
        """Pools of a tree by name, those that live by their operations included, with what their limits compare."""
        if request.tree not in self.configured:
            return NotFound("tree", request.tree, near=near(request.tree, self.configured))
        book = self.books[request.tree]
        if request.pool and not book.exists(request.pool):
            return NotFound("pool", request.pool, near=near(request.pool, [*book.rules.pools, *book.ephemeral]))
        return counted_pools(self, request)

    def on_jobs(self, request: wire.GetJobs) -> wire.JobPage | Refusal:
        operation = self.operations.get(request.operation)
        if operation is None:
            return self._no_operation(request.operation)
        rows = operation.ledger.rows(request.first, request.limit)
        return wire.JobPage(operation=operation.id, jobs=rows, job_count=operation.spec.job_count)

    # --- configuration, time, nodes -------------------------------------------------------------------------------

    def on_pools(self, tree: TreeName, rules: TreeRules, now_ms: int) -> list[Event]:
        """A tree's configuration, as it is now."""
        self._begin(now_ms)
        self._take_rules(tree, rules)
        return self._decided()

    def on_tree_removed(self, tree: TreeName, now_ms: int) -> list[Event]:
        """A tree is configured no more: operations lose it; those that ran there or have no other are aborted."""
        self._begin(now_ms)
        self.configured.discard(tree)
        for name in list(self.books[tree].members) if tree in self.books else []:
            operation = self.live[name]
            runs_here = operation.spec.tree == tree and operation.state is not OperationState.PENDING
            if runs_here or len(operation.placements) == 1:
                self._change(operation, StateCause.TREE_REMOVED, f"tree {tree} was removed")
            else:
                self._record(OperationLeftTree(name, tree))
        return self._decided()

    def on_scan_asked(self, user: str, now_ms: int) -> Decision:
        """A scan out of turn, for administrators."""
        if not self.caps.person(user).administrator:
            return self._answer(NotAllowed(who=user, what="have the queues judged anew; administrators may"))
        before = self.waiting
        events = self.on_scan(now_ms)
        return Decision(events, wire.Scanned(promoted=max(0, before - self.waiting), still_waiting=self.waiting))

    @property
    def waiting(self) -> int:
        """How many places in queues are taken, in all trees."""
        return sum(len(queue) for book in self.books.values() for queue in book.queues.values())

    def on_scan(self, now_ms: int) -> list[Event]:
        """Judges everybody anew who waits."""
        self._begin(now_ms)
        for tree in self.configured:
            promotion.scan(tree, self.books[tree], self._decide)
            if not self.books[tree].rules.promote_only_on_scan:
                promotion.settle(tree, self.books[tree], self._decide, moved=False)
        return self._decided()

    def on_enrol(self, request: Enrol, known: NodeRecord | None, now_ms: int) -> NodeRecord | Refusal:
        """The record to keep of a node; a node stays in its tree and keeps its drain."""
        if known is None:
            return NodeRecord(
                node=request.node, tree=request.tree, tags=sorted(set(request.tags)), enrolled_at_ms=now_ms
            )
        if known.tree != request.tree:
            return WrongState("node", request.node, f"in tree {known.tree}", f"a node of tree {request.tree}")
        return msgspec.structs.replace(known, tags=sorted(set(request.tags)))

    def knows_pool(self, tree: TreeName, pool: PoolName) -> bool:
        """True for a configured pool and for one that lives by its operations."""
        return tree in self.books and self.books[tree].exists(pool)

    def check(self) -> list[str]:
        """Broken invariants, in words; empty when all hold."""
        broken = super().check()
        for tree in self.configured:
            if not self.books[tree].rules.promote_only_on_scan:
                broken += [f"tree {tree}: {what}" for what in promotion.check_settled(self.books[tree])]
        return broken

    def statistics(self) -> dict[str, int]:
        return {
            "operations": len(self.operations),
            "live": len(self.live),
            "finished": len(self._finished),
            "waiting": self.waiting,
            "ephemeral_pools": sum(len(book.ephemeral) for book in self.books.values()),
            "impossible_ends": self.impossible_ends,
        }
