"""Updates the fair share of a tree, step by step. Results that did not change since the previous update are reused.

1. Read the input as arrays, and compute the fixed attributes (`incremental_input`).

2. Sum the amounts, convert them to shares, and compute limits and the reordering of fifo pools (`fifo`).

3. Build functions from the operations up (`functions`), and on the way the grants to integral pools (`integral_shares`).

4. Distribute shares from the root down (`share_distribution`).

5. If operations together would get more of some nodes than these nodes have, repeat steps 3 and 4 with lower limits (`node_sets`).

Example: TreeUpdater().update(tree).fair_share[:, 0] is the fair share of the root.

Section: docs/reference/fair-share-algorithm.md#3-one-update
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from headrace.resources import EPS
from headrace_fair_share.hdrf.arrays import CPU, RESOURCES, ROUNDING, Bools, BrokenInvariant, Floats, Ints, shares_of
from headrace_fair_share.hdrf.fifo import effective_fifo_indices
from headrace_fair_share.hdrf.functions.incremental import FunctionInputs, IncrementalFunctions
from headrace_fair_share.hdrf.incremental_input import FixedAttributes, IncrementalInput, limits_of
from headrace_fair_share.hdrf.input_arrays import Layout, OperationArrays
from headrace_fair_share.hdrf.integral_shares import Grants, most_of_burst, most_of_relaxed, ratio_by_volume
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.node_sets import Levels, NodeSets, StopFinder
from headrace_fair_share.hdrf.share_distribution import (
    DetailedShares,
    Distribution,
    detailed_shares,
    root_breakpoints,
    root_fit_factor,
)
from headrace_fair_share.hdrf.weights import offers_of

#: Bound below which the sum of all amounts of a resource must stay, so that sums in int64 do not overflow.
_LARGEST: Final = 2**62 - 2**53


@dataclass(frozen=True, slots=True)
class _Attributes:
    """Attributes by element that may change in every update."""

    usage: Ints
    demand: Ints
    inputs: FunctionInputs
    effective_fifo_index: Ints


@dataclass(frozen=True, slots=True)
class _Granted:
    """Integral shares granted to pools. `proposed` is by element, the other arrays by position among the integral pools."""

    volume: Floats
    proposed: Floats
    last_share_ratio: Floats


@dataclass(frozen=True, slots=True)
class TreeShares:
    """The result of one update, as arrays by element."""

    tree: TreeInput
    layout: Layout
    fixed: FixedAttributes
    #: Amounts used by the element and by everything below it.
    usage: Ints
    #: Amounts demanded by the element and by everything below it.
    demand: Ints
    usage_share: Floats
    demand_share: Floats
    limits: Floats
    fair_share: Floats
    details: DetailedShares
    promised: Floats
    #: Integral shares granted to pools. The figure of a pool includes the shares granted to pools below it.
    proposed: Floats
    #: Position of an operation after reordering; -1 if its pool was not reordered.
    effective_fifo_index: Ints
    #: Index of the resource that runs out on the nodes on which the operation can run; -1 if these nodes do not limit the operation's fair
    #: share.
    short_of: Ints
    #: Volumes of the integral pools, by position in `fixed.integral.all`.
    volume: Floats
    last_share_ratio: Floats

    def dominant_resources(self) -> Ints:
        """Return the index of each element's dominant resource.

        It is the resource with the largest share in the element's usage, or in its demand if it uses nothing. If several resources have
        this share, it is the first of them. The algorithm itself does not use dominant resources.
        """
        shares = np.where(self.usage.any(axis=0), self.usage_share, self.demand_share)
        return np.where(shares.max(axis=0) > 0.0, shares.argmax(axis=0), CPU)


class TreeUpdater:
    """Computes the updates of one tree one after another. Results that did not change since the previous update are not computed again."""

    def __init__(self, *, builds_always: bool = False) -> None:
        """Create an updater. With `builds_always`, functions are built even if shares can be computed without them, so that they can be
        inspected.
        """
        self._builds_always = builds_always
        self._input = IncrementalInput()
        #: The functions of the last update that needed functions. None before the first such update and after a failed one.
        self.functions: IncrementalFunctions | None = None
        self._last: TreeShares | None = None

    def update(self, tree: TreeInput) -> TreeShares:
        """Compute the shares of all elements. Raises `BrokenInvariant`; the next update then builds all functions from scratch."""
        functions, self.functions = self.functions, None
        if self._input.read(tree) or (functions is not None and functions.wasteful):
            functions = None
        fixed, attributes = self._input.fixed, self._attributes(tree)
        sets = NodeSets.of(tree, self._input.layout, fixed.total) if tree.node_sets else None
        if not self._builds_always and everything_fits(fixed, attributes.inputs, sets):
            # This update needs no functions. Keep the functions of the last update that needed them.
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
        """Return the shares of all elements, computed by functions, without regard to sets of nodes."""
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
        """Return shares in which, for each set of nodes, the operations that can run only there get no more together than its nodes
        have.
        """
        inputs = attributes.inputs
        stopping = StopFinder(sets, inputs.demand_share, inputs.gang, inputs.limits)

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
        """Compute the grants to integral pools, and with these grants build the functions of all pools below the root."""
        layout, fixed, options = self._input.layout, self._input.fixed, tree.options
        integral = fixed.integral
        states = [tree.integral.get(name) for name in self._input.names(tree, integral.all)]
        volumes = np.array([state.volume if state else (0.0,) * RESOURCES for state in states]).reshape(-1, RESOURCES).T
        last_share_ratio, by_volume = np.zeros(layout.size), np.zeros(layout.size)
        last_share_ratio[integral.all] = [state.last_share_ratio if state else 0.0 for state in states]
        by_volume[integral.all] = ratio_by_volume(volumes, fixed.total, options.smooth_period_s)
        proposed = np.zeros_like(fixed.strong)
        grants = Grants(
            *(
                layout,
                functions,
                integral.paths,
                fixed.strong,
                inputs.limits,
                proposed,
                last_share_ratio,
                inputs.demand_share,
            )
        )
        burst, relaxed = integral.burst, integral.relaxed
        grants.to_burst_pools(burst, most_of_burst(fixed.burst[burst], by_volume[burst]), fixed.burst[burst])
        if not options.charge_skipped_relaxed_pools:
            last_share_ratio[relaxed] = 0.0
        relaxed = relaxed[by_volume[relaxed] > 0.0]  # a pool with an empty volume is skipped
        multiplier = self._input.pools.share_multiplier[relaxed]
        most = most_of_relaxed(by_volume[relaxed], multiplier, fixed.ratios.flow[relaxed])
        grants.to_relaxed_pools(relaxed, by_volume[relaxed], most)
        functions.settle(proposed)
        return _Granted(volumes, proposed, last_share_ratio[integral.all])

    def _satisfied(self, tree: TreeInput, attributes: _Attributes) -> TreeShares:
        """Return shares that equal the demands. Used only if no pool has an integral guarantee or asks for a promised guarantee share."""
        fair_share, nothing = attributes.inputs.demand_share.copy(), np.zeros_like(self._input.fixed.strong)
        self._sum_up_root(fair_share)
        details = detailed_shares(self._input.layout, fair_share, self._input.fixed.strong, nothing)
        granted = _Granted(np.zeros((RESOURCES, 0)), nothing, np.zeros(0))
        return self._result(tree, attributes, granted, fair_share, nothing, details)

    def _distributed(
        self, tree: TreeInput, attributes: _Attributes, granted: _Granted, functions: IncrementalFunctions
    ) -> TreeShares:
        """Distribute shares to all elements. If neither functions nor grants changed since the previous update, reuse its shares.

        Shares depend on the functions of all elements below the root, the offers to children, the grants, and the root's guarantee and
        limits. If the offers of a pool to its children change, the functions of the pool are rebuilt and `idle` is false; `idle` is also
        false if offers of the root change (`IncrementalFunctions.follow`). If guarantees or limits of pools change, all functions are built
        from scratch. `tests/properties/test_hdrf_incremental.py` compares the results with updates from scratch.
        """
        last = self._last
        if last is not None and functions.idle and (last.proposed == granted.proposed).all():
            fair_share, promised, details = last.fair_share, last.promised, last.details
        else:
            fair_share, promised = self._shares(tree, granted.proposed, functions)
            self._take_rounding_away(fair_share, attributes.inputs.demand_share)
            details = detailed_shares(self._input.layout, fair_share, self._input.fixed.strong, granted.proposed)
        return self._result(tree, attributes, granted, fair_share, promised, details)

    def _take_rounding_away(self, fair_share: Floats, demand_share: Floats) -> None:
        """Replace each fair share that differs from the demand only by a rounding error with the demand.

        A rounding error would matter: a resource of an element is blocked if fair share >= demand, and satisfaction and starvation depend
        on which resources are blocked.
        """
        np.copyto(fair_share, demand_share, where=np.abs(fair_share - demand_share) <= ROUNDING * demand_share)
        self._sum_up_root(fair_share)

    def _sum_up_root(self, fair_share: Floats) -> None:
        """Set the root's share to exactly the sum of its children's shares. The root's demand as a share differs from this sum by rounding
        errors.
        """
        top = self._input.layout.top
        fair_share[:, :1] = top.sum(fair_share[:, top.children]) if len(top.parents) else 0.0

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
        """Return two arrays: the fair shares, and the promised guarantee shares of the pools that ask for them and of everything below
        these pools.
        """
        levels = self._levels(tree, proposed, functions)
        return levels.at(levels.top, None), levels.guaranteed(self._input.fixed.promised)

    def _levels(self, tree: TreeInput, proposed: Floats, functions: IncrementalFunctions) -> Levels:
        """Return the shares as a function of the root's level. The level is the root's fit factor, or in improved mode the suggestion to
        the root.
        """
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
    """Return True if all demand fits into the cluster, into all limits and into all sets of nodes. Each element's share is then its demand.

    Functions would give exactly the same shares. At the fit factor at which the root offers 1 to each child, each pool may take 1 more than
    its guarantee, and offers 1 to each of its children. At suggestion 1, an operation takes its demand unless a limit is lower, and a pool
    takes the sum of its children's shares, because no limit stops it.

    A child whose weight is too close to zero to count as the smallest weight (`offers_of`) is offered less than 1, so trees with such
    children need the functions. Trees with grants or promised guarantee shares need the functions too, because grants and these shares
    depend on functions even if everything fits. `tests/properties/test_hdrf_unsaturated.py` compares the shares with and without functions.
    """
    if len(fixed.integral.paths) or len(fixed.promised) or (inputs.offers.ratio < 1.0).any():
        return False
    demand = inputs.demand_share
    # If a demand is so close to a limit that rounding could decide, it does not count as fitting, so the functions decide.
    fits = bool(((demand < inputs.limits - EPS) | (demand == 0.0)).all())
    return fits and (sets is None or sets.have_all(demand))


def limits_of_operations(operations: OperationArrays, fixed: FixedAttributes) -> Floats:
    """Return the limits of operations as shares in [0, 1]: min(own limit / total, `best_share` of the operation)."""
    return np.minimum(limits_of(operations.limits, fixed.total), np.clip(operations.best_share, 0.0, 1.0))


def takes_steps(gangs: Bools, pool_allows: Bools) -> Bools:
    """Return True for operations that take either all of their demand or nothing: gangs in pools that allow steps."""
    return gangs & pool_allows


def usage_and_demand(layout: Layout, operations: OperationArrays) -> tuple[Ints, Ints]:
    """Return the usage and the demand of each element and everything below it. Raises `BrokenInvariant` if usage exceeds demand."""
    if (operations.usage > operations.demand).any():
        raise BrokenInvariant("an operation uses more than it demands")
    usage = subtree_amounts(layout, operations.usage)
    return usage, usage + subtree_amounts(layout, operations.demand - operations.usage)


def subtree_amounts(layout: Layout, own: Ints) -> Ints:
    """Return for each element the sum of the amounts of all operations in its subtree. `own` contains the operations' amounts, in the order
    of the input.
    """
    amounts = np.zeros((RESOURCES, layout.size), np.int64)
    amounts[:, layout.of_operation] = _that_can_be_added(own)
    for family in reversed(layout.families):
        first = layout.first_child[family.parents] - family.children[0]
        kids = slice(family.children[0], family.children[-1] + 1)  # all of the next level
        amounts[:, family.parents] = np.add.reduceat(amounts[:, kids], first, axis=1)
    return amounts


def _that_can_be_added(own: Ints) -> Ints:
    """If the sum of all amounts of a resource would overflow, lower its largest amounts to one common size."""
    if (own.sum(axis=1, dtype=np.float64) < _LARGEST).all():
        return own
    equal_part = _LARGEST // own.shape[1]
    large = own > equal_part
    room = _LARGEST - np.where(large, 0, own).sum(axis=1)
    most = np.where(large.any(axis=1), room // np.maximum(1, large.sum(axis=1)), _LARGEST)
    return np.minimum(own, most[:, np.newaxis])
