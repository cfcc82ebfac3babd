"""Pools that save and spend in every way, with demands that come and go: a course of updates that no figure may depend on kills."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import IntegralGuarantees, IntegralType, PartialResources, Pool, PoolConfig, TreeOptions
from headrace.resources import Resources
from tests.support.simulated_tree import SimulatedTree

__all__ = ["a_saver", "a_tree_of_savers", "begin"]

#: Odd figures, so that all roundings have something to do.
TOTAL: Final = Resources(user_slots=333, cpu=33_331, gpu=70_007, memory=7_777_777, network=130_003)
_LENGTHS_MS: Final = (200, 200, 333, 1_001, 7, 5_000)


def a_saver(name: str, parent: str, kind: IntegralType, flow: int, burst: int, *, accepts: bool = True) -> Pool:
    """A pool that saves; flow and burst in hundredths of a core."""
    guarantees = IntegralGuarantees(
        guarantee_type=kind,
        resource_flow=PartialResources(cpu=flow),
        burst_guarantee_resources=PartialResources(cpu=burst if kind is not IntegralType.RELAXED else None),
        can_accept_free_volume=accepts,
    )
    return Pool(PoolName(name), PoolName(parent), PoolConfig(integral_guarantees=guarantees))


def a_tree_of_savers() -> SimulatedTree:
    """Burst and relaxed pools, two of them below a parent that hands on what overflows after half a minute."""
    budget = IntegralGuarantees(
        resource_flow=PartialResources(cpu=5_000),
        burst_guarantee_resources=PartialResources(cpu=9_000),
        should_distribute_free_volume_among_children=True,
    )
    pools = [
        a_saver("burst", ROOT_POOL, IntegralType.BURST, 3_333, 12_000),
        a_saver("relaxed", ROOT_POOL, IntegralType.RELAXED, 2_500, 0),
        Pool(PoolName("parent"), ROOT_POOL, PoolConfig(integral_guarantees=budget)),
        a_saver("first", "parent", IntegralType.RELAXED, 1_111, 0),
        a_saver("second", "parent", IntegralType.BURST, 3_000, 7_000),
    ]
    plain = TreeOptions()
    half_a_minute = msgspec.structs.replace(plain.integral_guarantees, pool_capacity_saturation_period=30_000)
    return SimulatedTree(TOTAL, pools, msgspec.structs.replace(plain, integral_guarantees=half_a_minute))


def begin(tree: SimulatedTree, number: int) -> None:
    """The update of that number begins: demands have changed, time has passed."""
    if number % 40 == 5:
        tree.wants("burst", 150)
    if number % 40 == 30:
        tree.wants("burst", 0)
    if number % 60 == 10:
        tree.wants("relaxed", 300)
    if number % 60 == 55:
        tree.wants("relaxed", 20)
    if number % 100 == 50:
        tree.wants("second", 80)
    if number % 100 == 80:
        tree.wants("second", 0)
    if number == 300:
        tree.total = msgspec.structs.replace(TOTAL, cpu=TOTAL.cpu - 1_700)
    tree.begin_update(_LENGTHS_MS[number % len(_LENGTHS_MS)])
