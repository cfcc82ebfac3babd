"""Integral guarantees: the share that each pool is granted from its volume, in addition to its strong guarantee.

    burst:   proposal = min(burst ratio, ratio by volume), as far as the limits above leave room
    relaxed: limit    = strong + min(ratio by volume, multiplier * flow ratio), all pools together within what is available
    both:    grant    = max(share that the pool would take - strong, 0)

A grant raises the proposed integral share of the pool and of all pools above it. No grant makes strong guarantee + proposed share exceed a
limit, not even by the last bit. Trial functions say what a pool would take; they are built in one batch for all burst pools, and in one
batch for all relaxed pools.

Example: cluster 100 cores, volume 900 core-seconds, smooth period 60 s, burst guarantee 20 cores. ratio_by_volume = 900 / 100 / 60 = 0.15,
most_of_burst = min(0.20, 0.15) = 0.15. The pool wants 50 cores, so its grant is 0.15.

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
from headrace_fair_share.hdrf.input_arrays import Layout
from headrace_fair_share.hdrf.search import largest

_MOST_STEPS: Final = 32


def ratio_by_volume(volume: Floats, total: Ints, smooth_period_s: float) -> Floats:
    """Return the share of the cluster that uses up a volume in one smooth period.

    It is the minimum of volume / total / period over the resources that the cluster has.
    """
    there = (total > 0)[:, 0]
    if not there.any():
        return np.zeros(volume.shape[1])
    ratios: Floats = shares_of(volume, total)[there].min(axis=0) / smooth_period_s
    return ratios


def most_of_burst(burst_ratio: Floats, by_volume: Floats) -> Floats:
    """Return the upper bound of the grant to each burst pool: min(burst ratio, ratio by volume). It is the same for all resources."""
    return np.minimum(burst_ratio, by_volume)


def most_of_relaxed(by_volume: Floats, multiplier: Floats, flow_ratio: Floats) -> Floats:
    """Return the upper bound of the grant to each relaxed pool: min(ratio by volume, multiplier * flow ratio). It is the same for all
    resources.
    """
    return np.minimum(by_volume, multiplier * flow_ratio)


def relaxed_weights(by_volume: Floats) -> Floats:
    """Return the weights of relaxed pools: their ratios by volume, scaled so that the smallest weight is 1."""
    weights: Floats = by_volume / by_volume.min()
    return weights


def beyond_strong(share: Floats, strong: Floats) -> Floats:
    """Return the part of a share that needs a grant: max(share - strong, 0)."""
    return np.maximum(beyond(share, strong), 0.0)


def room_within_limits(limits: Floats, strong: Floats, proposed: Floats) -> Floats:
    """Return by how much a pool's guarantees may still grow within its own limit: limit - (strong + proposed)."""
    # The sum must be computed first. Proposed shares were lowered until this sum, as rounded, is within the limit, so the difference is
    # never negative.
    return limits - (strong + proposed)


def left_by_top_pools(top_guarantees: Floats, top_demand: Floats) -> Floats:
    """Return what top pools leave of the cluster: 1 - sum of min(guarantee, demand), at least 0.

    Integral pools thus get the part of a guarantee for which there is no demand, and not the part for which there is demand.
    """
    available = np.ones(RESOURCES)
    for used in np.minimum(top_guarantees, top_demand).T:
        available = available - used
    return np.maximum(available, 0.0)


