"""Finds the first limit of an element's fair share on the way to the root. Computed from share items alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from headrace.ids import ROOT_POOL
from headrace.resources import RESOURCE_NAMES, Resources
from headrace.wire.plan import Bound, BoundKind
from headrace.wire.snapshots import ElementKind, ShareItem

#: Largest difference of shares that count as equal in this module. It is far above the numerical error of fair shares, and far below what a
#: person can see.
NEAR: Final = 1e-7
_GANG_STOPPERS: Final = frozenset({BoundKind.FULL, BoundKind.SHAPE, BoundKind.LIMIT})
#: Kinds of limits that lie in the element itself or below it: the element would not get more if its pool had a larger share.
_OF_ITS_OWN: Final = frozenset({BoundKind.IDLE, BoundKind.MET, BoundKind.LIMIT, BoundKind.NODES, BoundKind.BELOW})


class Bindings:
    """The limits of the elements of one update, by the keys of their share items.

    `gangs` are operations that get either their whole demand or nothing.
    """

    def __init__(self, items: Mapping[str, ShareItem], total: Resources, gangs: Collection[str] = ()) -> None:
        self._items = items
        self._total = total.as_tuple()
        self._gangs = gangs
        self._root = items[f"/{ROOT_POOL}"]
        #: Share items of the children of each pool, by pool name.
        self.children: dict[str, list[ShareItem]] = {}
        #: For each fifo pool, the first position in its order at which an operation has a fair share; by pool name.
        self._first_served: dict[str, float] = {}
        for item in items.values():
            if item is not self._root:
                self.children.setdefault(item.parent, []).append(item)
            if item.fifo_index is not None and max(item.fair_share.total) > NEAR:
                first = self._first_served.get(item.parent, float("inf"))
                self._first_served[item.parent] = min(first, _rank(item))
        self._found: dict[str, Bound] = {}
        self._of_its_own: dict[str, Bound | None] = {}

    def of(self, key: str) -> Bound:
        """Return the first limit of an element's fair share on the way to the root."""
        if key not in self._found:
            self._found[key] = self._find(self._items[key])
        return self._found[key]

    def _find(self, item: ShareItem) -> Bound:
        bound = self._by_itself(item) or self._by_others(item)
        if bound.kind in _GANG_STOPPERS and self._waits_for_gangs(item):
            return Bound(BoundKind.GANG, bound.resource, bound.pool)
        return bound

    def _waits_for_gangs(self, item: ShareItem) -> bool:
        """Return True for a gang without fair share, and for a pool in which only gangs could use a larger fair share."""
        if item.kind is ElementKind.OPERATION:
            return item.key in self._gangs and max(item.fair_share.total) <= NEAR
        kinds = {self.of(child.key).kind for child in self.children.get(item.name, ())}
        return BoundKind.GANG in kinds and kinds <= {BoundKind.GANG, *_OF_ITS_OWN}

    def _by_itself(self, item: ShareItem) -> Bound | None:
        """Return the limit that lies in the element itself or below it, not in its siblings or the pools above. None if there is none."""
        if item.key not in self._of_its_own:
            self._of_its_own[item.key] = self._own(item)
        return self._of_its_own[item.key]

    def _own(self, item: ShareItem) -> Bound | None:
        if max(item.demand_share) <= 0.0:
            return Bound(BoundKind.IDLE)
        pairs = zip(item.demand_share, item.fair_share.total, strict=True)
        short = [r for r, (wants, owed) in enumerate(pairs) if wants - owed > NEAR]
        if not short:
            return Bound(BoundKind.MET)
        own = self._at_limit(item, short)
        if own is not None:
            return Bound(BoundKind.LIMIT, RESOURCE_NAMES[own])
        if item.kind is ElementKind.OPERATION:
            return Bound(BoundKind.NODES, item.short_of) if item.short_of else None
        bounds = [self._by_itself(child) for child in self.children.get(item.name, ())]
        if not {bound.kind if bound is not None else None for bound in bounds} <= _OF_ITS_OWN:
            return None
        return next((each for each in bounds if each and each.kind is BoundKind.NODES), Bound(BoundKind.BELOW))

    def _by_others(self, item: ShareItem) -> Bound:
        """Return the limit outside the element: the order of its fifo pool, a limit of a pool above, or the size of the cluster."""
        if item.fifo_index is not None and _rank(item) > self._first_served.get(item.parent, float("inf")):
            return Bound(BoundKind.FIFO, pool=item.parent)
        wanted = [r for r, share in enumerate(item.demand_share) if share > 0.0]
        above = self._items.get(f"/{item.parent}")
        while above is not None and above is not self._root:
            found = self._at_limit(above, wanted)
            if found is not None:
                return Bound(BoundKind.LIMIT, RESOURCE_NAMES[found], above.name)
            above = self._items.get(f"/{above.parent}")
        full = [r for r in wanted if self._root.fair_share.total[r] >= 1.0 - NEAR]
        if not full:
            return Bound(BoundKind.SHAPE)
        return Bound(BoundKind.FULL, RESOURCE_NAMES[max(full, key=lambda r: item.demand_share[r])])

    def _at_limit(self, item: ShareItem, wanted: list[int]) -> int | None:
        """Return a wanted resource in which the element has reached its limit, or None."""
        for r in wanted:
            limit = item.limits_share[r]
            if self._total[r] and limit < 1.0 - NEAR and item.fair_share.total[r] >= limit - NEAR:
                return r
        return None


def _rank(item: ShareItem) -> float:
    index = item.fifo_index if item.effective_fifo_index is None else item.effective_fifo_index
    return float("inf") if index is None else float(index)
