"""Volumes are to the bit those of the twin: on trees of any depth, in clusters of odd sizes, with everything handed on or nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pytest

from headrace.pools import IntegralType
from headrace.resources import ZERO, Resources
from headrace_fair_share.hdrf.arrays import column
from headrace_fair_share.hdrf.integral_shares import ratio_by_volume
from headrace_fair_share.hdrf.model import IntegralState, TreeInput
from tests.reference import volumes as twin
from tests.reference.elements import grow
from tests.support.effort import few_or_many
from tests.support.savings import after
from tests.support.trees import random_tree
from tests.support.twin_savings import passed

TREES: Final = few_or_many(200, 3_000)
SATURATION_S: Final = 60.0


def a_tree(seed: int) -> TreeInput:
    tree = random_tree(random.Random(seed), 14, 0, overflowing=True)
    nothing = {pool.name: IntegralState() for pool in tree.pools if pool.integral is not IntegralType.NONE}
    return msgspec.structs.replace(tree, integral=nothing | tree.integral)


def as_they_are(tree: TreeInput) -> dict[str, tuple[float, ...]]:
    return {name: state.volume for name, state in tree.integral.items()}


@pytest.mark.both
@pytest.mark.parametrize("dt_us", [1_000, 200_000, 10_000_000, 100_000_000])
def test_always_volumes_are_those_of_the_twin(dt_us: int) -> None:
    handed_on = 0
    for seed in range(TREES):
        tree = a_tree(seed)
        advanced = after(tree, dt_us)
        assert as_they_are(advanced) == passed(tree, dt_us), seed
        handed_on += as_they_are(advanced) != as_they_are(after(kept_to_themselves(tree), dt_us))
    assert handed_on > TREES // 100


#: 100,000 hosts of 256 cores and 4 TiB.
LARGEST: Final = Resources(user_slots=25_600_000, cpu=2_560_000_000, gpu=800_000, memory=100_000 * 2**42, network=10**9)


def in_the_largest_cluster(tree: TreeInput) -> TreeInput:
    """The same parts of a cluster of the largest size, where volumes are full after thirty days."""
    sizes = [new / old if old else 0.0 for new, old in zip(LARGEST.as_tuple(), tree.total.as_tuple(), strict=True)]
    pools = [
        msgspec.structs.replace(pool, resource_flow=Resources(*map(round, times(pool.resource_flow.as_tuple(), sizes))))
        for pool in tree.pools
    ]
    integral = {}
    for name, state in tree.integral.items():
        user_slots, cpu, gpu, memory, network = times(state.volume, sizes)
        volume = (user_slots, float(round(cpu)), gpu, memory, network)
        integral[name] = msgspec.structs.replace(state, volume=volume)
    options = msgspec.structs.replace(tree.options, saturation_period_s=30 * 86_400.0)
    return msgspec.structs.replace(tree, total=LARGEST, pools=pools, integral=integral, options=options)


def times(amounts: Sequence[float], sizes: Sequence[float]) -> list[float]:
    return [amount * size for amount, size in zip(amounts, sizes, strict=True)]


@pytest.mark.both
@pytest.mark.parametrize("dt_s", [0.2, 3_600.0, 20 * 86_400.0])
def test_always_volumes_of_the_largest_cluster_are_those_of_the_twin(dt_s: float) -> None:
    for seed in range(TREES):
        tree = in_the_largest_cluster(a_tree(seed))
        dt_us = round(dt_s * 1e6)

        assert as_they_are(after(tree, dt_us)) == passed(tree, dt_us), seed


def kept_to_themselves(tree: TreeInput) -> TreeInput:
    """The same, where nobody hands anything on."""
    pools = [msgspec.structs.replace(pool, distribute_free_volume=False) for pool in tree.pools]
    return msgspec.structs.replace(tree, pools=pools)


@pytest.mark.both
def test_always_what_a_volume_is_worth_is_what_the_twin_says() -> None:
    for seed in range(TREES):
        tree = a_tree(seed)
        grown = grow(tree)
        wanted = [twin.ratio_by_volume(grown, pool) for pool in grown.pools]
        volumes = np.array([pool.volume for pool in grown.pools]).T

        assert ratio_by_volume(volumes, column(tree.total), tree.options.smooth_period_s).tolist() == wanted, seed


def test_always_a_cluster_of_nothing_freezes_volumes() -> None:
    for seed in range(50):
        tree = msgspec.structs.replace(a_tree(seed), total=ZERO)

        assert as_they_are(after(tree, 10_000_000)) == as_they_are(tree)
