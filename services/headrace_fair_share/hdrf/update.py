"""One update of the fair share of a tree, step by step; and a resident form of it that keeps what did not change.

1. What stands: guarantees, ratios, limits, weights, orders (`intake`, `standing`).
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
from headrace_fair_share.hdrf.handing import Handout, detailed_shares, fit_of_root
from headrace_fair_share.hdrf.intake import Intake
from headrace_fair_share.hdrf.integral import Grants
from headrace_fair_share.hdrf.layout import Layout
from headrace_fair_share.hdrf.living import Figures, LivingFunctions
from headrace_fair_share.hdrf.model import TreeInput, UpdateResult
from headrace_fair_share.hdrf.outcome import Outcome
from headrace_fair_share.hdrf.standing import limits_of
from headrace_fair_share.hdrf.volumes import ratio_by_volume
from headrace_fair_share.hdrf.weights import offers_of

__all__ = ["HdrfEngine", "update"]

#: Larger amounts than that, nearly, are not what is in the arrays.
_LARGEST: Final = 2**63 - 2**53


def update(tree: TreeInput) -> UpdateResult:
    """One update of a tree by itself, with objects for all elements. Raises `BrokenInvariant`."""
    return HdrfEngine().update(tree).result()


class HdrfEngine:
    """Updates of one tree, one after another. What did not change since the update before is not worked out again."""

    def __init__(self) -> None:
        self._intake = Intake()
        self._functions: LivingFunctions | None = None
        self._last: Outcome | None = None

    def update(self, tree: TreeInput, *, afresh: bool = False) -> Outcome:
        """Works out the figures of all elements; `afresh`: with all functions built anew.

        Raises `BrokenInvariant`; then the next update is made afresh.
        """
        functions, self._functions = self._functions, None
        if self._intake.take(tree) or afresh or (functions is not None and functions.wasteful):
            functions = None
        standing = self._intake.standing
        outcome, figures = self._figures(tree)
        if functions is None or standing.integral.nested:
            layout, fifo, improved = self._intake.layout, self._intake.pools.fifo, tree.options.improved
            functions = LivingFunctions(layout, standing, fifo, figures, improved=improved)
            self._last = None
        functions.follow(figures)
        outcome = replace(outcome, volume=self._volumes(tree))
        outcome = self._granted(outcome, functions)
        outcome = self._handed_out(outcome, functions, self._last)
        self._functions, self._last = functions, outcome
        return outcome

    def _figures(self, tree: TreeInput) -> tuple[Outcome, Figures]:
        """Amounts and shares, and all that functions are built from; an outcome of nothing but that."""
        layout, pools, standing = self._intake.layout, self._intake.pools, self._intake.standing
        operations = self._intake.operations
        usage, demand = summed_up(layout, operations.usage), summed_up(layout, operations.demand)
        usage_share, demand_share = shares_of(usage, standing.total), shares_of(demand, standing.total)
        if (usage_share > demand_share).any():
            raise BrokenInvariant("an operation uses more than it demands")
        limits = standing.limits.copy()
        own = limits_of(operations.limits, standing.total)
        limits[:, layout.of_operation] = np.minimum(own, np.clip(operations.best_share, 0.0, 1.0))
        wants_all = np.zeros(layout.size, np.bool_)
        wants_all[layout.of_operation] = operations.gang & tree.options.gang_step_function
        gang = wants_all & pools.gang_steps[layout.parent]
        effective = np.full(layout.size, -1, np.int64)
        if tree.options.gang_step_function and tree.options.fifo_reordering:
            effective = reordered_ranks(
                layout, pools, standing.fifo_rank, standing.strong, limits, demand_share, usage_share, wants_all
            )
        offers = standing.offers
        if (effective >= 0).any():
            offers = offers_of(layout, pools, standing.weight, np.where(effective >= 0, effective, standing.fifo_rank))
        figures = Figures(usage_share, demand_share, limits, gang, offers)
        nothing = np.zeros((RESOURCES, layout.size))
        outcome = Outcome(
            tree=tree,
            layout=layout,
            standing=standing,
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
        integral = self._intake.standing.integral.all
        states = [tree.integral.get(name) for name in self._intake.names(tree, integral)]
        return np.array([state.volume if state else (0.0,) * RESOURCES for state in states]).reshape(-1, RESOURCES).T

    def _granted(self, outcome: Outcome, functions: LivingFunctions) -> Outcome:
        """Grants to integral pools; with them, the functions of all pools below the root."""
        layout, standing, options = outcome.layout, outcome.standing, outcome.tree.options
        integral = standing.integral
        states = map(outcome.tree.integral.get, self._intake.names(outcome.tree, integral.all))
        drawn, ratio = np.zeros(layout.size), np.zeros(layout.size)
        drawn[integral.all] = [state.last_share_ratio if state else 0.0 for state in states]
        ratio[integral.all] = ratio_by_volume(outcome.volume, standing.total, options.smooth_period_s)
        proposed = np.zeros_like(standing.strong)
        grants = Grants(layout, functions, integral.paths, standing.strong, outcome.limits, proposed, drawn)
        burst, relaxed = integral.burst, integral.relaxed
        grants.to_burst_pools(burst, np.minimum(standing.burst[burst], ratio[burst]))
        if not options.charge_skipped_relaxed_pools:
            drawn[relaxed] = 0.0
        relaxed = relaxed[ratio[relaxed] > 0.0]
        most = self._intake.pools.share_multiplier[relaxed] * standing.ratios.flow[relaxed]
        grants.to_relaxed_pools(relaxed, ratio[relaxed], most, outcome.demand_share)
        functions.settle(proposed)
        return replace(outcome, proposed=proposed, drawn=drawn[integral.all])

    def _handed_out(self, outcome: Outcome, functions: LivingFunctions, last: Outcome | None) -> Outcome:
        """Everybody's shares; those of the update before where no function has changed since."""
        layout, standing = outcome.layout, outcome.standing
        if last is not None and functions.idle and (last.proposed == outcome.proposed).all():
            return replace(outcome, fair_share=last.fair_share, promised=last.promised, details=last.details)
        options, builder = outcome.tree.options, functions.builder
        handout = Handout(
            layout, functions.store, functions.pairs, builder.fifo, builder.offers, options.distribution_gap
        )
        root = np.zeros(1, np.int64)
        guarantee = standing.strong[:, :1] + outcome.proposed[:, :1]
        if options.improved:
            builder.level(root, root, guarantee, standing.limits[:, :1])
            fair_share = handout.from_pools(root, 1.0)
            top = layout.children_of(root)
            fair_share[:, :1] = top.sum(fair_share[:, top.children]) if len(top.parents) else 0.0
        else:
            fair_share = handout.from_root(fit_of_root(handout, guarantee, standing.limits[:, :1]))
        return replace(
            outcome,
            fair_share=fair_share,
            promised=handout.from_pools(standing.promised, 0.0),
            details=detailed_shares(layout, fair_share, standing.strong, outcome.proposed),
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
