"""The configuration of one tree as it is written, and the decisions on changes of it; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from headrace.ids import PoolName, TreeName
from headrace.resources import Resources
from headrace.wire.pools import CreatePool, IntegralType, PoolChanged, PoolSettings, RemovePool, SetPool, Tree
from headrace.wire.refusals import BadRequest, NotFound, Refusal, WrongState
from headrace_fair_share.pools import with_changes
from headrace_fair_share.tree import Change, PoolTree

__all__ = ["ChangeRequest", "PoolBook"]

ChangeRequest = CreatePool | SetPool | RemovePool


class PoolBook:
    """What is configured, at which revision. A decision changes nothing; only what is written does."""

    def __init__(self, tree: TreeName) -> None:
        self._tree = tree
        self.pools = PoolTree(Tree(tree=tree))
        self.revision = 0
        #: Why what is stored cannot be used; empty while it can. What was known before stays in force.
        self.trouble = ""
        #: False until a usable configuration was seen.
        self.known = False
        self._decided_on = self.pools

    def on_tree(self, tree: Tree, revision: int) -> bool:
        """Takes what is stored at `revision`; true when something is different. An older revision, or a broken tree, changes nothing."""
        if revision <= self.revision:
            return False
        pools = PoolTree(tree)
        problems = pools.problems()
        if tree.tree != self._tree:
            problems = [NotFound(what="tree", name=tree.tree, near=[self._tree])]
        if problems:
            return self.on_unusable(revision, "; ".join(problem.text() for problem in problems[:3]))
        different = tree != self.pools.tree or bool(self.trouble)
        self.revision, self.trouble, self.known = revision, "", True
        if different:
            self.pools = pools
        return different

    def on_unusable(self, revision: int, why: str) -> bool:
        """What is stored at `revision` is no tree."""
        if revision <= self.revision:
            return False
        self.revision = revision
        self.trouble = f"the stored configuration (revision {revision}) cannot be used: {why}"
        return True

    def decide(self, request: ChangeRequest, in_use: Mapping[PoolName, int]) -> Change | Refusal:
        """The tree as it would be. `in_use` counts the operations that name a pool."""
        if self.trouble:
            return WrongState("tree", self._tree, "unusable", f"a usable configuration; {self.trouble}")
        self._decided_on = self.pools
        match request:
            case CreatePool():
                ephemeral = frozenset(name for name in in_use if name not in self.pools.pools)
                return self.pools.created(request, ephemeral)
            case SetPool():
                return self._set(request)
            case RemovePool():
                return self.pools.removed(request, in_use.get(request.name, 0))
            case _:
                assert_never(request)

    def on_written(self, change: Change, revision: int, total: Resources) -> PoolChanged:
        """The change that was decided last is durable at `revision`; what somebody wrote after it stays in force."""
        # Revisions alone do not tell: they begin anew where a bucket lost writes.
        if revision > self.revision or self.pools is self._decided_on:
            self.pools, self.revision, self.trouble, self.known = PoolTree(change.tree), revision, "", True
        return PoolChanged(name=change.name, tree=self._tree, revision=revision, warnings=self._warnings(change, total))

    def _set(self, request: SetPool) -> Change | Refusal:
        pool = self.pools.pools.get(request.name)
        if pool is None:
            return self.pools.changed(request.name, PoolSettings())
        settings = with_changes(pool.settings, request.settings)
        return settings if isinstance(settings, BadRequest) else self.pools.changed(request.name, settings)

    def _warnings(self, change: Change, total: Resources) -> list[str]:
        after = PoolTree(change.tree)
        warnings = after.overcommitted(total)
        pool = after.pools.get(change.name)
        if pool is not None and pool.settings.integral_guarantees.guarantee_type is IntegralType.BURST:
            figures = pool.settings.integral_guarantees
            if not figures.burst_guarantee_resources.whole.dominates(figures.resource_flow.whole):
                warnings.append(
                    f"burst pool {pool.name} may draw less at once than flows in: its burst is below its flow"
                )
        return warnings
