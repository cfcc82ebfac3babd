"""The day that integral guarantees are for: production needs the whole cluster for half of it, research half of it on average.

Production may burst to 2,000 cores and has a flow of 1,000; research is relaxed, with a flow of 1,000; the cluster has 2,000. On the
first day production saves. On the second it works from 8:00 to 20:00. Research would take everything at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import IntegralGuarantees, IntegralType, PartialResources, Pool, PoolConfig
from headrace.resources import Resources
from tests.support.simulated_tree import PoolPoint, SimulatedTree

__all__ = [
    "BUSY_FROM_S",
    "BUSY_UNTIL_S",
    "CLUSTER_CORES",
    "END_S",
    "HOUR_S",
    "PRODUCTION",
    "RESEARCH",
    "TOTAL",
    "Sample",
    "integral_pools",
    "strong_pools",
    "two_days",
]

HOUR_S: Final = 3_600
CLUSTER_CORES: Final = 2_000
PRODUCTION, RESEARCH = PoolName("production"), PoolName("research")
TOTAL: Final = Resources(user_slots=CLUSTER_CORES, cpu=CLUSTER_CORES * 100)
#: Of the second day.
BUSY_FROM_S, BUSY_UNTIL_S = 32 * HOUR_S, 44 * HOUR_S
END_S = 48 * HOUR_S


class Sample(msgspec.Struct, frozen=True):
    """One update: seconds since the first midnight, and both pools."""

    at_s: int
    pools: dict[PoolName, PoolPoint]


def integral_pools() -> list[Pool]:
    """What the teams need, promised so that both fit."""
    burst = IntegralGuarantees(
        guarantee_type=IntegralType.BURST,
        resource_flow=PartialResources(cpu=100_000),
        burst_guarantee_resources=PartialResources(cpu=200_000),
    )
    relaxed = IntegralGuarantees(guarantee_type=IntegralType.RELAXED, resource_flow=PartialResources(cpu=100_000))
    return [
        Pool(PRODUCTION, ROOT_POOL, PoolConfig(integral_guarantees=burst)),
        Pool(RESEARCH, ROOT_POOL, PoolConfig(integral_guarantees=relaxed)),
    ]


def strong_pools() -> list[Pool]:
    """The same, promised at every moment."""
    return [
        Pool(name, ROOT_POOL, PoolConfig(strong_guarantee_resources=PartialResources(cpu=cores * 100)))
        for name, cores in ((PRODUCTION, 2_000), (RESEARCH, 1_000))
    ]


def two_days(period_s: int, on_update: Callable[[SimulatedTree], None] | None = None) -> list[Sample]:
    """Both days, an update every `period_s` seconds; `on_update` sees the tree after each.

    The services update every 200 ms, which would be 864,000 updates; no figure here is off by more than what one period makes.
    """
    tree = SimulatedTree(TOTAL, integral_pools())
    tree.wants(RESEARCH, CLUSTER_CORES)
    samples: list[Sample] = []
    for at_s in range(0, END_S + 1, period_s):
        if at_s == BUSY_FROM_S:
            tree.wants(PRODUCTION, CLUSTER_CORES)
        if at_s == BUSY_UNTIL_S:
            tree.wants(PRODUCTION, 0)
        tree.update(period_s * 1_000 if at_s else 0)
        samples.append(Sample(at_s, dict(tree.points())))
        if on_update is not None:
            on_update(tree)
    return samples
