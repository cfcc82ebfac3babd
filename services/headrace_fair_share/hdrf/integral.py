"""IntegralPools guarantees: how much of its savings each pool is granted beside its strong guarantee.

Burst pools are served one after another, each as far as the limits above it leave room. What the guaranteed demand of the top pools
leaves of the cluster is then lent to the relaxed pools together. Grants raise the proposed integral share of the pool and of all that
is above it, and never lift a guarantee over a limit, not even by the last bit.

What a pool would make of a grant is tried out: its function is built into a row of its own with the grant that it might get (burst),
or with temporary limits (relaxed). All pools of a kind are built in one batch; only a burst pool that earlier ones have taken room
from is built again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.resources import EPS
from headrace_fair_share.hdrf.arrays import RESOURCES, BrokenInvariant, Floats, Ints, shares_of
from headrace_fair_share.hdrf.functions.incremental import IncrementalFunctions
from headrace_fair_share.hdrf.layout import Layout
from headrace_fair_share.hdrf.search import largest

__all__ = ["Grants", "clipped", "ratio_by_volume"]

_MOST_STEPS: Final = 32


def ratio_by_volume(volume: Floats, total: Ints, smooth_period_s: float) -> Floats:
    """The share of the cluster that could be drawn if the volume were to last for the smooth period."""
    there = (total > 0)[:, 0]
    if not there.any():
        return np.zeros(volume.shape[1])
    ratios: Floats = shares_of(volume, total)[there].min(axis=0) / smooth_period_s
    return ratios


@dataclass(slots=True)
class Grants:
    """Grants in the making. `proposed` and `drawn` (by element) are filled in."""

    layout: Layout
    functions: IncrementalFunctions
    #: Of each pool that may get something, itself and all above it below the root.
    paths: dict[int, Ints]
    #: After fitting.
    strong: Floats
    limits: Floats
    proposed: Floats
    #: Largest component of each pool's grant: what its volume is charged until the next update.
    drawn: Floats

    def to_burst_pools(self, pools: Ints, wanted: Floats) -> None:
        """Grants to burst pools, in order; `wanted` of each is a share of all resources alike."""
        if not len(pools):
            return
        alone = _proposals(wanted, self._rooms()[:, pools], self.strong[:, pools], self.limits[:, pools])
        self._try_out(pools, alone)
        for place, pool in enumerate(pools.tolist()):
            strong, limits = self.strong[:, pool], self.limits[:, pool]
            proposal = _proposals(wanted[place], self._room(pool), strong, limits)
            if (proposal != alone[:, place]).any():
                self._try_out(pools[place : place + 1], proposal[:, np.newaxis])
            used = self.functions.store.at_zero(self.functions.trial_rows[pool : pool + 1])[:, 0]
            self._give(pool, np.maximum(used - self.strong[:, pool], 0.0))
        self.functions.served(pools)

    def to_relaxed_pools(self, pools: Ints, ratio: Floats, most: Floats, demand: Floats) -> None:
        """Grants to relaxed pools, together: `ratio` by their volumes, none of them above `most`, from what the top pools leave."""
        if not len(pools):
            return
        strong = self.strong[:, pools]
        limits = np.minimum(self.limits[:, pools], strong + np.minimum(ratio, most))
        self.functions.try_out(pools, strong + self.proposed[:, pools], limits, self.proposed)
        rows = self.functions.trial_rows[pools]
        available = self._available(demand)
        weight = ratio / ratio.min()

        def used(fit: float) -> Floats:
            return np.maximum(self.functions.store.shares_at(rows, np.minimum(1.0, fit * weight)) - strong, 0.0)

        def fits(fit: float) -> bool:
            return bool((np.cumsum(used(fit), axis=1)[:, -1] <= available).all())

        # At 0 nobody asks for more than his guarantee; rounding may still make it an ulp too much.
        granted = used(largest(0.0, 1.0, fits) if fits(0.0) else 0.0)
        for place, pool in enumerate(pools.tolist()):
            self._give(pool, np.minimum(granted[:, place], self._room(pool)))
        self.functions.served(pools)

    def _try_out(self, pools: Ints, proposals: Floats) -> None:
        guarantees = self.strong[:, pools] + proposals
        self.functions.try_out(pools, guarantees, self.limits[:, pools], self.proposed)

    def _rooms(self) -> Floats:
        """What the limits of each pool, and of all above it, leave beside what is guaranteed and granted there."""
        # In this order: the sum is clipped to the limits, so that the room is never below zero by an ulp.
        room = self.limits - (self.strong + self.proposed)
        for family in self.layout.pool_families:
            if family.parents[0] != 0:
                above = family.spread(room[:, family.parents])
                room[:, family.children] = np.minimum(room[:, family.children], above)
        return room

    def _room(self, pool: int) -> Floats:
        """The same for a single pool."""
        path = self.paths[pool]
        room: Floats = (self.limits[:, path] - (self.strong[:, path] + self.proposed[:, path])).min(axis=1)
        return room

    def _give(self, pool: int, granted: Floats) -> None:
        """Adds a grant to a pool and to everything above it."""
        path = self.paths[pool]
        raised = self.proposed[:, path] + granted[:, np.newaxis]
        self.proposed[:, path] = clipped(raised, self.strong[:, path], self.limits[:, path])
        self.proposed[:, 0] += granted
        self.drawn[pool] = granted.max()

    def _available(self, demand: Floats) -> Floats:
        """What is left of the cluster when the top pools have what they are guaranteed and want."""
        available = np.ones(RESOURCES)
        for top in self.layout.children_of(np.zeros(1, np.int64)).children.tolist():
            available = available - np.minimum(self.strong[:, top] + self.proposed[:, top], demand[:, top])
        return np.maximum(available, 0.0)


def _proposals(wanted: Floats, room: Floats, strong: Floats, limits: Floats) -> Floats:
    """What burst pools try to get: as much as they want of every resource, within the room and their own limits."""
    if (room < 0.0).any() or (wanted < 0.0).any():
        raise BrokenInvariant("guarantees above a pool are larger than their limits")
    return clipped(np.minimum(wanted, room), strong, limits)


def clipped(proposed: Floats, strong: Floats, limits: Floats) -> Floats:
    """A proposed share with which the guarantee keeps the limits exactly: rounding is taken back double by double."""
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