@dataclass(slots=True)
class Grants:
    """Computes the grants to integral pools, and writes them to `proposed` and `last_share_ratio`, by element."""

    layout: Layout
    functions: IncrementalFunctions
    #: The path up from each integral pool: the pool and all pools above it, without the root.
    paths: dict[int, Ints]
    #: Strong guarantees as shares, reduced where they do not all fit.
    strong: Floats
    limits: Floats
    proposed: Floats
    #: Largest component of each pool's grant. The pool's volume is charged for it until the next update.
    last_share_ratio: Floats
    demand: Floats

    def to_burst_pools(self, pools: Ints, most: Floats, bursts: Floats) -> None:
        """Make the grants to burst pools, one pool after another. `most` gives the upper bound of each pool's grant, and `bursts` gives
        each pool's burst ratio.
        """
        if not len(pools):
            return
        # Amounts are rounded down. In a small cluster, guarantees and bursts may therefore fit into the cluster as amounts, while their
        # shares add up to more than 1. In that case no grant is larger than the part of the cluster that guarantees and earlier grants
        # leave. With larger grants, the shares would exceed the cluster even at the root's fit factor 0.
        exceeds = bool((self.strong[:, 0] + bursts.sum() > 1.0 + EPS).any())
        rooms = self._rooms()[:, pools]
        if exceeds:
            rooms = np.minimum(rooms, self._left()[:, np.newaxis])
        alone = _proposals(most, rooms, self.strong[:, pools], self.limits[:, pools])
        self._try_out(pools, alone)
        for place, pool in enumerate(pools.tolist()):
            strong, limits = self.strong[:, pool], self.limits[:, pool]
            room = np.minimum(self._room(pool), self._left()) if exceeds else self._room(pool)
            proposal = _proposals(most[place], room, strong, limits)
            if (proposal != alone[:, place]).any():  # an earlier pool used some of the shared limit
                self._try_out(pools[place : place + 1], proposal[:, np.newaxis])
            used = self.functions.store.at_zero(self.functions.trial_rows[pool : pool + 1])[:, 0]
            self._give(pool, beyond_strong(used, strong))

    def to_relaxed_pools(self, pools: Ints, by_volume: Floats, most: Floats) -> None:
        """Make the grants to all relaxed pools at once. `by_volume` gives the ratio by volume of each pool, and `most` gives the upper
        bound of its grant.
        """
        if not len(pools):
            return
        strong = self.strong[:, pools]
        limits = np.minimum(self.limits[:, pools], strong + most)
        self.functions.try_out(pools, strong + self.proposed[:, pools], limits)
        rows, weights = self.functions.trial_rows[pools], relaxed_weights(by_volume)
        available = self._left()

        def granted(fit: float) -> Floats:
            return beyond_strong(self.functions.store.shares_at(rows, np.minimum(1.0, fit * weights)), strong)

        def fits(fit: float) -> bool:
            return bool((np.cumsum(granted(fit), axis=1)[:, -1] <= available).all())

        # At fit factor 0, no pool takes more than its guarantee, so `fits(0.0)` should be True. If a rounding error in the last place makes
        # it False, each pool gets only what it takes at fit factor 0.
        grants = granted(largest(0.0, 1.0, fits) if fits(0.0) else 0.0)
        for place, pool in enumerate(pools.tolist()):
            self._give(pool, np.minimum(grants[:, place], self._room(pool)))

    def _left(self) -> Floats:
        top = self.layout.top.children
        return left_by_top_pools(self.strong[:, top] + self.proposed[:, top], self.demand[:, top])

    def _try_out(self, pools: Ints, proposals: Floats) -> None:
        self.functions.try_out(pools, self.strong[:, pools] + proposals, self.limits[:, pools])

    def _rooms(self) -> Floats:
        """Return for every pool the minimum of `room_within_limits` over the pool and all pools above it, without the root."""
        room = room_within_limits(self.limits, self.strong, self.proposed)
        for family in self.layout.pool_families:
            if family.parents[0] != 0:
                above = family.spread(room[:, family.parents])
                room[:, family.children] = np.minimum(room[:, family.children], above)
        return room

    def _room(self, pool: int) -> Floats:
        """Return the minimum of `room_within_limits` over one pool and all pools above it, without the root."""
        path = self.paths[pool]
        room: Floats = room_within_limits(self.limits[:, path], self.strong[:, path], self.proposed[:, path]).min(
            axis=1
        )
        return room

    def _give(self, pool: int, granted: Floats) -> None:
        """Add a grant to a pool and to everything above it."""
        path = self.paths[pool]
        raised = self.proposed[:, path] + granted[:, np.newaxis]
        self.proposed[:, path] = clipped(raised, self.strong[:, path], self.limits[:, path])
        self.proposed[:, 0] += granted
        self.last_share_ratio[pool] = granted.max()


def _proposals(most: Floats, room: Floats, strong: Floats, limits: Floats) -> Floats:
    """Return the proposed shares of burst pools: the upper bounds `most`, lowered as far as `room` and the pools' own limits require."""
    if (room < 0.0).any() or (most < 0.0).any():
        raise BrokenInvariant("guarantees above a pool are larger than their limits")
    return clipped(np.minimum(most, room), strong, limits)


def clipped(proposed: Floats, strong: Floats, limits: Floats) -> Floats:
    """Lower `proposed` until strong + proposed exceeds no limit. If rounding still leaves an excess, go to the next lower double until
    there is none.
    """
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
    raise BrokenInvariant(f"a guarantee is above its limit after {_MOST_STEPS} steps of rounding down")
