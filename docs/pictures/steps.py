"""The plans of a page, and the functions of every element of a plan, one curve at a time.

A page holds its plans as JSON, in the keys of `headrace plan`; pictures and tests read them there, so that there is one source.
Both are the production algorithm's: the functions on the way are made again with its own, one element at a time, from the
guarantees, limits, weights and orders that the update found. A test holds them against those that the update kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from headrace.resources import RESOURCE_NAMES
from headrace_fair_share.hdrf.arrays import Floats
from headrace_fair_share.hdrf.functions.by_fit_factor import operation_by_fit_factor
from headrace_fair_share.hdrf.functions.by_suggestion import functions_by_suggestion
from headrace_fair_share.hdrf.functions.curves import Curves, Functions, FunctionStore
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.share_distribution import Distribution
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from headrace_fair_share.plan.description import described
from tests.support.curves import Function
from tests.support.savings import after
from tests.support.update_result import ElementShares, UpdateResult, result_of

__all__ = ["PAGE", "ROOT", "Built", "Steps", "by_resource", "over_time", "plans", "sum_at", "with_options"]

PAGE: Final = Path(__file__).parents[1] / "why" / "fair-share.md"
ROOT: Final = "<Root>"
_PLAN: Final = re.compile(r"^```json plan=(\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


# --- plans ----------------------------------------------------------------------------------------------------------------


@cache
def plans(page: Path = PAGE) -> dict[str, TreeInput]:
    """The plans of a page by name, read as `headrace plan` reads them."""
    return {name: described(text.encode(), name).input for name, text in _PLAN.findall(page.read_text())}


# --- functions ------------------------------------------------------------------------------------------------------------


def by_resource(name: str) -> int:
    """The place of a resource among the five."""
    return RESOURCE_NAMES.index(name)


def sum_at(functions: tuple[Function, ...], x: float) -> tuple[float, ...]:
    """All components at x."""
    return tuple(function.value(x) for function in functions)


@dataclass(frozen=True)
class Built:
    """The functions of one element, one per resource for shares."""

    #: Its share at a fit factor.
    by_fit: tuple[Function, ...]
    #: The fit factor that each resource alone allows a suggestion, and that all allow together.
    allowed: tuple[Function, ...]
    fit: Function
    #: Its share at a suggestion.
    shares: tuple[Function, ...]


class Steps:
    """A plan's update, and the functions on the way there."""

    def __init__(self, tree: TreeInput) -> None:
        self.tree = tree
        updater = TreeUpdater(builds_always=True)
        shares = updater.update(tree)
        assert updater.functions is not None
        self._layout, self._builder = shares.layout, updater.functions.builder
        self.result = result_of(shares)
        self.figures: dict[str, ElementShares] = {ROOT: self.result.root, **self.result.pools, **self.result.operations}
        names = [ROOT, *(pool.name for pool in tree.pools), *(each.name for each in tree.operations)]
        elements = [0, *self._layout.of_pool.tolist(), *self._layout.of_operation.tolist()]
        self._element = dict(zip(names, elements, strict=True))
        self._name = dict(zip(elements, names, strict=True))
        self.gangs = {each.name for each in tree.operations if each.gang and tree.options.gang_step_function}
        self.built = {name: self._built(name) for name in names}
        #: Suggestion and fit factor of every element, where suggestions go down.
        self.handed: dict[str, tuple[float, float]] = {}
        if not tree.options.improved:
            self._hand_out(updater.functions.store)

    def children(self, pool: str) -> list[str]:
        """Those that stand in a pool, in the order in which a fifo pool serves them."""
        element = self._element[pool]
        children = range(self._layout.first_child[element], self._layout.end_child[element])
        return [self._name[child] for child in sorted(children, key=lambda child: self._builder.offers.rank[child])]

    def offers(self, pool: str, fit: float) -> dict[str, float]:
        """Suggestions to the children of a pool."""
        family = self._layout.children_of(np.array([self._element[pool]]))
        offers = self._builder.offers.at(family, np.full(len(family.parents), fit))
        return {
            self._name[child]: offer for child, offer in zip(family.children.tolist(), offers.tolist(), strict=True)
        }

    def moves(self, pool: str) -> list[tuple[float, str]]:
        """The improved mode's breakpoints: at which fit factor of old which child may move."""
        kept, element = self._builder.breakpoints, self._element[pool]
        assert kept is not None
        own = slice(kept.first[element], kept.first[element] + kept.count[element])
        return [(x, self._name[child]) for x, child in zip(kept.x[own].tolist(), kept.child[own].tolist(), strict=True)]

    def _built(self, name: str) -> Built:
        figures, curves = self.figures[name], self._by_fit_factor(name)
        strong, granted = np.array([figures.strong_guarantee_share]).T, np.array([figures.integral_guarantee_share]).T
        limits = np.array([figures.limits_share]).T

        def by_suggestion(wanted: Curves) -> Functions:
            # Each value is used once, so that each element gets its own.
            return functions_by_suggestion(deepcopy(wanted), strong + granted, limits)

        together = by_suggestion(curves)
        allowed = []
        for r in range(len(RESOURCE_NAMES)):
            alone = np.zeros_like(curves.y)
            alone[r] = curves.y[r]
            found = by_suggestion(Curves(curves.x, alone, curves.start))
            allowed.append(_function(found.suggestion, found.fit))
        return Built(
            by_fit=tuple(_function(curves.x, row) for row in curves.y),
            allowed=tuple(allowed),
            fit=_function(together.suggestion, together.fit),
            shares=tuple(_function(together.suggestion, row) for row in together.shares),
        )

    def _by_fit_factor(self, name: str) -> Curves:
        figures = self.figures[name]
        if name in self.result.operations:
            usage, demand = np.array([figures.usage_share]).T, np.array([figures.demand_share]).T
            return operation_by_fit_factor(usage, demand, np.array([name in self.gangs]))
        if not self.children(name):
            return Curves(np.array([0.0, 1.0]), np.zeros((len(RESOURCE_NAMES), 2)), np.array([0, 2]))
        return self._builder.by_fit_factor(np.array([self._element[name]]))

    def _hand_out(self, store: FunctionStore) -> None:
        offers, fifo = self._builder.offers, self._builder.fifo
        distribution = Distribution(self._layout, store, None, fifo, offers, distribution_gap=False)
        distribution.from_root(self.built[ROOT].fit.value(1.0))
        distribution.suggestions[0] = 1.0
        for name, suggestion in zip(self._name.values(), distribution.suggestions[[*self._name]].tolist(), strict=True):
            self.handed[name] = (suggestion, self.built[name].fit.value(suggestion))


def _function(x: Floats, y: Floats) -> Function:
    return Function(list(zip(x.tolist(), y.tolist(), strict=True)))


# --- time -----------------------------------------------------------------------------------------------------------------


def with_options(tree: TreeInput, **options: bool) -> TreeInput:
    """The same plan with other options."""
    return msgspec.structs.replace(tree, options=msgspec.structs.replace(tree.options, **options))


def over_time(tree: TreeInput, seconds: Iterable[float]) -> list[UpdateResult]:
    """Makes the plan's own update, then one after each of these times. Each goes on with the savings that the last one left."""
    engine = TreeUpdater()
    results = [result_of(engine.update(tree))]
    for each in seconds:
        tree = after(msgspec.structs.replace(tree, integral=results[-1].integral), round(each * 1e6))
        results.append(result_of(engine.update(tree)))
    return results
