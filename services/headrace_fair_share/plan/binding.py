"""The reason for which an element is owed no more: what stands first in its way upwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace.pools import PoolMode
from headrace.resources import RESOURCE_NAMES
from headrace.wire.plan import Bound, BoundKind
from headrace_fair_share.hdrf.model import ElementShares, OperationInput, PoolInput, TreeInput, UpdateResult

__all__ = ["Bindings"]

#: Shares nearer than this count as equal here: far above what the search leaves, far below what a person tells apart.
_NEAR: Final = 1e-7
_GANG_STOPPERS: Final = frozenset({BoundKind.FULL, BoundKind.SHAPE, BoundKind.LIMIT})


class Bindings:
    """Answers for the elements of one computed tree."""

    def __init__(self, tree: TreeInput, result: UpdateResult) -> None:
        self._tree = tree
        self._result = result
        self._total = tree.total.as_tuple()
        #: By fifo pool: the first place in its order at which anything is owed.
        self._first_served: dict[int, float] = {}
        for operation in tree.operations:
            shares = result.operations[operation.name]
            if tree.pools[operation.pool].mode is PoolMode.FIFO and max(shares.fair_share) > _NEAR:
                first = self._first_served.get(operation.pool, float("inf"))
                self._first_served[operation.pool] = min(first, _rank(shares))

    def of_root(self) -> Bound:
        return self._of(self._result.root, -1)

    def of_pool(self, pool: PoolInput) -> Bound:
        return self._of(self._result.pools[pool.name], pool.parent)

    def of_operation(self, operation: OperationInput) -> Bound:
        for name, wants, there in zip(RESOURCE_NAMES, operation.demand.as_tuple(), self._total, strict=True):
            if wants and not there:
                return Bound(BoundKind.ABSENT, name)
        shares = self._result.operations[operation.name]
        bound = self._of(shares, operation.pool)
        steps = self._tree.options.gang_step_function and self._tree.pools[operation.pool].gang_step_function
        if operation.gang and steps and max(shares.fair_share) <= _NEAR and bound.kind in _GANG_STOPPERS:
            return Bound(BoundKind.GANG, bound.resource, bound.pool)
        return bound

    def _of(self, shares: ElementShares, parent: int) -> Bound:
        if max(shares.demand_share) <= 0.0:
            return Bound(BoundKind.IDLE)
        pairs = zip(shares.demand_share, shares.fair_share, strict=True)
        short = [r for r, (wants, owed) in enumerate(pairs) if wants - owed > _NEAR]
        if not short:
            return Bound(BoundKind.MET)
        own = self._at_limit(shares, short)
        if own is not None:
            return Bound(BoundKind.LIMIT, RESOURCE_NAMES[own])
        if shares.fifo_index is not None and _rank(shares) > self._first_served.get(parent, float("inf")):
            return Bound(BoundKind.FIFO, pool=self._tree.pools[parent].name)
        return self._by_others(shares, parent)

    def _by_others(self, shares: ElementShares, parent: int) -> Bound:
        """A limit of a pool above, or the size of the cluster."""
        wanted = [r for r, share in enumerate(shares.demand_share) if share > 0.0]
        for pool in self._upwards(parent):
            found = self._at_limit(self._result.pools[pool.name], wanted)
            if found is not None:
                return Bound(BoundKind.LIMIT, RESOURCE_NAMES[found], pool.name)
        root = self._result.root.fair_share
        full = [r for r in wanted if root[r] >= 1.0 - _NEAR]
        if not full:
            return Bound(BoundKind.SHAPE)
        return Bound(BoundKind.FULL, RESOURCE_NAMES[max(full, key=lambda r: shares.demand_share[r])])

    def _at_limit(self, shares: ElementShares, wanted: list[int]) -> int | None:
        """A wanted resource of which a limit lets no more through."""
        for r in wanted:
            limit = shares.limits_share[r]
            if self._total[r] and limit < 1.0 - _NEAR and shares.fair_share[r] >= limit - _NEAR:
                return r
        return None

    def _upwards(self, place: int) -> Iterator[PoolInput]:
        while place >= 0:
            yield self._tree.pools[place]
            place = self._tree.pools[place].parent


def _rank(shares: ElementShares) -> float:
    index = shares.fifo_index if shares.effective_fifo_index is None else shares.effective_fifo_index
    return float("inf") if index is None else float(index)
