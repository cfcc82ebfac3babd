"""Computes strong guarantees: converts the configured amounts to shares that fit into the cluster, the limits and the guarantees of
parents.

    inferred  = own / parent's guarantee of the main resource * parent's guarantee of the resource, if the figure was left out
    scaled    = f * guarantee, f the largest with which all guarantees and bursts fit into the cluster
    fitted    = tier by tier (priority first): the guarantee if the tier fits into the parent's, else f * guarantee, then 0

Everything here depends only on the configuration and the size of the cluster.

    100 cores and 200 GiB, a pool with 40 cores: inferred 80 GiB. Pools with 60, 40 and 25 cores: f = 0.8, so 48, 32 and 20 cores.

Section: docs/reference/fair-share-algorithm.md#4-strong-guarantees
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.resources import EPS, LARGEST_SUM, RESOURCE_NAMES, format_amount
from headrace_fair_share.hdrf.arrays import (
    CPU,
    RESOURCES,
    ROUNDING,
    Bools,
    BrokenInvariant,
    Family,
    Floats,
    Ints,
    column,
    fits_into,
    in_units,
    rounded,
    shares_of,
)
from headrace_fair_share.hdrf.input_arrays import Layout, PoolArrays
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.search import largest_each


@dataclass(frozen=True, slots=True)
class Ratios:
    """Flows and burst guarantees as one number per pool: the largest of its shares of the five resources; 0 for pools without integral
    guarantees.
    """

    flow: Floats
    burst: Floats
    #: Sum of the flow ratios of the pool and all pools below it.
    total_flow: Floats
    total_burst: Floats


@dataclass(frozen=True, slots=True)
class FittedGuarantees:
    """Strong guarantees and bursts after fitting into the cluster."""

    strong: Floats
    burst: Floats
    #: The factor by which all guarantees and bursts were scaled; None if the cluster is large enough.
    scaled_by: float | None
    #: Amounts by which all flows and strong guarantees together exceed the cluster, by resource; 0 if they fit.
    short_for_flow: Ints
    #: Amounts by which all burst guarantees and strong guarantees together exceed the cluster, by resource; 0 if they fit.
    short_for_burst: Ints


def promises_anything(pools: PoolArrays) -> bool:
    """Return True if any pool has a guarantee. Without guarantees, as in most small trees, `no_guarantees` can be used instead of computing
    them.

    The results are the same, because without guarantees every inferred figure is a fraction of 0, every ratio is 0, and nothing can exceed
    the cluster. `tests/properties/test_hdrf_shortcuts.py` compares both ways.
    """
    return bool(pools.strong.any() or (pools.burst | pools.relaxed).any())


def no_guarantees(size: int) -> tuple[Ratios, FittedGuarantees]:
    """Return the ratios and fitted guarantees of a tree in which no pool has a guarantee."""
    nothing, short = np.zeros(size), np.zeros(RESOURCES, np.int64)
    ratios = Ratios(nothing, nothing, nothing, nothing)
    return ratios, FittedGuarantees(np.zeros((RESOURCES, size)), nothing, None, short, short)


def inferred_guarantees(layout: Layout, pools: PoolArrays, tree: TreeInput) -> Ints:
    """Return the strong guarantees as amounts, with inferred figures in place of figures that were left out. The root's guarantee is the
    whole cluster.
    """
    main = tree.options.main_resource
    inferred = np.where(pools.strong_given, pools.strong, 0)
    inferred[:, :1] = column(tree.total)
    for family in layout.pool_families:
        kids = family.children
        whole, own = inferred[:, family.parents], inferred[:, kids]
        whole_main = in_units(whole)[main]
        part = in_units(own)[main] / family.spread(np.where(whole_main > 0.0, whole_main, np.inf))
        asked = np.where(pools.strong_given[:, kids], 0.0, part * family.spread(in_units(whole)))
        asked[main] = 0.0
        if family.parents[0] != 0:
            explicit = np.stack([_exact_sum(family, row) for row in own])
            rest, wanted = in_units(np.maximum(whole - explicit, 0)), family.sum(asked)
            over = wanted > rest
            factor = np.where(over, rest / np.where(over, wanted, 1.0), 1.0)
            asked = np.where(family.spread(over), asked * family.spread(factor), asked)
        inferred[:, kids] = own + _as_amounts(asked)
    return inferred


def flow_and_burst(layout: Layout, pools: PoolArrays, tree: TreeInput) -> Ratios:
    """Convert integral guarantees to ratios: for each pool its own ratio, and the sum of the ratios of the pool and all pools below it."""
    total = column(tree.total)
    integral = pools.burst | pools.relaxed
    flow = np.where(integral, shares_of(pools.flow, total).max(axis=0), 0.0)
    burst = np.where(integral, shares_of(pools.burst_guarantee, total).max(axis=0), 0.0)
    sums = np.stack((flow, burst))
    for family in reversed(layout.pool_families):
        sums[:, family.parents] += family.sum(sums[:, family.children])
    return Ratios(flow, burst, sums[0], sums[1])


def has_donor_above(layout: Layout, pools: PoolArrays) -> Bools:
    """Return True for pools below a donor with no priority pool in between."""
    below = np.zeros(layout.size, np.bool_)
    for family in layout.pool_families:
        above = family.parents
        gives = pools.donor[above] | (below[above] & ~pools.priority[above])
        below[family.children] = gives[family.owner]
    return below


def fitted_into_cluster(
    layout: Layout, pools: PoolArrays, tree: TreeInput, inferred: Ints, ratios: Ratios
) -> FittedGuarantees:
    """Scale strong guarantees and burst guarantees by one factor if together they exceed the cluster.

    Whether they exceed the cluster is checked with amounts; the factor is computed from shares. The factor is applied to the root's
    guarantee and to the burst guarantees. The strong guarantees of pools are scaled later, when they are fitted into the root's guarantee.
    """
    total = column(tree.total)
    strong = shares_of(inferred, total)
    top = layout.pools_below(np.zeros(1, np.int64))
    strong[:, 0] = top.sum(strong[:, top.children])[:, 0] if len(top.parents) else 0.0
    promised = inferred[:, top.children].sum(axis=1, keepdims=True)
    short = [
        np.maximum(promised + np.minimum(rounded(total * ratio[0]), LARGEST_SUM).astype(np.int64) - total, 0)[:, 0]
        for ratio in (ratios.total_flow, ratios.total_burst)
    ]
    burst, scaled_by = ratios.burst, None
    if short[1].any():
        bursting = layout.preorder[pools.burst[layout.preorder]]

        def together(factor: float) -> Floats:
            drawn = np.cumsum(burst[bursting] * factor)
            part: Floats = strong[:, 0] * factor + (drawn[-1] if len(drawn) else 0.0)
            return part

        scaled_by = float(largest_each(np.ones(1), lambda f: np.array([(together(f[0]) <= 1.0).all()]))[0])
        strong[:, 0] *= scaled_by
        burst = np.where(pools.burst, burst * scaled_by, burst)
    return FittedGuarantees(strong, burst, scaled_by, short[0], short[1])


def fitted_into_parents(layout: Layout, pools: PoolArrays, strong: Floats, limits: Floats, donated: Bools) -> Floats:
    """Lower strong guarantees, from the root down, until each is within its limit and those of children are within their parent's
    guarantee.
    """
    # If all guarantees are 0, there is nothing to do: guarantees are only multiplied by factors and lowered to limits, so they stay 0.
    if not strong.any():
        return strong
    strong = strong.copy()
    priority, regular = _tiers(layout, pools, strong, donated)
    strong[:, 0] = np.minimum(strong[:, 0], limits[:, 0])
    for family in layout.pool_families:
        kids = family.children
        strong[:, kids] = _fit(family, strong[:, family.parents], [priority[:, kids], regular[:, kids]])
        strong[:, kids] = np.minimum(strong[:, kids], limits[:, kids])
    return strong


def estimated_guarantees(layout: Layout, strong: Floats, weight: Floats) -> Floats:
    """Estimate the guarantee of every element: its own guarantee, plus its part, by weight, of what its siblings' guarantees leave of its
    parent's estimated guarantee.

    The result is shown to people only. No share depends on it.
    """
    estimated = np.zeros_like(strong)
    # If the root has no guarantee, no element has one, because a child gets at most what its parent has left.
    if not strong[:, 0].any():
        return estimated
    estimated[:, 0] = strong[:, 0]
    for family in layout.families:
        left = estimated[:, family.parents].copy()
        above, first = family.parents, layout.first_child[family.parents]
        most = int((layout.end_pools[above] - first).max())
        for place in range(most):  # one child at a time: the remainder depends on the children before
            has = first + place < layout.end_pools[above]
            kids = first[has] + place
            estimated[:, kids] = np.minimum(strong[:, kids], left[:, has])
            left[:, has] -= estimated[:, kids]
        left[left < ROUNDING * estimated[:, above]] = 0.0
        kids = family.children
        weights = np.bincount(family.owner, weight[kids], len(above))
        estimated[:, kids] += family.spread(left) * weight[kids] / family.spread(weights)
    return estimated


def shortage_in_words(short: Ints, tree: TreeInput) -> str:
    """Return a text that says by how much the cluster is too small, for each resource."""
    return ", ".join(
        f"{format_amount(name, there + missing)} of {name} where there are {format_amount(name, there)}"
        f" ({format_amount(name, missing)} too much)"
        for name, there, missing in zip(RESOURCE_NAMES, tree.total.as_tuple(), short.tolist(), strict=True)
        if missing
    )


def _exact_sum(family: Family, amounts: Ints) -> Ints:
    """Return for each parent the sum of its children's amounts, as exact integers."""
    first = np.searchsorted(family.owner, np.arange(len(family.parents)))
    return np.asarray(np.add.reduceat(amounts, first))


