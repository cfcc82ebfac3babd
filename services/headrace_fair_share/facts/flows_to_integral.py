"""The flows that are sent to the integral service: those of burst and relaxed pools, and of all pools above them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from headrace.ids import PoolName
from headrace.pools import IntegralType
from headrace.resources import Resources
from headrace.wire.integral import PoolFlow
from headrace_fair_share.hdrf.arrays import amounts_of, column, shares_of
from headrace_fair_share.hdrf.model import PoolInput

#: Largest ratio that an advance may contain.
_LARGEST_RATIO: Final = 1e6


def flows_of(pools: Sequence[PoolInput], total: Resources, *, distribute: bool) -> list[PoolFlow]:
    """Return the flows of a tree without grants, in the order of `pools`: parents before children.

    `distribute` says whether pools distribute free volume among their children. It applies to pools that do not set this themselves.
    """
    wanted = [False] * len(pools)
    for place in range(len(pools) - 1, -1, -1):
        wanted[place] = wanted[place] or pools[place].integral is not IntegralType.NONE
        if wanted[place] and pools[place].parent >= 0:
            wanted[pools[place].parent] = True
    flow = _ratios([pool.resource_flow for pool in pools], total)
    burst = _ratios([pool.burst_guarantee for pool in pools], total)
    places = {-1: -1}
    flows: list[PoolFlow] = []
    for place, pool in enumerate(pools):
        if not wanted[place]:
            continue
        places[place] = len(flows)
        own = pool.integral is not IntegralType.NONE
        flows.append(
            PoolFlow(
                pool=PoolName(pool.name),
                flow_ratio=flow[place] if own else 0.0,
                burst_ratio=burst[place] if own else 0.0,
                grant_ratio=0.0,
                guarantee_type=pool.integral.value,
                can_accept_free_volume=pool.can_accept_free_volume,
                parent=places[pool.parent],
                distributes_free_volume=(
                    distribute if pool.distribute_free_volume is None else pool.distribute_free_volume
                ),
            )
        )
    return flows


def with_grants(flows: list[PoolFlow], grants: Mapping[PoolName, float]) -> list[PoolFlow]:
    """Return the flows, completed by the grants that their pools got in the previous update.

    The grant of a pool is the largest component of its granted share.
    """
    return [
        msgspec.structs.replace(flow, grant_ratio=min(grants[flow.pool], _LARGEST_RATIO))
        if flow.guarantee_type != IntegralType.NONE and grants.get(flow.pool)
        else flow
        for flow in flows
    ]


def _ratios(amounts: Sequence[Resources], total: Resources) -> list[float]:
    """Return the largest share of a resource in each of the amounts. It is computed exactly as for grants."""
    shares = shares_of(amounts_of(amounts, len(amounts)), column(total))
    ratios: list[float] = np.minimum(shares.max(axis=0), _LARGEST_RATIO).tolist()
    return ratios
