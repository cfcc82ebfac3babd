"""Integral guarantees: the share that each pool is granted from its volume, beside its strong guarantee.

    burst:   proposal = min(burst ratio, ratio by volume), as far as the limits above leave room
    relaxed: limit    = strong + min(ratio by volume, multiplier * flow ratio), all pools together within what is available
    both:    grant    = max(share that the pool would take - strong, 0)

A grant raises the proposed integral share of the pool and of all above it, and never lifts a guarantee over a limit, not even by the
last bit. What a pool would take is tried out with functions of its own, all pools of a kind in one batch.

Example: cluster 100 cores, volume 900 core-seconds, smooth period 60 s, burst guarantee 20 cores.
ratio_by_volume = 900 / 100 / 60 = 0.15, most_of_burst = min(0.20, 0.15) = 0.15. The pool wants 50 cores, so its grant is 0.15.

Sections: docs/reference/fair-share-algorithm.md#6-integral-guarantees, docs/reference/fair-share-algorithm.md#7-burst-pools,
docs/reference/fair-share-algorithm.md#8-relaxed-pools
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.resources import EPS
from headrace_fair_share.hdrf.arrays import RESOURCES, BrokenInvariant, Floats, Ints, beyond, shares_of
from headrace_fair_share.hdrf.functions.incremental import IncrementalFunctions
from headrace_fair_share.hdrf.layout import Layout
from headrace_fair_share.hdrf.search import largest

_MOST_STEPS: Final = 32


def ratio_by_volume(volume: Floats, total: Ints, smooth_period_s: float) -> Floats:
    """Finds the share of the cluster that uses up a volume in one smooth period.

    That is the least of volume / total / period over the resources that the cluster has.
    """
    there = (total > 0)[:, 0]
    if not there.any():
        return np.zeros(volume.shape[1])
    ratios: Floats = shares_of(volume, total)[there].min(axis=0) / smooth_period_s
    return ratios


def most_of_burst(burst_ratio: Floats, by_volume: Floats) -> Floats:
    """Bounds the grant to burst pools, alike in all resources: min(burst ratio, ratio by volume)."""
    return np.minimum(burst_ratio, by_volume)


def most_of_relaxed(by_volume: Floats, multiplier: Floats, flow_ratio: Floats) -> Floats:
    """Bounds the grant to relaxed pools, alike in all resources: min(ratio by volume, multiplier * flow ratio)."""
    return np.minimum(by_volume, multiplier * flow_ratio)


def relaxed_weights(by_volume: Floats) -> Floats:
    """Weighs relaxed pools by their ratios by volume, the smallest of which has weight 1."""
    weights: Floats = by_volume / by_volume.min()
    return weights


def beyond_strong(share: Floats, strong: Floats) -> Floats:
    """Takes the strong guarantee off a share: max(share - strong, 0). That much has to be granted."""
    return np.maximum(beyond(share, strong), 0.0)


def room_within_limits(limits: Floats, strong: Floats, proposed: Floats) -> Floats:
    """Finds how much more may be guaranteed to a pool by its own limit: limit - (strong + proposed)."""
    # In this order: the sum is clipped to the limits, so that the room is never below zero by an ulp.
    return limits - (strong + proposed)


def available_to_relaxed(top_guarantees: Floats, top_demand: Floats) -> Floats:
    """Finds what top pools leave of the cluster: 1 - sum of min(guarantee, demand), not below 0.

    A guarantee without demand is thus lent to relaxed pools. One that is used is not.
    """
    available = np.ones(RESOURCES)
    for used in np.minimum(top_guarantees, top_demand).T:
        available = available - used
    return np.maximum(available, 0.0)


@dataclass(slots=True)
class Grants:
    """Grants in the making: fills in `proposed` and `last_share_ratio`, by element."""

    layout: Layout
    functions: IncrementalFunctions
    #: The way up from each integral pool, itself included, the root not.
    paths: dict[int, Ints]
    #: After fitting.
    strong: Floats
    limits: Floats
    proposed: Floats
    #: Largest component of each pool's grant: its volume is charged this much until the next update.
    last_share_ratio: Floats

    def to_burst_pools(self, pools: Ints, most: Floats) -> None:
        """Grants to burst pools, one after another. `most` is the bound of each."""
        if not len(pools):
            return
        alone = _proposals(most, self._rooms()[:, pools], self.strong[:, pools], self.limits[:, pools])
        self._try_out(pools, alone)
        for place, pool in enumerate(pools.tolist()):
            strong, limits = self.strong[:, pool], self.limits[:, pool]
            proposal = _proposals(most[place], self._room(pool), strong, limits)
            if (proposal != alone[:, place]).any():  # an earlier pool has taken room from it
                self._try_out(pools[place : place + 1], proposal[:, np.newaxis])
            used = self.functions.store.at_zero(self.functions.trial_rows[pool : pool + 1])[:, 0]
            self._give(pool, beyond_strong(used, strong))

    def to_relaxed_pools(self, pools: Ints, by_volume: Floats, most: Floats, demand: Floats) -> None:
        """Grants to relaxed pools, all together. `by_volume` are their ratios, `most` the bound of each."""
        if not len(pools):
            return
        strong = self.strong[:, pools]
        limits = np.minimum(self.limits[:, pools], strong + most)
        self.functions.try_out(pools, strong + self.proposed[:, pools], limits)
        rows, weights = self.functions.trial_rows[pools], relaxed_weights(by_volume)
        top = self.layout.top.children
        available = available_to_relaxed(self.strong[:, top] + self.proposed[:, top], demand[:, top])

        def granted(fit: float) -> Floats:
            return beyond_strong(self.functions.store.shares_at(rows, np.minimum(1.0, fit * weights)), strong)

        def fits(fit: float) -> bool:
            return bool((np.cumsum(granted(fit), axis=1)[:, -1] <= available).all())

        # At 0 nobody asks for more than his guarantee; rounding may still make it an ulp too much.
        grants = granted(largest(0.0, 1.0, fits) if fits(0.0) else 0.0)
        for place, pool in enumerate(pools.tolist()):
            self._give(pool, np.minimum(grants[:, place], self._room(pool)))

    def _try_out(self, pools: Ints, proposals: Floats) -> None:
        self.functions.try_out(pools, self.strong[:, pools] + proposals, self.limits[:, pools])

    def _rooms(self) -> Floats:
        """The least room of each pool and of all above it below the root."""
        room = room_within_limits(self.limits, self.strong, self.proposed)
        for family in self.layout.pool_families:
            if family.parents[0] != 0:
                above = family.spread(room[:, family.parents])
                room[:, family.children] = np.minimum(room[:, family.children], above)
        return room

    def _room(self, pool: int) -> Floats:
        """The same for a single pool."""
        path = self.paths[pool]
        room: Floats = room_within_limits(self.limits[:, path], self.strong[:, path], self.proposed[:, path]).min(
            axis=1
        )
        return room

    def _give(self, pool: int, granted: Floats) -> None:
        """Adds a grant to a pool and to everything above it."""
        path = self.paths[pool]
        raised = self.proposed[:, path] + granted[:, np.newaxis]
        self.proposed[:, path] = clipped(raised, self.strong[:, path], self.limits[:, path])
        self.proposed[:, 0] += granted
        self.last_share_ratio[pool] = granted.max()


def _proposals(most: Floats, room: Floats, strong: Floats, limits: Floats) -> Floats:
    """The shares that burst pools try to get: the most they may, within the room and their own limits."""
    if (room < 0.0).any() or (most < 0.0).any():
        raise BrokenInvariant("guarantees above a pool are larger than their limits")
    return clipped(np.minimum(most, room), strong, limits)


def clipped(proposed: Floats, strong: Floats, limits: Floats) -> Floats:
    """Makes strong + proposed keep the limits exactly: rounding is taken back double by double."""
    over = strong + proposed > limits
    if not over.any():
        return proposed
    if (strong + proposed > limits + EPS).any():
        raise BrokenInvariant("a guarantee with its integral part is larger than the limits")
    fitted = np.where(over, limits - strong, proposed)
    for _ in range(_MOST_STEPS):
        over = strong + fitted > limits
        if not over.any():
            return fitted
        fitted = np.where(over, np.nextafter(fitted, 0.0), fitted)
    raise BrokenInvariant("a guarantee cannot be made to keep its limit")
