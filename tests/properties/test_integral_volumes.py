"""Volumes are to the bit those of the twin: on trees of any depth, in clusters of odd sizes, with everything handed on or nothing."""

from __future__ import annotations

import random
from typing import Final

import msgspec
import numpy as np
import pytest

from headrace.pools import IntegralType
from headrace.resources import ZERO
from headrace_fair_share.hdrf.arrays import column
from headrace_fair_share.hdrf.integral import ratio_by_volume
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
    tree = random_tree(random.Random(seed), 14, 0, overflowing=True, nested=True)
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
