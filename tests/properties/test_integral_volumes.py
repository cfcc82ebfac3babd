"""Volumes are to the bit those of the twin: on trees of any depth, in clusters of odd sizes, with everything handed on or nothing."""

from __future__ import annotations

import random
from typing import Final

import msgspec
import numpy as np
import pytest

from headrace.resources import ZERO, Resources
from headrace_fair_share.hdrf.arrays import column
from headrace_fair_share.hdrf.integral import ratio_by_volume
from headrace_fair_share.hdrf.model import IntegralKind, IntegralState, PoolInput, TreeInput, TreeOptions
from tests.reference import volumes as twin
from tests.reference.elements import grow
from tests.support.effort import few_or_many
from tests.support.savings import after
from tests.support.twin_savings import passed

TREES: Final = few_or_many(200, 3_000)
SATURATION_S: Final = 60.0


def a_tree(seed: int) -> TreeInput:
    draw = random.Random(seed)
    total = Resources(
        user_slots=draw.randint(1, 500),
        cpu=draw.randint(100, 50_000),
        gpu=draw.choice((0, 7_000)),
        memory=draw.randint(1, 10**9),
    )
    pools: list[PoolInput] = []
    savings: dict[str, IntegralState] = {}
    for place in range(draw.randint(1, 14)):
        kind = draw.choice((IntegralKind.NONE, IntegralKind.BURST, IntegralKind.RELAXED))
        pool = PoolInput(
            name=f"pool{place}",
            parent=draw.randint(-1, place - 1),
            integral=kind,
            resource_flow=Resources(cpu=draw.randint(0, total.cpu // 3)),
            can_accept_free_volume=draw.random() < 0.8,
            distribute_free_volume=draw.choice((True, True, False, None)),
        )
        pools.append(pool)
        if kind is not IntegralKind.NONE:
            seconds = draw.choice((0, 3, 20, 59, 60, 200)) * draw.random()
            u, c, g, m, n = total.as_tuple()
            volume = (u * seconds, float(round(c * seconds)), g * seconds, m * seconds, n * seconds)
            savings[pool.name] = IntegralState(volume, draw.choice((0.0, 0.01, 0.2)))
    options = TreeOptions(saturation_period_s=SATURATION_S, distribute_free_volume=draw.random() < 0.5)
    return TreeInput(total=total, pools=pools, integral=savings, options=options)


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
