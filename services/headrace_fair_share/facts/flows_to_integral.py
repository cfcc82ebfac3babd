"""The flows that integral is told: of burst and relaxed pools, and of all that stand above them. Pure."""

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

#: The wire's bound of ratios of an advance.
_LARGEST_RATIO: Final = 1e6


def flows_of(pools: Sequence[PoolInput], total: Resources, *, distribute: bool) -> list[PoolFlow]:
    """Returns the flows of a tree of which nothing was granted, in the order of `pools`: parents before children.

    Where a pool does not say whether free volume below it is handed on, `distribute` does.
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
    """The flows with what the update before granted to each pool, as the largest component of a share."""
    return [
        msgspec.structs.replace(flow, grant_ratio=min(grants[flow.pool], _LARGEST_RATIO))
        if flow.guarantee_type != IntegralType.NONE and grants.get(flow.pool)
        else flow
        for flow in flows
    ]


def _ratios(amounts: Sequence[Resources], total: Resources) -> list[float]:
    """Largest shares of any resource, to the bit those that grants are worked out with."""
    shares = shares_of(amounts_of(amounts, len(amounts)), column(total))
    ratios: list[float] = np.minimum(shares.max(axis=0), _LARGEST_RATIO).tolist()
    return ratios
