"""The reason for which an element is owed no more: what stands first in its way upwards."""

from __future__ import annotations

from typing import Final

from headrace.pools import PoolMode
from headrace.resources import RESOURCE_NAMES
from headrace.wire.plan import Bound, BoundKind
from headrace.wire.snapshots import ShareItem
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.update.elements import Elements

#: Shares nearer than this count as equal here: far above what the search leaves, far below what a person tells apart.
_NEAR: Final = 1e-7
_GANG_STOPPERS: Final = frozenset({BoundKind.FULL, BoundKind.SHAPE, BoundKind.LIMIT})


class Bindings:
    """Answers for the elements of one computed tree, by their places."""

    def __init__(self, tree: TreeInput, elements: Elements, items: list[ShareItem]) -> None:
        self._tree = tree
        self._elements = elements
        self._items = items
        self._total = tree.total.as_tuple()
        #: By place of a fifo pool: the first place in its order at which anything is owed.
        self._first_served: dict[int, float] = {}
        for operation, item in zip(tree.operations, items[elements.pools :], strict=True):
            if tree.pools[operation.pool].mode is PoolMode.FIFO and max(item.fair_share.total) > _NEAR:
                first = self._first_served.get(operation.pool + 1, float("inf"))
                self._first_served[operation.pool + 1] = min(first, _rank(item))

    def of(self, place: int) -> Bound:
        """The first thing in the way of the element at a place."""
        if place < self._elements.pools:
            return self._of(place)
        operation = self._tree.operations[place - self._elements.pools]
        for name, wants, there in zip(RESOURCE_NAMES, operation.demand.as_tuple(), self._total, strict=True):
            if wants and not there:
                return Bound(BoundKind.ABSENT, name)
        bound = self._of(place)
        steps = self._tree.options.gang_step_function and self._tree.pools[operation.pool].gang_step_function
        gets_nothing = max(self._items[place].fair_share.total) <= _NEAR
        if operation.gang and steps and gets_nothing and bound.kind in _GANG_STOPPERS:
            return Bound(BoundKind.GANG, bound.resource, bound.pool)
        return bound

    def _of(self, place: int) -> Bound:
        item = self._items[place]
        if max(item.demand_share) <= 0.0:
            return Bound(BoundKind.IDLE)
        pairs = zip(item.demand_share, item.fair_share.total, strict=True)
        short = [r for r, (wants, owed) in enumerate(pairs) if wants - owed > _NEAR]
        if not short:
            return Bound(BoundKind.MET)
        own = self._at_limit(item, short)
        if own is not None:
            return Bound(BoundKind.LIMIT, RESOURCE_NAMES[own])
        parent = int(self._elements.parent[place])
        if item.fifo_index is not None and _rank(item) > self._first_served.get(parent, float("inf")):
            return Bound(BoundKind.FIFO, pool=item.parent)
        return self._by_others(item, parent)

    def _by_others(self, item: ShareItem, parent: int) -> Bound:
        """A limit of a pool above, or the size of the cluster."""
        wanted = [r for r, share in enumerate(item.demand_share) if share > 0.0]
        while parent > 0:
            found = self._at_limit(self._items[parent], wanted)
            if found is not None:
                return Bound(BoundKind.LIMIT, RESOURCE_NAMES[found], self._items[parent].name)
            parent = int(self._elements.parent[parent])
        root = self._items[0].fair_share.total
        full = [r for r in wanted if root[r] >= 1.0 - _NEAR]
        if not full:
            return Bound(BoundKind.SHAPE)
        return Bound(BoundKind.FULL, RESOURCE_NAMES[max(full, key=lambda r: item.demand_share[r])])

    def _at_limit(self, item: ShareItem, wanted: list[int]) -> int | None:
        """A wanted resource of which a limit lets no more through."""
        for r in wanted:
            limit = item.limits_share[r]
            if self._total[r] and limit < 1.0 - _NEAR and item.fair_share.total[r] >= limit - _NEAR:
                return r
        return None


def _rank(item: ShareItem) -> float:
    index = item.fifo_index if item.effective_fifo_index is None else item.effective_fifo_index
    return float("inf") if index is None else float(index)
