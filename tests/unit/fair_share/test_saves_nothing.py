"""A small part of few pieces rounds to none, and with it all that a pool could save: people are warned."""

from __future__ import annotations

import pytest

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import IntegralType, PoolTree, Tree
from headrace.resources import Resources
from headrace_fair_share.configuration.guarantee_rules import saves_nothing
from tests.support.savers import a_saver
from tests.support.simulated_tree import SimulatedTree

#: 100 cores and four GPUs: of an eighth of them half a GPU, which rounds to one.
TOTAL = Resources(cpu=10_000, gpu=4)
HOUR_MS = 3_600_000


def warnings(kind: IntegralType, flow: int, total: Resources = TOTAL) -> list[str]:
    pool = a_saver("a", ROOT_POOL, kind, flow, 5_000)
    return saves_nothing(PoolTree(Tree(tree=TreeName("default"), pools=[pool])), PoolName("a"), total)


def saved_after_an_hour(flow: int) -> float:
    tree = SimulatedTree(TOTAL, [a_saver("a", ROOT_POOL, IntegralType.RELAXED, flow, 0)])
    for _ in range(2):
        tree.update(HOUR_MS)
    return tree.fair_share.volumes.of[PoolName("a")].ratio_volume


@pytest.mark.parametrize(("flow", "saves"), [(1_000, False), (1_249, False), (1_250, True), (2_000, True)])
def test_a_pool_is_warned_exactly_where_it_saves_nothing(flow: int, saves: bool) -> None:
    assert (saved_after_an_hour(flow) > 0) is saves
    assert (warnings(IntegralType.RELAXED, flow) == []) is saves


def test_the_warning_names_the_resource_and_the_flow_that_would_do() -> None:
    (words,) = warnings(IntegralType.BURST, 1_000)

    assert words.startswith(
        "pool a saves nothing. Its flow is 0.1 of the cluster, which rounds to zero for the cluster's 4 gpu"
    )
    assert words.endswith("Set a flow of at least 0.125 of the cluster")


def test_nobody_is_warned_without_savings_without_a_flow_or_without_a_cluster() -> None:
    assert warnings(IntegralType.NONE, 1_000) == []
    assert warnings(IntegralType.RELAXED, 0) == []
    assert warnings(IntegralType.RELAXED, 1_000, Resources()) == []
    assert warnings(IntegralType.RELAXED, 1_000, Resources(cpu=10_000)) == []
