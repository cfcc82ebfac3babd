"""Free volume: the overflow of full pools goes to siblings that can accept it, if the parent is configured to distribute it.

Overflow moves up the tree until it reaches pools that can accept it. A pool that distributes overflow passes it down to the children that
can still accept volume, in proportion to the total flows of these children. A child that is full gets no more, and the rest goes to the
other children. Volume that no pool accepts is lost. Pools with an integral guarantee of their own are the leaves of this tree: pools below
them take no part.

On the way up all pools of a level are summed at once. On the way down families are mostly small, and plain numbers are
faster than arrays. Sums always run in the order of children, because results must be exact to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.resources import EPS
from headrace.wire.integral import PoolFlow
from headrace_integral.volumes import CPU, Flags, Floats, Refilled

Indexes = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class AdvancedPools:
    """The pools of an advance by their indexes. Parents come before their children."""

    #: Index of each pool's parent; -1 at the top.
    parent: Indexes
    #: Indexes of the pools of each level; the level is the number of pools above a pool.
    levels: list[Indexes]
    #: True for pools that collect overflow and pass it on: neither they nor the pools above them have an integral guarantee.
    composite: Flags


def family_of(flows: Sequence[PoolFlow]) -> AdvancedPools:
    """Return the pools of an advance with their levels, built from the parent index of each pool."""
    depth, composite = [0] * len(flows), [False] * len(flows)
    for place, flow in enumerate(flows):
        depth[place] = depth[flow.parent] + 1 if flow.parent >= 0 else 0
        composite[place] = flow.guarantee_type == "none" and (flow.parent < 0 or composite[flow.parent])
    depths = np.array(depth, np.intp)
    return AdvancedPools(
        parent=np.array([flow.parent for flow in flows], np.intp),
        levels=[np.flatnonzero(depths == level) for level in range(max(depth, default=-1) + 1)],
        composite=np.array(composite, np.bool_),
    )


def total_flows(family: AdvancedPools, flow: Floats) -> Floats:
    """Return the flow of each pool including all pools below it."""
    total = flow.copy()
    for level in family.levels[:0:-1]:
        np.add.at(total, family.parent[level], total[level])
    return total


def handed_out(
    family: AdvancedPools, refilled: Refilled, total_flow: Floats, accepts: Flags, distributes: Flags
) -> Floats:
    """Return the volumes after full pools passed their overflow on to pools that accept it."""
    spilt, acceptable = _gathered(family, refilled, accepts)
    order = np.argsort(family.parent, kind="stable")
    begins = np.searchsorted(family.parent[order], np.arange(len(order) + 1)).tolist()
    everybody, flows = order.tolist(), total_flow.tolist()
    accepted = [[0.0] * len(everybody) for _ in spilt]
    handing_on = np.flatnonzero(family.composite & distributes).tolist()
    for r, (spilt_of, room, taken) in enumerate(zip(spilt.tolist(), acceptable.tolist(), accepted, strict=True)):
        for pool in handing_on:
            free = taken[pool] + spilt_of[pool]
            if free:
                children = everybody[begins[pool] : begins[pool + 1]]
                _share_out(free, children, room, flows, taken, whole=r == CPU)
    return np.asarray(refilled.volume + np.where(family.composite, 0.0, np.array(accepted)))


def _gathered(family: AdvancedPools, refilled: Refilled, accepts: Flags) -> tuple[Floats, Floats]:
    """Return the overflow of each pool's children, and the volume that each pool would accept together with all pools below it."""
    overflow = np.where(family.composite, 0.0, refilled.overflow)
    acceptable = np.where(family.composite, 0.0, refilled.acceptable)
    spilt = np.zeros_like(overflow)
    for above, level in zip(family.levels[-2::-1], family.levels[:0:-1], strict=True):
        children = level[family.composite[family.parent[level]]]
        pools = above[family.composite[above]]
        spilt[:, pools] = _sums(family, overflow, children)[:, pools]
        room = _sums(family, acceptable, children)[:, pools]
        too_much = spilt[:, pools] > room
        overflow[:, pools] = np.where(too_much, spilt[:, pools] - room, 0.0)
        acceptable[:, pools] = np.where(too_much | ~accepts[pools], 0.0, room - spilt[:, pools])
    return spilt, acceptable


def _sums(family: AdvancedPools, parts: Floats, children: Indexes) -> Floats:
    """Return for each parent the sum over its children, which are added one after another."""
    parents, count = family.parent[children], len(family.parent)
    return np.array([np.bincount(parents, row, count) for row in parts[:, children]])


def _share_out(
    free: float, children: list[int], room: list[float], flow: list[float], taken: list[float], *, whole: bool
) -> None:
    """Distribute a free volume in proportion to flow. No child receives more than it can accept (`room`)."""
    hungry = [child for child in children if room[child] > EPS and flow[child] > EPS]
    hungry.sort(key=lambda child: room[child] / flow[child])
    flows = 0.0
    for child in hungry:
        flows += flow[child]
    for place, child in enumerate(hungry):
        if _offer(free * flow[child] / flows, whole) < room[child]:
            for late in hungry[place:]:
                taken[late] = _offer(free * flow[late] / flows, whole)
            return
        taken[child] = room[child]
        free -= room[child]
        flows -= flow[child]


def _offer(volume: float, whole: bool) -> float:
    if not whole:
        return volume
    below = math.floor(volume)
    return float(below + (volume - below >= 0.5))
