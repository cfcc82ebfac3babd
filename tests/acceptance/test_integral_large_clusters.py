"""Savings in large clusters, in simulated time: one team saves for weeks, and another is charged for what it draws all the while."""

from __future__ import annotations

import pytest

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import IntegralGuarantees, IntegralType, PartialResources, Pool, PoolConfig
from headrace.pools.tree_options import TreeIntegralOptions, TreeOptions
from headrace.resources import Resources
from tests.support.simulated_tree import SimulatedTree

SAVER, SPENDER, HUNGRY = PoolName("saver"), PoolName("spender"), PoolName("hungry")
HOUR_S, DAY_S = 3_600, 86_400


def guarantees(total: Resources, *, flow: float, burst: float) -> PoolConfig:
    """Parts of the cpu of the cluster; savings hold its other resources in proportion."""
    return PoolConfig(
        integral_guarantees=IntegralGuarantees(
            guarantee_type=IntegralType.BURST,
            resource_flow=PartialResources(cpu=round(total.cpu * flow)),
            burst_guarantee_resources=PartialResources(cpu=round(total.cpu * burst)),
        )
    )


@pytest.mark.both
@pytest.mark.parametrize(
    ("hosts", "cores", "memory", "saturation_s"),
    [(1_000, 128, 256 * 2**30, DAY_S), (100_000, 256, 4 * 2**40, 30 * DAY_S)],
)
def test_one_team_saves_until_it_is_full_and_another_draws_what_it_has_and_no_more(
    hosts: int, cores: int, memory: int, saturation_s: int
) -> None:
    total = Resources(user_slots=hosts * cores, cpu=hosts * cores * 100, memory=hosts * memory)
    pools = [
        Pool(SAVER, ROOT_POOL, guarantees(total, flow=0.3, burst=0.3)),
        Pool(SPENDER, ROOT_POOL, guarantees(total, flow=0.1, burst=0.2)),
        Pool(HUNGRY, ROOT_POOL, PoolConfig()),
    ]
    integral = TreeIntegralOptions(pool_capacity_saturation_period=saturation_s * 1_000)
    tree = SimulatedTree(total, pools, TreeOptions(integral_guarantees=integral))
    tree.wants(HUNGRY, hosts * cores)
    tree.update(0)

    for _ in range(24):
        tree.update(saturation_s // 24 * 1_000)
    full = tree.points()
    for pool, flow in ((SAVER, 0.3), (SPENDER, 0.1)):
        assert full[pool].volume == pytest.approx(hosts * cores * flow * saturation_s)

    tree.wants(SPENDER, hosts * cores)
    drawn = 0.0
    for _ in range(48):
        tree.update(saturation_s // 24 * 1_000)
        drawn += tree.points()[SPENDER].integral_part * saturation_s / 24
    spent = tree.points()
    # It began full, what flowed in meanwhile was twice as much, and no more than that was there to draw.
    assert drawn <= hosts * cores * 0.1 * saturation_s * 3.1
    assert spent[SPENDER].volume <= full[SPENDER].volume * 0.1
    assert spent[SAVER].volume == full[SAVER].volume
    assert tree.fair_share.volumes.chain.broken == 0
    assert tree.integral.check() == []
