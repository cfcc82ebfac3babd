"""Free volume: what overflows from full savings goes to siblings that have room for it, where their parents hand it on.

Overflow gathers upwards until it meets room for it; pools that distribute hand it down to the children that are still hungry, in
proportion to their total flows, those nearest to their capacity first. What nobody takes is lost. Pools with an integral guarantee of
their own are the ends of this tree: what is below one has no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.resources import EPS
from headrace.wire.integral import PoolFlow
from headrace_integral.volumes import CPU, Flags, Floats, Refilled, rounded

__all__ = ["Family", "family_of", "handed_out", "total_flows"]


@dataclass(slots=True)
class Family:
    """How the pools of an advance belong together, by their places."""

    #: Of the root, which stands in the list nowhere.
    top: list[int] = field(default_factory=list)
    children: list[list[int]] = field(default_factory=list)
    #: Pools that gather and hand on: those without a guarantee of their own and with none above them; parents first.
    composite: list[int] = field(default_factory=list)


def family_of(flows: Sequence[PoolFlow]) -> Family:
    """Reads the places of parents, each before its children."""
    family = Family(children=[[] for _ in flows])
    inside = [False] * len(flows)
    for place, flow in enumerate(flows):
        own = flow.guarantee_type != "none"
        (family.children[flow.parent] if flow.parent >= 0 else family.top).append(place)
        inside[place] = flow.parent >= 0 and (inside[flow.parent] or flows[flow.parent].guarantee_type != "none")
        if not (own or inside[place]):
            family.composite.append(place)
    return family


def total_flows(family: Family, flow: Floats) -> Floats:
    """The flow of each pool with all below it; sums run in the order of children."""
    total = flow.tolist()
    for place in range(len(total) - 1, -1, -1):
        for child in family.children[place]:
            total[place] += total[child]
    return np.array(total)


def handed_out(family: Family, refilled: Refilled, total_flow: Floats, accepts: Flags, distributes: Flags) -> Floats:
    """The volumes after what overflowed from some pools was offered to others."""
    overflow, acceptable = refilled.overflow.copy(), refilled.acceptable.copy()
    overflow[:, family.composite] = acceptable[:, family.composite] = 0.0
    spilt = np.zeros_like(overflow)
    for pool in reversed(family.composite):
        kids = family.children[pool]
        spilt[:, pool], room = _sum(overflow[:, kids]), _sum(acceptable[:, kids])
        above = spilt[:, pool] > room
        overflow[:, pool] = np.where(above, spilt[:, pool] - room, 0.0)
        acceptable[:, pool] = np.where(above | ~accepts[pool], 0.0, room - spilt[:, pool])
    accepted = np.zeros_like(overflow)
    for pool in family.composite:
        if not distributes[pool]:
            continue
        takers = np.array(family.children[pool], np.intp)
        free = accepted[:, pool] + spilt[:, pool]
        for r in np.flatnonzero(free).tolist():
            accepted[r, takers] = _shared_out(float(free[r]), acceptable[r, takers], total_flow[takers], whole=r == CPU)
    accepted[:, family.composite] = 0.0
    return refilled.volume + accepted


def _sum(parts: Floats) -> Floats:
    """Of the columns, one after another."""
    return np.asarray(np.cumsum(parts, axis=1)[:, -1]) if parts.shape[1] else np.zeros(len(parts))


def _shared_out(free: float, acceptable: Floats, flow: Floats, *, whole: bool) -> Floats:
    """How much of a free volume each child accepts: by flow, nobody more than there is room for."""
    hungry = np.flatnonzero((acceptable > EPS) & (flow > EPS))
    hungry = hungry[np.argsort(acceptable[hungry] / flow[hungry], kind="stable")]
    given = np.zeros(len(acceptable))
    left, flows = free, float(np.cumsum(flow[hungry])[-1]) if len(hungry) else 0.0
    for place, child in enumerate(hungry.tolist()):
        if _offer(left * flow[child] / flows, whole) < acceptable[child]:
            late = hungry[place:]
            offers = left * flow[late] / flows
            given[late] = rounded(offers) if whole else offers
            break
        given[child] = acceptable[child]
        left -= acceptable[child]
        flows -= flow[child]
    return given


def _offer(volume: float, whole: bool) -> float:
    return float(rounded(np.array(volume))) if whole else volume
