"""Updates the fair share of a tree, step by step. Whatever did not change since the update before is kept.

1. The input as arrays, and the fixed attributes (`incremental_input`, `fixed_attributes`).
2. Amounts summed up, shares of the cluster, limits, orders of fifo pools that put their guarantees to use (`fifo`).
3. Functions from the operations up (`functions`), with grants to integral pools tried out and made on the way (`integral`).
4. Shares from the root down (`share_distribution`).
5. Steps 3 and 4 again with lower limits, where operations want more of some nodes together than these have (`node_sets`).

Example: TreeUpdater().update(tree).fair_share[:, 0] is the share of everything together.

Section: docs/reference/fair-share-algorithm.md#3-one-update
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from headrace.resources import EPS
from headrace_fair_share.hdrf.arrays import RESOURCES, Bools, BrokenInvariant, Floats, Ints, shares_of
from headrace_fair_share.hdrf.fifo import effective_fifo_indices
from headrace_fair_share.hdrf.fixed_attributes import FixedAttributes, limits_of
from headrace_fair_share.hdrf.functions.incremental import FunctionInputs, IncrementalFunctions
from headrace_fair_share.hdrf.incremental_input import IncrementalInput
from headrace_fair_share.hdrf.input_arrays import OperationArrays
from headrace_fair_share.hdrf.integral import Grants, most_of_burst, most_of_relaxed, ratio_by_volume
from headrace_fair_share.hdrf.layout import Layout
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.node_sets import Levels, NodeSets, Stopping
from headrace_fair_share.hdrf.share_distribution import (
    DetailedShares,
    Distribution,
    detailed_shares,
    root_breakpoints,
    root_fit_factor,
)
from headrace_fair_share.hdrf.tree_shares import TreeShares
from headrace_fair_share.hdrf.weights import offers_of

#: Larger amounts than that, nearly, are not what is in the arrays.
_LARGEST: Final = 2**62 - 2**53


@dataclass(frozen=True, slots=True)
class _Attributes:
    """Attributes by element that may change with every update."""

    usage: Ints
    demand: Ints
    inputs: FunctionInputs
    effective_fifo_index: Ints


@dataclass(frozen=True, slots=True)
class _Granted:
    """Grants to integral pools. All but `proposed` by place among these pools."""

    volume: Floats
    proposed: Floats
    last_share_ratio: Floats


class TreeUpdater:
    """Updates one tree again and again. Whatever did not change since the update before is not worked out again."""

    def __init__(self, *, builds_always: bool = False) -> None:
        """With `builds_always` functions are built even where no share needs them, for whoever looks at them."""
        self._builds_always = builds_always
        self._input = IncrementalInput()
        #: The functions that the last update was made with, or an earlier one if it needed none. None if it failed.
        self.functions: IncrementalFunctions | None = None
        self._last: TreeShares | None = None

    def update(self, tree: TreeInput) -> TreeShares:
        """Works out the shares of all elements. Raises `BrokenInvariant`, and then builds all functions anew in the next update."""
        functions, self.functions = self.functions, None
        if self._input.take(tree) or (functions is not None and functions.wasteful):
            functions = None
        fixed, attributes = self._input.fixed, self._attributes(tree)
        sets = NodeSets.of(tree, self._input.layout, fixed.total) if tree.node_sets else None
        if not self._builds_always and everything_fits(fixed, attributes.inputs, sets):
            # No function is looked at. Those that there are still belong to the last shares that needed them.
            self.functions = functions
            return self._satisfied(tree, attributes)
        if functions is None:
            layout, fifo, improved = self._input.layout, self._input.pools.fifo, tree.options.improved
            functions = IncrementalFunctions(layout, fixed, fifo, attributes.inputs, improved=improved)
            self._last = None
        shares = self._followed(tree, attributes, functions)
        if sets is not None:
            shares = self._within(sets, tree, attributes, shares, functions)
        self.functions, self._last = functions, shares
        return shares

    def _followed(self, tree: TreeInput, attributes: _Attributes, functions: IncrementalFunctions) -> TreeShares:
        """The shares of all elements, each by itself."""
        functions.follow(attributes.inputs)
        granted = self._granted(tree, attributes.inputs, functions)
        return self._distributed(tree, attributes, granted, functions)

    def _within(
        self,
        sets: NodeSets,
        tree: TreeInput,
        attributes: _Attributes,
        shares: TreeShares,
        functions: IncrementalFunctions,
    ) -> TreeShares:
        """The shares with which operations of each set of nodes have no more of them together than there is."""
        inputs = attributes.inputs
        stopping = Stopping(sets, inputs.demand_share, inputs.gang, inputs.limits)

        def levels() -> Levels:
            return self._levels(tree, shares.proposed, functions)

        while stopping.stop(shares.fair_share, levels):
            lowered = replace(attributes, inputs=replace(inputs, limits=stopping.limits.copy()))
            shares = self._followed(tree, lowered, functions)
        wants_more = (inputs.demand_share > shares.fair_share + EPS).any(axis=0)
        return replace(shares, limits=inputs.limits, short_of=np.where(wants_more, stopping.short_of, -1))

    def _attributes(self, tree: TreeInput) -> _Attributes:
        layout, pools, fixed = self._input.layout, self._input.pools, self._input.fixed
        operations, options = self._input.operations, tree.options
        usage, demand = usage_and_demand(layout, operations)
        usage_share, demand_share = shares_of(usage, fixed.total), shares_of(demand, fixed.total)
        limits = fixed.limits.copy()
        limits[:, layout.of_operation] = limits_of_operations(operations, fixed)
        gangs = np.zeros(layout.size, np.bool_)
        gangs[layout.of_operation] = operations.gang & options.gang_step_function
        effective = np.full(layout.size, -1, np.int64)
        if options.gang_step_function and options.fifo_reordering:
            effective = effective_fifo_indices(
                layout, pools, fixed.fifo_index, fixed.strong, limits, demand_share, usage_share, gangs
            )
        offers = fixed.offers
        if (effective >= 0).any():
            offers = offers_of(layout, pools, fixed.weight, np.where(effective >= 0, effective, fixed.fifo_index))
        steps = takes_steps(gangs, pools.gang_steps[layout.parent])
        return _Attributes(usage, demand, FunctionInputs(usage_share, demand_share, limits, steps, offers), effective)

    def _granted(self, tree: TreeInput, inputs: FunctionInputs, functions: IncrementalFunctions) -> _Granted:
        """Grants to integral pools. Builds with them the functions of all pools below the root."""
        layout, fixed, options = self._input.layout, self._input.fixed, tree.options
        integral = fixed.integral
        states = [tree.integral.get(name) for name in self._input.names(tree, integral.all)]
        volumes = np.array([state.volume if state else (0.0,) * RESOURCES for state in states]).reshape(-1, RESOURCES).T
        last_share_ratio, by_volume = np.zeros(layout.size), np.zeros(layout.size)
        last_share_ratio[integral.all] = [state.last_share_ratio if state else 0.0 for state in states]
        by_volume[integral.all] = ratio_by_volume(volumes, fixed.total, options.smooth_period_s)
        proposed = np.zeros_like(fixed.strong)
        grants = Grants(layout, functions, integral.paths, fixed.strong, inputs.limits, proposed, last_share_ratio)
        burst, relaxed = integral.burst, integral.relaxed
        grants.to_burst_pools(burst, most_of_burst(fixed.burst[burst], by_volume[burst]))
        if not options.charge_skipped_relaxed_pools:
            last_share_ratio[relaxed] = 0.0
        relaxed = relaxed[by_volume[relaxed] > 0.0]  # a pool with an empty volume is skipped
        multiplier = self._input.pools.share_multiplier[relaxed]
        most = most_of_relaxed(by_volume[relaxed], multiplier, fixed.ratios.flow[relaxed])
        grants.to_relaxed_pools(relaxed, by_volume[relaxed], most, inputs.demand_share)
        functions.settle(proposed)
        return _Granted(volumes, proposed, last_share_ratio[integral.all])

    def _satisfied(self, tree: TreeInput, attributes: _Attributes) -> TreeShares:
        """Gives every element what it demands. Nobody has integral guarantees, nor asks for a promised share."""
        fair_share, nothing = attributes.inputs.demand_share.copy(), np.zeros_like(self._input.fixed.strong)
        # What is below the root adds up to what it has exactly, which parts of whole amounts do to a rounding only.
        top = self._input.layout.top
        if len(top.parents):
            fair_share[:, :1] = top.sum(fair_share[:, top.children])
        details = detailed_shares(self._input.layout, fair_share, self._input.fixed.strong, nothing)
        granted = _Granted(np.zeros((RESOURCES, 0)), nothing, np.zeros(0))
        return self._result(tree, attributes, granted, fair_share, nothing, details)

    def _distributed(
        self, tree: TreeInput, attributes: _Attributes, granted: _Granted, functions: IncrementalFunctions
    ) -> TreeShares:
        """Distributes shares to all elements, or takes those of the update before if no function has changed since.

        Shares follow from the functions of all elements below the root, from the offers to children, from the grants, and from the
        guarantee and the limits of the root. Other offers make the functions of their pool anew, so that `idle` is false then, also
        those to children of the root (`IncrementalFunctions.follow`). With other guarantees or limits of pools there are no functions
        of an update before. `tests/properties/test_hdrf_incremental.py` compares with updates from scratch.
        """
        last = self._last
        if last is not None and functions.idle and (last.proposed == granted.proposed).all():
            fair_share, promised, details = last.fair_share, last.promised, last.details
        else:
            fair_share, promised = self._shares(tree, granted.proposed, functions)
            details = detailed_shares(self._input.layout, fair_share, self._input.fixed.strong, granted.proposed)
        return self._result(tree, attributes, granted, fair_share, promised, details)

    def _result(
        self,
        tree: TreeInput,
        attributes: _Attributes,
        granted: _Granted,
        fair_share: Floats,
        promised: Floats,
        details: DetailedShares,
    ) -> TreeShares:
        inputs = attributes.inputs
        return TreeShares(
            tree=tree,
            layout=self._input.layout,
            fixed=self._input.fixed,
            usage=attributes.usage,
            demand=attributes.demand,
            usage_share=inputs.usage_share,
            demand_share=inputs.demand_share,
            limits=inputs.limits,
            fair_share=fair_share,
            details=details,
            promised=promised,
            proposed=granted.proposed,
            effective_fifo_index=attributes.effective_fifo_index,
            short_of=np.full(self._input.layout.size, -1, np.int64),
            volume=granted.volume,
            last_share_ratio=granted.last_share_ratio,
        )

    def _shares(self, tree: TreeInput, proposed: Floats, functions: IncrementalFunctions) -> tuple[Floats, Floats]:
        """Fair shares, and promised shares of the pools that ask for them and of all below."""
        top, levels = self._input.layout.top, self._levels(tree, proposed, functions)
        fair_share = levels.at(levels.top, None)
        if tree.options.improved:
            fair_share[:, :1] = top.sum(fair_share[:, top.children]) if len(top.parents) else 0.0
        return fair_share, levels.guaranteed(self._input.fixed.promised)

    def _levels(self, tree: TreeInput, proposed: Floats, functions: IncrementalFunctions) -> Levels:
        """The shares at each level of the root: its fit factor, or in improved mode the suggestion to it."""
        layout, fixed, builder = self._input.layout, self._input.fixed, functions.builder
        distribution = Distribution(
            layout, functions.store, functions.breakpoints, builder.fifo, builder.offers, tree.options.distribution_gap
        )
        root = np.zeros(1, np.int64)
        guarantee, limits = fixed.strong[:, :1] + proposed[:, :1], fixed.limits[:, :1]

        def guaranteed(pools: Ints) -> Floats:
            return distribution.from_pools(pools, 0.0)

        if tree.options.improved:
            builder.level(root, root, guarantee, limits)
            store = functions.store
            bends = store.suggestion[store.first[0] : store.first[0] + store.count[0]]
            return Levels(1.0, lambda level, _: distribution.from_pools(root, level), guaranteed, lambda: bends)
        fit = root_fit_factor(distribution, guarantee, limits)
        return Levels(fit, distribution.from_root, guaranteed, lambda: root_breakpoints(distribution))


def everything_fits(fixed: FixedAttributes, inputs: FunctionInputs, sets: NodeSets | None = None) -> bool:
    """True if all that is demanded fits into the cluster, into all limits and into all sets of nodes. Then each share is the demand.

    It is exact: at the fit factor of the root with which it offers 1 to each child, each pool is offered 1 above its guarantee, and
    passes on 1 to each child. A function of an operation at 1 is its demand where no limit binds, and that of a pool is the sum of its
    children's, which no limit of a resource stops. A weight below that of the others is offered less than 1, so it is left to the
    functions; and so are grants and promised shares, which follow from functions whatever fits.
    `tests/properties/test_hdrf_plenty.py` compares both ways.
    """
    if len(fixed.integral.paths) or len(fixed.promised) or (inputs.offers.ratio < 1.0).any():
        return False
    demand = inputs.demand_share
    # What comes to within a rounding of a limit is for the functions to decide.
    fits = bool(((demand < inputs.limits - EPS) | (demand == 0.0)).all())
    return fits and (sets is None or sets.have_all(demand))


def limits_of_operations(operations: OperationArrays, fixed: FixedAttributes) -> Floats:
    """Finds the limits of operations: min(own limit / total, best allocation share), in [0, 1]."""
    return np.minimum(limits_of(operations.limits, fixed.total), np.clip(operations.best_share, 0.0, 1.0))


def takes_steps(gangs: Bools, pool_allows: Bools) -> Bools:
    """True for operations that take all of their demand at once or nothing: gangs in pools that allow steps."""
    return gangs & pool_allows


def usage_and_demand(layout: Layout, operations: OperationArrays) -> tuple[Ints, Ints]:
    """Adds up what each element uses and demands with everything below. Raises `BrokenInvariant`."""
    if (operations.usage > operations.demand).any():
        raise BrokenInvariant("an operation uses more than it demands")
    usage = subtree_amounts(layout, operations.usage)
    return usage, usage + subtree_amounts(layout, operations.demand - operations.usage)


def subtree_amounts(layout: Layout, own: Ints) -> Ints:
    """Adds up amounts of operations, given in the order of the input, to amounts of all elements."""
    amounts = np.zeros((RESOURCES, layout.size), np.int64)
    amounts[:, layout.of_operation] = _that_can_be_added(own)
    for family in reversed(layout.families):
        first = layout.first_child[family.parents] - family.children[0]
        kids = slice(family.children[0], family.children[-1] + 1)  # all of the next level
        amounts[:, family.parents] = np.add.reduceat(amounts[:, kids], first, axis=1)
    return amounts


def _that_can_be_added(own: Ints) -> Ints:
    """Cuts the largest amounts of a resource, down to one size, where the sum of all would not fit."""
    if (own.sum(axis=1, dtype=np.float64) < _LARGEST).all():
        return own
    equal_part = _LARGEST // own.shape[1]
    large = own > equal_part
    room = _LARGEST - np.where(large, 0, own).sum(axis=1)
    most = np.where(large.any(axis=1), room // np.maximum(1, large.sum(axis=1)), _LARGEST)
    return np.minimum(own, most[:, np.newaxis])
