"""Effective weights, and the offers to children that depend on them.

The weight of a pool is its configured weight. Without one, it is inferred from guarantees if the tree sets a multiplier, else it is 1.
Historic usage may lower a weight.

    multiplier 10, strong 0.1, total flow 0.05, parent's strong 0.5 and flow 0.05: weight 10 * 0.15 / 0.55 = 2.727
    weights 2, 1, 1 at fit factor 0.4: offers 0.8, 0.4, 0.4

Section: docs/reference/fair-share-algorithm.md#5-weights-and-offers
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.resources import EPS
from headrace_fair_share.hdrf.arrays import Family, Floats, Ints
from headrace_fair_share.hdrf.input_arrays import Layout, OperationArrays, PoolArrays


@dataclass(frozen=True, slots=True)
class Offers:
    """The offers of pools to their children, from which the suggestion to each child follows at any fit factor f of its pool.

    A child is offered f * ratio - rank, clipped to [0, 1].

    Children of a fair-share pool have rank 0 and are offered f in proportion to their weights. Children of a fifo pool have ratio 1, and
    their position as rank: as f grows, one child after another is offered a suggestion that rises from 0 to 1.
    """

    ratio: Floats
    rank: Floats

    def at(self, family: Family, fit: Floats) -> Floats:
        """Return the suggestions to all children of the family. `fit` contains the fit factor of each parent."""
        kids = family.children
        return np.clip(family.spread(fit) * self.ratio[kids] - self.rank[kids], 0.0, 1.0)


def weights_in_force(
    layout: Layout,
    pools: PoolArrays,
    operations: OperationArrays,
    strong: Floats,
    total_flow: Floats,
    multiplier: float | None,
) -> Floats:
    """Return the effective weights of all elements. `strong` contains the strong guarantees after they were reduced to fit into the
    cluster.
    """
    weight = np.ones(layout.size)
    weight[layout.of_pool] = np.where(np.isnan(pools.weight), 1.0, pools.weight)[layout.of_pool]
    if multiplier is not None:
        worth = strong.max(axis=0) + total_flow
        above = worth[layout.parent]
        inferred = np.isnan(pools.weight) & (worth >= EPS) & (above >= EPS) & layout.is_pool
        inferred[0] = False
        weight[inferred] = inferred_weight(worth[inferred], above[inferred], multiplier)
    weight[layout.of_operation] = operations.weight
    history = pools.historic_weights[layout.parent]
    history[0] = False
    if history.any():
        average = pools.usage_average.copy()
        average[layout.of_operation] = operations.usage_average
        plain = np.where(layout.is_pool & np.isnan(pools.weight), 1.0, np.where(layout.is_pool, pools.weight, weight))
        weight[history] = weight_after_usage(plain, average)[history]
    return weight


def inferred_weight(worth: Floats, parents_worth: Floats, multiplier: float) -> Floats:
    """Infer the weight of a pool from guarantees: worth * multiplier / parent's worth.

    The worth of a pool is its largest strong share plus its total flow ratio.
    """
    return worth * multiplier / parents_worth


def weight_after_usage(weight: Floats, average_usage_share: Floats) -> Floats:
    """Lower a weight by historic usage: weight * 2 ** -average."""
    return np.asarray(weight * 2.0**-average_usage_share)


def offers_of(layout: Layout, pools: PoolArrays, weight: Floats, place: Ints) -> Offers:
    """Return the offers to children, computed from `weight` and from `place`, the positions of operations in fifo pools."""
    ratio, rank = np.ones(layout.size), np.zeros(layout.size)
    for family in layout.families:
        first = np.searchsorted(family.owner, np.arange(len(family.parents)))
        own = weight[family.children]
        # Ratios are relative to the smallest weight. If the smallest weight were close to zero, the ratios of all siblings would be huge.
        # So weights close to zero do not count as smallest, unless the weights of all siblings are close to zero.
        smallest = np.minimum.reduceat(np.where(own > EPS, own, np.inf), first)
        smallest = np.where(np.isfinite(smallest), smallest, np.minimum.reduceat(own, first))
        fifo = family.spread(pools.fifo[family.parents])
        ratio[family.children] = np.where(fifo, 1.0, own / family.spread(smallest))
        rank[family.children] = np.where(fifo, place[family.children], 0.0)
    return Offers(ratio, rank)