def _as_amounts(asked: Floats) -> Ints:
    """Convert inferred guarantees to amounts: cpu is rounded to hundredths, the other resources are rounded down."""
    amounts = np.trunc(asked)
    amounts[CPU] = rounded(asked[CPU] * 100.0)
    return amounts.astype(np.int64)


def _tiers(layout: Layout, pools: PoolArrays, strong: Floats, donated: Bools) -> tuple[Floats, Floats]:
    """Return the priority part and the regular part of every pool's guarantee.

    The priority part of a pool is the sum of the priority parts of its children. If a pool has priority itself, its whole guarantee is its
    priority part. A donor has no priority part, so its guarantee is regular; the priority pools below it get their parts of this guarantee
    first.
    """
    priority = np.zeros_like(strong)
    for here in reversed(layout.pool_levels):
        family = layout.pools_below(here)
        priority[:, family.parents] = family.sum(priority[:, family.children])
        first, donor = (pools.priority & donated)[here], pools.donor[here]
        priority[:, here] = np.where(first, strong[:, here], np.where(donor, 0.0, priority[:, here]))
    return priority, np.where(layout.is_pool, strong - priority, 0.0)


def _fit(family: Family, room_above: Floats, tiers: list[Floats]) -> Floats:
    """Fit the guarantees of children into `room_above`, tier after tier. The first tier that does not fit is scaled down until it fits, and
    later tiers get nothing.
    """
    fixed = np.zeros_like(room_above)
    fitted = np.zeros_like(tiers[0])
    going = np.ones(len(family.parents), np.bool_)
    for part in tiers:
        if (room_above - fixed < -EPS).any():
            raise BrokenInvariant("guarantees that were scaled to fit are larger than what is available for them")
        room, wanted = np.maximum(room_above - fixed, 0.0), family.sum(part)
        fits = fits_into(wanted, room)
        factor = np.where(fits, 1.0, 0.0)
        tight = going & ~fits
        if tight.any():
            factor[tight] = _scale(family.only(tight), part[:, family.chosen(tight)], room[:, tight])
        fitted += part * family.spread(np.where(going, factor, 0.0))
        fixed += np.where(going & fits, wanted, 0.0)
        going &= fits
    return fitted


def _scale(family: Family, part: Floats, room: Floats) -> Floats:
    """Return the largest factors with which the children's guarantees fit into `room` of each parent."""

    def holds(factor: Floats) -> Bools:
        return fits_into(family.sum(part * family.spread(factor)), room)

    factor = largest_each(np.ones(len(family.parents)), holds)
    # If `room` is zero, the search finds a tiny factor with which all products underflow to zero. Such a factor is replaced by 0.
    return np.where(factor < np.finfo(np.float64).tiny, 0.0, factor)
