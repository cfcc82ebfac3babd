"""Savings of pools with integral guarantees: what flows in, what was drawn, and what overflows into the savings of others.

A volume is an amount times seconds, of every resource of the cluster in proportion, for what flows and what is drawn are single
numbers. Of cpu it is kept in whole hundredths of a core-second, and every product is rounded to that.
Only these rules stand here; whose volumes they are and when time passes is for others to say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.resources import EPS
from headrace_fair_share.hdrf.arrays import CPU, RESOURCES, Bools, Floats, Ints, rounded
from headrace_fair_share.hdrf.layout import Layout

__all__ = ["Refill", "Refilled", "advanced", "free_volume_handed_out", "ratio_by_volume"]


@dataclass(frozen=True, slots=True)
class Refill:
    """What moves the volumes of some pools over a time."""

    #: Amounts, one column.
    total: Ints
    seconds: float
    saturation_period_s: float
    flow_ratio: Floats
    #: What the pools were granted during that time, used or not.
    drawn_ratio: Floats
    accepts_free: Bools


@dataclass(frozen=True, slots=True)
class Refilled:
    """Volumes after a time, what did not fit into them, and what would still fit in."""

    volume: Floats
    overflow: Floats
    acceptable: Floats


def advanced(volume: Floats, refill: Refill) -> Refilled:
    """Volumes (5, pools) after a time has passed. Savings above the capacity are kept, but grow no more."""
    passed = _times(refill.total.astype(np.float64), refill.seconds)
    income = rounded(refill.total * refill.flow_ratio)
    capacity = _times(income, refill.saturation_period_s)
    after = volume + _times(passed, refill.flow_ratio) - _times(passed, refill.drawn_ratio)
    after = np.maximum(after, 0.0)
    upper = np.maximum(volume, capacity)
    return Refilled(
        volume=np.minimum(after, upper),
        overflow=np.maximum(after - upper, 0.0),
        acceptable=np.where(refill.accepts_free, np.maximum(capacity - after, 0.0), 0.0),
    )


def ratio_by_volume(volume: Floats, total: Ints, smooth_period_s: float) -> Floats:
    """The share of the cluster that could be drawn if the volume were to last for the smooth period."""
    there = (total > 0)[:, 0]
    if not there.any():
        return np.zeros(volume.shape[1])
    scaled = volume[there] / total[there]
    ratios: Floats = scaled.min(axis=0) / smooth_period_s
    return ratios


def free_volume_handed_out(
    layout: Layout, integral: Ints, refilled: Refilled, total_flow: Floats, accepts: Bools, distributes: Bools
) -> Floats:
    """The volumes of the pools in `integral` after what overflowed from some was offered to others.

    Overflow gathers upwards until it meets room for it; pools that distribute hand it down to the children that are still hungry, in
    proportion to their flows.
    """
    overflow, acceptable = np.zeros((RESOURCES, layout.size)), np.zeros((RESOURCES, layout.size))
    overflow[:, integral], acceptable[:, integral] = refilled.overflow, refilled.acceptable
    own = np.zeros(layout.size, np.bool_)
    own[integral] = True
    below_overflow = _gather(layout, overflow, acceptable, own, accepts)
    accepted = np.zeros_like(overflow)
    for pools in layout.pool_levels[1:]:
        for pool in pools[distributes[pools] & ~own[pools]].tolist():
            kids = np.arange(layout.first_child[pool], layout.end_pools[pool])
            free = accepted[:, pool] + below_overflow[:, pool]
            for r in np.flatnonzero(free).tolist():
                accepted[r, kids] = _shared_out(free[r], acceptable[r, kids], total_flow[kids], whole=r == CPU)
    return refilled.volume + accepted[:, integral]


def _gather(layout: Layout, overflow: Floats, acceptable: Floats, own: Bools, accepts: Bools) -> Floats:
    """Fills in what overflows from each pool, and what it would accept, from the pools below; returns the overflow below each."""
    below = np.zeros_like(overflow)
    for family in reversed(layout.pool_families):
        above = family.parents
        spilt, room = family.sum(overflow[:, family.children]), family.sum(acceptable[:, family.children])
        below[:, above] = spilt
        free = np.where(own[above], overflow[:, above], np.maximum(spilt - room, 0.0))
        fits = np.where(accepts[above] & (spilt <= room), room - spilt, 0.0)
        overflow[:, above] = free
        acceptable[:, above] = np.where(own[above], acceptable[:, above], fits)
    return below


def _shared_out(free: float, acceptable: Floats, flow: Floats, *, whole: bool) -> Floats:
    """How much of a free volume each child accepts: by flow, nobody more than there is room for."""
    hungry = np.flatnonzero((acceptable > EPS) & (flow > EPS))
    hungry = hungry[np.argsort(acceptable[hungry] / flow[hungry], kind="stable")]
    given = np.zeros(len(acceptable))
    left, flows = free, float(np.cumsum(flow[hungry])[-1]) if len(hungry) else 0.0
    for place, child in enumerate(hungry.tolist()):
        offer = _offer(left * flow[child] / flows, whole)
        if offer < acceptable[child]:
            for late in hungry[place:].tolist():
                given[late] = _offer(left * flow[late] / flows, whole)
            break
        given[child] = acceptable[child]
        left -= acceptable[child]
        flows -= flow[child]
    return given


def _offer(volume: float, whole: bool) -> float:
    return float(rounded(np.array(volume))) if whole else volume


def _times(volume: Floats, factor: Floats | float) -> Floats:
    """A product of volumes, of cpu rounded."""
    product = np.multiply(volume, factor)
    product[CPU] = rounded(product[CPU])
    return product
