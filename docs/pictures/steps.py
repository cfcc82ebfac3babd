"""The plans of a page, and the functions of every element of a plan, one curve at a time.

A page holds its plans as JSON, in the keys of `headrace plan`; pictures and tests read them there, so that there is one source.
What an update comes to is the production algorithm's; the curves on the way are put together from `hdrf.plots` as the algorithm
says, with the guarantees, limits, weights and orders that the update found. A test holds both against each other.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from headrace.resources import EPS, RESOURCE_NAMES, Resources, parse_amount
from headrace_fair_share.hdrf.function_builder import operation_by_fit_factor
from headrace_fair_share.hdrf.model import (
    ElementShares,
    IntegralKind,
    IntegralState,
    Limits,
    Mode,
    OperationInput,
    PoolInput,
    TreeInput,
    TreeOptions,
    UpdateResult,
)
from headrace_fair_share.hdrf.plots import (
    Plot,
    compose,
    extend_right,
    lowest_of,
    narrow,
    plot_of,
    scale_argument,
    shift,
    sum_of,
    transpose,
    trim,
    trim_left,
)
from headrace_fair_share.hdrf.search import largest
from headrace_fair_share.hdrf.tree_update import TreeUpdater, update
from tests.support.savings import after

__all__ = ["PAGE", "ROOT", "Built", "Steps", "by_resource", "over_time", "plan", "plans", "sum_at", "with_options"]

PAGE: Final = Path(__file__).parents[1] / "why" / "fair-share.md"
ROOT: Final = "<Root>"
_PLAN: Final = re.compile(r"^```json plan=(\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)

_OPTIONS: Final = {
    "enable_step_function_for_gang_operations": "gang_step_function",
    "enable_fifo_children_reordering_for_guarantee_utilization": "fifo_reordering",
    "enable_improved_fair_share_by_fit_factor_computation": "improved",
    "enable_improved_fair_share_by_fit_factor_computation_distribution_gap": "distribution_gap",
}
_POOL: Final = {
    "weight": "weight",
    "compute_promised_guarantee_fair_share": "compute_promised_guarantee",
    "enable_priority_strong_guarantee_adjustment": "priority_strong_guarantee",
    "enable_priority_strong_guarantee_adjustment_donorship": "priority_strong_guarantee_donor",
}


# --- plans ----------------------------------------------------------------------------------------------------------------


@cache
def plans(page: Path = PAGE) -> dict[str, TreeInput]:
    """The plans of a page by name."""
    return {name: plan(json.loads(text)) for name, text in _PLAN.findall(page.read_text())}


def plan(given: dict[str, Any]) -> TreeInput:
    """A plan as the input of an update. Raises KeyError for keys that pages have no need of."""
    total = _whole(given["total"])
    options = {_OPTIONS[key]: value for key, value in given.get("options", {}).items()}
    pools: list[PoolInput] = []
    savings: dict[str, IntegralState] = {}
    _add_pools(given["pools"], -1, total, pools, savings)
    places = {pool.name: place for place, pool in enumerate(pools)}
    operations = []
    for started, (name, each) in enumerate(given["operations"].items()):
        operation = OperationInput(
            name=name,
            pool=places[each["pool"]],
            demand=_whole(each["resource_demand"]),
            usage=_whole(each.get("resource_usage", {})),
            gang=each.get("is_gang", False),
            start_time_ms=started,
        )
        operations.append(operation)
    return TreeInput(
        total=total,
        options=TreeOptions(**options),
        pools=pools,
        operations=operations,
        integral=savings,
    )


def _add_pools(
    given: dict[str, Any], parent: int, total: Resources, pools: list[PoolInput], savings: dict[str, IntegralState]
) -> None:
    for name, settings in given.items():
        rest = dict(settings)
        integral = rest.pop("integral_guarantees", {})
        inside, ratio = rest.pop("pools", {}), rest.pop("accumulated_resource_ratio_volume", 0.0)
        strong, limits = _partial(rest.pop("strong_guarantee_resources", {})), _partial(rest.pop("resource_limits", {}))
        pool = PoolInput(
            name=name,
            parent=parent,
            mode=Mode(rest.pop("mode", "fair_share")),
            strong_guarantee=strong,
            limits=limits,
            integral=IntegralKind(integral.get("guarantee_type", "none")),
            resource_flow=_whole(integral.get("resource_flow", {})),
            burst_guarantee=_whole(integral.get("burst_guarantee_resources", {})),
            **{_POOL[key]: value for key, value in rest.items()},
        )
        if pool.integral is not IntegralKind.NONE:
            u, c, g, m, n = (float(amount * ratio) for amount in total.as_tuple())
            savings[name] = IntegralState((u, c, g, m, n))
        pools.append(pool)
        _add_pools(inside, len(pools) - 1, total, pools, savings)


def _partial(given: dict[str, Any]) -> Limits:
    if unknown := set(given) - set(RESOURCE_NAMES):
        raise KeyError(*unknown)
    u, c, g, m, n = (parse_amount(name, str(given[name])) if name in given else None for name in RESOURCE_NAMES)
    return (u, c, g, m, n)


def _whole(given: dict[str, Any]) -> Resources:
    return Resources(*(amount or 0 for amount in _partial(given)))


# --- functions ------------------------------------------------------------------------------------------------------------


def by_resource(name: str) -> int:
    """The place of a resource among the five."""
    return RESOURCE_NAMES.index(name)


def sum_at(plots: tuple[Plot, ...], x: float) -> tuple[float, ...]:
    """All components at x."""
    return tuple(plot.value(x) for plot in plots)


@dataclass(frozen=True)
class Built:
    """The functions of one element; a plot per resource where the value is a share."""

    #: What it takes at a fit factor.
    by_fit: tuple[Plot, ...]
    #: The fit factor that each resource alone allows a suggestion, and that all allow together.
    allowed: tuple[Plot, ...]
    fit: Plot
    #: What it takes at a suggestion.
    shares: tuple[Plot, ...]


class Steps:
    """A plan's update, and the way there."""

    def __init__(self, tree: TreeInput) -> None:
        self.tree = tree
        self.result = update(tree)
        self.figures: dict[str, ElementShares] = {ROOT: self.result.root, **self.result.pools, **self.result.operations}
        names = [pool.name for pool in tree.pools]
        self.children: dict[str, list[str]] = {name: [] for name in (ROOT, *names)}
        for pool in tree.pools:
            self.children[names[pool.parent] if pool.parent >= 0 else ROOT].append(pool.name)
        for operation in tree.operations:
            self.children[names[operation.pool]].append(operation.name)
        self.fifo = {pool.name for pool in tree.pools if pool.mode is Mode.FIFO}
        for name in self.fifo:
            self.children[name].sort(key=self._place)
        self.gangs = {each.name for each in tree.operations if each.gang and tree.options.gang_step_function}
        self.built: dict[str, Built] = {}
        self._build(ROOT)
        #: Suggestion and fit factor of every element, where suggestions go down.
        self.handed: dict[str, tuple[float, float]] = {}
        if not tree.options.improved:
            self._hand(ROOT, 1.0)

    def ratio(self, pool: str, child: str) -> float:
        """How fast the suggestion of a child grows with the fit factor of its pool."""
        lightest = min(self.figures[each].weight for each in self.children[pool])
        return self.figures[child].weight / lightest

    def offers(self, pool: str, fit: float) -> list[float]:
        """Suggestions to the children of a pool."""
        if pool not in self.fifo:
            return [min(1.0, fit * self.ratio(pool, child)) for child in self.children[pool]]
        return [min(max(fit - place, 0.0), 1.0) for place in range(len(self.children[pool]))]

    def moves(self, pool: str) -> list[tuple[float, str]]:
        """The improved mode's pairs: at which fit factor of old which child may move."""
        children = self.children[pool]
        pairs = {(x, at) for at, child in enumerate(children) for plot in self.scaled(pool, child) for x in plot.xs}
        return [(x, children[at]) for x, at in sorted(pairs)]

    def scaled(self, pool: str, child: str) -> tuple[Plot, ...]:
        """What a child takes at a fit factor of its fair-share pool."""
        ratio = self.ratio(pool, child)
        return tuple(extend_right(scale_argument(plot, ratio), 1.0) for plot in self.built[child].shares)

    def _place(self, operation: str) -> int:
        figures = self.figures[operation]
        place = figures.fifo_index if figures.effective_fifo_index is None else figures.effective_fifo_index
        assert place is not None
        return place

    def _build(self, name: str) -> None:
        for child in self.children.get(name, []):
            self._build(child)
        by_fit = self._by_fit(name)
        figures = self.figures[name]
        guarantee = [
            strong + granted
            for strong, granted in zip(figures.strong_guarantee_share, figures.integral_guarantee_share, strict=True)
        ]
        allowed = tuple(
            _allowed(plot, least, most)
            for plot, least, most in zip(by_fit, guarantee, figures.limits_share, strict=True)
        )
        fit = lowest_of(allowed)
        self.built[name] = Built(by_fit, allowed, fit, tuple(compose(plot, fit) for plot in by_fit))

    def _by_fit(self, name: str) -> tuple[Plot, ...]:
        children = self.children.get(name)
        if children is None:
            figures = self.figures[name]
            usage, demand = np.array([figures.usage_share]).T, np.array([figures.demand_share]).T
            curves = operation_by_fit_factor(usage, demand, np.array([name in self.gangs]))
            return tuple(plot_of(zip(curves.x.tolist(), row, strict=True)) for row in curves.y.tolist())
        if not children:
            return (plot_of([(0.0, 0.0), (1.0, 0.0)]),) * len(RESOURCE_NAMES)
        if name in self.fifo:
            parts = [self._in_turn(child, place, len(children)) for place, child in enumerate(children)]
        elif self.tree.options.improved:
            return self._one_move_at_a_time(name)
        else:
            parts = [self.scaled(name, child) for child in children]
        return tuple(sum_of(plots) for plots in zip(*parts, strict=True))

    def _in_turn(self, child: str, place: int, count: int) -> tuple[Plot, ...]:
        return tuple(
            extend_right(plot_of([(0.0, 0.0), *shift(plot, float(place)).points]), float(count))
            for plot in self.built[child].shares
        )

    def _one_move_at_a_time(self, name: str) -> tuple[Plot, ...]:
        children, points = self.children[name], []
        scaled = {child: self.scaled(name, child) for child in children}
        for k, (x, mover) in enumerate(self.moves(name)):
            at = children.index(mover)
            for moved in (children[:at], children[: at + 1]):
                limits = [
                    [plot.right_limit(x) if child in moved else plot.value(x) for plot in scaled[child]]
                    for child in children
                ]
                points.append((float(k), [math.fsum(row) for row in zip(*limits, strict=True)]))
        return tuple(plot_of((k, shares[r]) for k, shares in points) for r in range(len(RESOURCE_NAMES)))

    def _hand(self, name: str, suggestion: float) -> None:
        built, children = self.built[name], self.children.get(name, [])
        fit = built.fit.value(suggestion)
        want = sum_at(built.shares, suggestion)

        def fits(fit: float) -> bool:
            given = [
                sum_at(self.built[child].shares, offer)
                for child, offer in zip(children, self.offers(name, fit), strict=True)
            ]
            return all(sum(row) <= most + EPS for row, most in zip(zip(*given, strict=True), want, strict=True))

        if children and not fits(fit):
            fit = largest(0.0, fit, fits)
        self.handed[name] = (suggestion, fit)
        for child, offer in zip(children, self.offers(name, fit) if children else [], strict=True):
            self._hand(child, offer)


def _allowed(plot: Plot, guarantee: float, limit: float) -> Plot:
    """The largest fit factor with which a resource stays within the guarantee plus a suggestion, and within the limit."""
    low, high = plot.ys[0], plot.ys[-1]
    most = min(max(limit, low), high)
    least = min(max(guarantee, low), most)
    return trim(extend_right(shift(trim_left(narrow(transpose(plot), least, most)), -least), 1.0))


# --- time -----------------------------------------------------------------------------------------------------------------


def with_options(tree: TreeInput, **options: bool) -> TreeInput:
    """The same plan with other options."""
    return msgspec.structs.replace(tree, options=msgspec.structs.replace(tree.options, **options))


def over_time(tree: TreeInput, seconds: Iterable[float]) -> list[UpdateResult]:
    """One update after another, each so many seconds after the one before, with the savings that it left; first the plan's own."""
    engine = TreeUpdater()
    results = [engine.update(tree).result()]
    for each in seconds:
        tree = after(msgspec.structs.replace(tree, integral=results[-1].integral), round(each * 1e6))
        results.append(engine.update(tree).result())
    return results
