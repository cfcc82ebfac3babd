"""Starvation of every element, one after the other: sections 1.3 and 5 of the allocation rules as they are written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.pools import PoolConfig, PoolTree
from headrace.resources import EPS, Share
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.snapshots import ElementKind, ShareItem

__all__ = ["Judged", "PlainStarvation", "Waiting"]

NON_STARVING, STARVING, AGGRESSIVE = 0, 1, 2


@dataclass(frozen=True)
class Waiting:
    """An operation: its spec, and what of it waits."""

    spec: OperationSpec
    needed_slots: int
    min_needed: Share


@dataclass
class Judged:
    """An element, as it was judged last."""

    below_since: float | None = None
    starving: int = NON_STARVING
    short_since: float | None = None
    starves_for_guarantee: bool = False
    priority: int = 0

    @property
    def starvation(self) -> int:
        return max(self.starving, STARVING if self.starves_for_guarantee else NON_STARVING)


@dataclass
class PlainStarvation:
    """All elements of a tree over time."""

    judged: dict[str, Judged] = field(default_factory=dict)

    def update(
        self, now_ms: int, tree: PoolTree, items: Mapping[str, ShareItem], operations: Mapping[str, Waiting]
    ) -> None:
        """Judges every element by its shares."""
        for key, item in items.items():
            element = self.judged.setdefault(key, Judged())
            if item.kind is ElementKind.POOL:
                if tree.options.enable_pool_starvation:
                    self._pool(element, now_ms, tree, item)
            elif item.kind is ElementKind.OPERATION:
                self._operation(element, now_ms, tree, item, operations[key])
        for key, item in items.items():
            if item.kind is ElementKind.OPERATION:
                self.judged[key].priority = self._priority(tree, item) if item.schedulable else 0

    def _pool(self, element: Judged, now: int, tree: PoolTree, item: ShareItem) -> None:
        above = [tree.settings(name) for name in tree.upwards(item.name)]  # type: ignore[arg-type]
        below = _exceeds(_times(_tolerance(tree, above), item), item.usage_share, item)
        _step(
            element,
            now,
            below,
            _timeout(tree, above),
            tree.options.fair_share_aggressive_starvation_timeout,
            _may(tree, above),
        )
        timeout = _nearest(
            [each.min_share_preemption_timeout for each in above], tree.options.min_share_preemption_timeout
        )
        owed = tuple(map(min, item.strong_guarantee_share, item.demand_share))
        if timeout is None or not _exceeds(owed, item.usage_share, item):
            element.short_since, element.starves_for_guarantee = None, False
        elif element.short_since is None:
            element.short_since = now
        elif now > element.short_since + timeout:
            element.starves_for_guarantee = True

    def _operation(self, element: Judged, now: int, tree: PoolTree, item: ShareItem, work: Waiting) -> None:
        options = tree.options
        above = [tree.settings(name) for name in tree.upwards(item.parent)]
        own = work.spec.fair_share_starvation_tolerance
        tolerance = min(_tolerance(tree, above), 1.0 if own is None else own)
        timeout = max(_timeout(tree, above), work.spec.fair_share_starvation_timeout_ms or 0)
        fair, usage = item.fair_share.total, item.usage_share
        below = item.schedulable
        if all(f + 1e-4 >= d for f, d in zip(fair, item.demand_share, strict=True)):
            tolerance = 1.0
        elif options.enable_absolute_fair_share_starvation_tolerance:
            gap = tuple(f - u for f, u in zip(fair, usage, strict=True))
            below = below and _exceeds(gap, work.min_needed, item)
        below = below and _exceeds(_times(tolerance, item), usage, item)
        part = min(1.0, work.needed_slots / options.allocation_count_preemption_timeout_coefficient)
        aggressive = options.fair_share_aggressive_starvation_timeout
        _step(element, now, below, timeout * part, aggressive * part, _may(tree, above))

    def _priority(self, tree: PoolTree, item: ShareItem) -> int:
        own = self.judged[item.name].starvation
        if tree.options.scheduling_preemption_priority_scope == "operation_only":
            return own
        return max(own, *(self.judged[f"/{name}"].starvation for name in tree.upwards(item.parent)))


def _step(element: Judged, now: int, below: bool, timeout: float, aggressive: float, may_be_aggressive: bool) -> None:
    if not below:
        element.below_since, element.starving = None, NON_STARVING
    elif element.below_since is None:
        element.below_since = now
    elif may_be_aggressive and now > element.below_since + aggressive:
        element.starving = AGGRESSIVE
    elif now > element.below_since + timeout:
        element.starving = STARVING


def _exceeds(one: tuple[float, ...], other: Share, item: ShareItem) -> bool:
    """True if it is more in all resources of which more fair share would help, or in any if none would.

    What rounding alone makes more is not: an operation that has its half of the cluster need not have it to the last bit.
    """
    pairs = list(zip(one, other, item.fair_share.total, item.demand_share, strict=True))
    helped = [a - b > EPS for a, b, fair, demand in pairs if fair < demand]
    return all(helped) if helped else any(a - b > EPS for a, b, _, _ in pairs)


def _times(tolerance: float, item: ShareItem) -> tuple[float, ...]:
    return tuple(min(tolerance * f, d) for f, d in zip(item.fair_share.total, item.demand_share, strict=True))


def _nearest(values: list[int | None], tree: int | None) -> int | None:
    return next((value for value in values if value is not None), tree)


def _tolerance(tree: PoolTree, above: list[PoolConfig]) -> float:
    own = [each.fair_share_starvation_tolerance for each in above if each.fair_share_starvation_tolerance is not None]
    return own[0] if own else tree.options.fair_share_starvation_tolerance


def _timeout(tree: PoolTree, above: list[PoolConfig]) -> float:
    found = _nearest([each.fair_share_starvation_timeout for each in above], tree.options.fair_share_starvation_timeout)
    return math.inf if found is None else found


def _may(tree: PoolTree, above: list[PoolConfig]) -> bool:
    own = [each.enable_aggressive_starvation for each in above if each.enable_aggressive_starvation is not None]
    return own[0] if own else tree.options.enable_aggressive_starvation
