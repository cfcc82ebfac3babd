"""Free volume: the overflow of full pools goes to siblings with room for it, if their parents hand it on.

Overflow gathers upwards until it meets room for it. Pools that distribute hand it down to the children that are still hungry, in
proportion to their total flows, those nearest to their capacity first. What nobody takes is lost. Pools with an integral guarantee of
their own are the ends of this tree: what is below one has no part in it.

Upwards all pools of a level are summed up at once. Downwards families are mostly small, and plain numbers are quicker than arrays.
Sums run in the order of children in any case, since figures are exact to the last bit.
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

Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Family:
    """The pools of an advance by their places. Parents stand before their children."""

    #: -1 at the top.
    parent: Places
    #: Places by the number of pools above.
    levels: list[Places]
    #: Pools that gather and hand on: those without a guarantee of their own and with none above them.
    composite: Flags


def family_of(flows: Sequence[PoolFlow]) -> Family:
    """Reads the places of parents."""
    depth, composite = [0] * len(flows), [False] * len(flows)
    for place, flow in enumerate(flows):
        depth[place] = depth[flow.parent] + 1 if flow.parent >= 0 else 0
        composite[place] = flow.guarantee_type == "none" and (flow.parent < 0 or composite[flow.parent])
    depths = np.array(depth, np.intp)
    return Family(
        parent=np.array([flow.parent for flow in flows], np.intp),
        levels=[np.flatnonzero(depths == level) for level in range(max(depth, default=-1) + 1)],
        composite=np.array(composite, np.bool_),
    )


def total_flows(family: Family, flow: Floats) -> Floats:
    """The flow of each pool with all below it."""
    total = flow.copy()
    for level in family.levels[:0:-1]:
        np.add.at(total, family.parent[level], total[level])
    return total


def handed_out(family: Family, refilled: Refilled, total_flow: Floats, accepts: Flags, distributes: Flags) -> Floats:
    """The volumes after what overflowed from some pools was offered to others."""
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


def _gathered(family: Family, refilled: Refilled, accepts: Flags) -> tuple[Floats, Floats]:
    """The overflow of the children of each pool, and the volume that the pool with all below it would accept."""
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


def _sums(family: Family, parts: Floats, children: Places) -> Floats:
    """The sums by parent, one child added after another."""
    parents, count = family.parent[children], len(family.parent)
    return np.array([np.bincount(parents, row, count) for row in parts[:, children]])


def _share_out(
    free: float, children: list[int], room: list[float], flow: list[float], taken: list[float], *, whole: bool
) -> None:
    """Shares out a free volume: by flow, to nobody more than there is room for."""
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
