"""One update of the fair share of a tree, step by step; and a resident form of it that keeps what did not change.

1. What stands: guarantees, ratios, limits, weights, orders (`intake`, `fixed`).
2. Amounts, summed up; shares of the cluster; orders of fifo pools that put their guarantees to use.
3. Savings, as they are told, and what they are worth (`volumes`).
4. Functions, from the operations up (`living`, `functions`), with integral grants tried out and made on the way (`integral`).
5. Handing out, from the root down (`handing`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from headrace_fair_share.hdrf.arrays import RESOURCES, BrokenInvariant, Floats, Ints, shares_of
from headrace_fair_share.hdrf.fifo import reordered_ranks
from headrace_fair_share.hdrf.fixed_attributes import limits_of
from headrace_fair_share.hdrf.functions.incremental import FunctionInputs, IncrementalFunctions
from headrace_fair_share.hdrf.incremental_input import IncrementalInput
from headrace_fair_share.hdrf.integral import Grants, ratio_by_volume
from headrace_fair_share.hdrf.layout import Layout
from headrace_fair_share.hdrf.model import TreeInput, UpdateResult
from headrace_fair_share.hdrf.share_distribution import Distribution, detailed_shares, root_fit_factor
from headrace_fair_share.hdrf.tree_shares import TreeShares
from headrace_fair_share.hdrf.weights import offers_of

__all__ = ["TreeUpdater", "update"]

#: Larger amounts than that, nearly, are not what is in the arrays.
_LARGEST: Final = 2**63 - 2**53


def update(tree: TreeInput) -> UpdateResult:
    """One update of a tree by itself, with objects for all elements. Raises `BrokenInvariant`."""
    return TreeUpdater().update(tree).result()


class TreeUpdater:
    """Updates of one tree, one after another. What did not change since the update before is not worked out again."""

    def __init__(self) -> None:
        self._input = IncrementalInput()
        self._functions: IncrementalFunctions | None = None
        self._last: TreeShares | None = None

    @property
    def functions(self) -> IncrementalFunctions | None:
        """The functions that the last update was made with; None if it failed."""
        return self._functions

    def update(self, tree: TreeInput, *, afresh: bool = False) -> TreeShares:
        """Works out the figures of all elements; `afresh`: with all functions built anew.

        Raises `BrokenInvariant`; then the next update is made afresh.
        """
        functions, self._functions = self._functions, None
        if self._input.take(tree) or afresh or (functions is not None and functions.wasteful):
            functions = None
        fixed = self._input.fixed
        outcome, figures = self._figures(tree)
        if functions is None or fixed.integral.nested:
            layout, fifo, improved = self._input.layout, self._input.pools.fifo, tree.options.improved
            functions = IncrementalFunctions(layout, fixed, fifo, figures, improved=improved)
            self._last = None
        functions.follow(figures)
        outcome = replace(outcome, volume=self._volumes(tree))
        outcome = self._granted(outcome, functions)
        outcome = self._distributed(outcome, functions, self._last)
        self._functions, self._last = functions, outcome
        return outcome

    def _figures(self, tree: TreeInput) -> tuple[TreeShares, FunctionInputs]:
        """Amounts and shares, and all that functions are built from; an outcome of nothing but that."""
        layout, pools, fixed = self._input.layout, self._input.pools, self._input.fixed
        operations = self._input.operations
        usage, demand = summed_up(layout, operations.usage), summed_up(layout, operations.demand)
        usage_share, demand_share = shares_of(usage, fixed.total), shares_of(demand, fixed.total)
        if (usage_share > demand_share).any():
            raise BrokenInvariant("an operation uses more than it demands")
        limits = fixed.limits.copy()
        own = limits_of(operations.limits, fixed.total)
        limits[:, layout.of_operation] = np.minimum(own, np.clip(operations.best_share, 0.0, 1.0))
        wants_all = np.zeros(layout.size, np.bool_)
        wants_all[layout.of_operation] = operations.gang & tree.options.gang_step_function
        gang = wants_all & pools.gang_steps[layout.parent]
        effective = np.full(layout.size, -1, np.int64)
        if tree.options.gang_step_function and tree.options.fifo_reordering:
            effective = reordered_ranks(
                layout, pools, fixed.fifo_rank, fixed.strong, limits, demand_share, usage_share, wants_all
            )
        offers = fixed.offers
        if (effective >= 0).any():
            offers = offers_of(layout, pools, fixed.weight, np.where(effective >= 0, effective, fixed.fifo_rank))
        figures = FunctionInputs(usage_share, demand_share, limits, gang, offers)
        nothing = np.zeros((RESOURCES, layout.size))
        outcome = TreeShares(
            tree=tree,
            layout=layout,
            fixed=fixed,
            usage=usage,
            demand=demand,
            usage_share=usage_share,
            demand_share=demand_share,
            limits=limits,
            fair_share=nothing,
            details=detailed_shares(layout, nothing, nothing, nothing),
            promised=nothing,
            proposed=nothing,
            effective_rank=effective,
            volume=nothing[:, :0],
            drawn=nothing[0, :0],
        )
        return outcome, figures

    def _volumes(self, tree: TreeInput) -> Floats:
        """Savings of the integral pools."""
        integral = self._input.fixed.integral.all
        states = [tree.integral.get(name) for name in self._input.names(tree, integral)]
        return np.array([state.volume if state else (0.0,) * RESOURCES for state in states]).reshape(-1, RESOURCES).T

    def _granted(self, outcome: TreeShares, functions: IncrementalFunctions) -> TreeShares:
        """Grants to integral pools; with them, the functions of all pools below the root."""
        layout, fixed, options = outcome.layout, outcome.fixed, outcome.tree.options
        integral = fixed.integral
        states = map(outcome.tree.integral.get, self._input.names(outcome.tree, integral.all))
        drawn, ratio = np.zeros(layout.size), np.zeros(layout.size)
        drawn[integral.all] = [state.last_share_ratio if state else 0.0 for state in states]
        ratio[integral.all] = ratio_by_volume(outcome.volume, fixed.total, options.smooth_period_s)
        proposed = np.zeros_like(fixed.strong)
        grants = Grants(layout, functions, integral.paths, fixed.strong, outcome.limits, proposed, drawn)
        burst, relaxed = integral.burst, integral.relaxed
        grants.to_burst_pools(burst, np.minimum(fixed.burst[burst], ratio[burst]))
        if not options.charge_skipped_relaxed_pools:
            drawn[relaxed] = 0.0
        relaxed = relaxed[ratio[relaxed] > 0.0]
        most = self._input.pools.share_multiplier[relaxed] * fixed.ratios.flow[relaxed]
        grants.to_relaxed_pools(relaxed, ratio[relaxed], most, outcome.demand_share)
        functions.settle(proposed)
        return replace(outcome, proposed=proposed, drawn=drawn[integral.all])

    def _distributed(self, outcome: TreeShares, functions: IncrementalFunctions, last: TreeShares | None) -> TreeShares:
        """Everybody's shares; those of the update before where no function has changed since."""
        layout, fixed = outcome.layout, outcome.fixed
        if last is not None and functions.idle and (last.proposed == outcome.proposed).all():
            return replace(outcome, fair_share=last.fair_share, promised=last.promised, details=last.details)
        options, builder = outcome.tree.options, functions.builder
        distribution = Distribution(
            layout, functions.store, functions.breakpoints, builder.fifo, builder.offers, options.distribution_gap
        )
        root = np.zeros(1, np.int64)
        guarantee = fixed.strong[:, :1] + outcome.proposed[:, :1]
        if options.improved:
            builder.level(root, root, guarantee, fixed.limits[:, :1])
            fair_share = distribution.from_pools(root, 1.0)
            top = layout.children_of(root)
            fair_share[:, :1] = top.sum(fair_share[:, top.children]) if len(top.parents) else 0.0
        else:
            fair_share = distribution.from_root(root_fit_factor(distribution, guarantee, fixed.limits[:, :1]))
        return replace(
            outcome,
            fair_share=fair_share,
            promised=distribution.from_pools(fixed.promised, 0.0),
            details=detailed_shares(layout, fair_share, fixed.strong, outcome.proposed),
        )


def summed_up(layout: Layout, own: Ints) -> Ints:
    """Amounts of operations, in the order of the input, as amounts of all elements."""
    amounts = np.zeros((RESOURCES, layout.size), np.int64)
    # Where sums would not fit into 64 bits, no operation is taken for more than an equal part of what does.
    fits = own.sum(axis=1, dtype=np.float64) < _LARGEST
    most = np.where(fits, _LARGEST, _LARGEST // max(1, own.shape[1]))
    amounts[:, layout.of_operation] = np.minimum(own, most[:, np.newaxis])
    for family in reversed(layout.families):
        first = layout.first_child[family.parents] - family.children[0]
        kids = slice(family.children[0], family.children[-1] + 1)  # all of the next level
        amounts[:, family.parents] = np.add.reduceat(amounts[:, kids], first, axis=1)
    return amounts
