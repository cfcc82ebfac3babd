"""The options of starvation and preemption of a pool, with the places where they were set."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import PoolConfig, PreemptionPolicy, TreeOptions
from headrace.pools.amounts import PartialResources
from headrace.pools.effective_options import of_pool, of_tree
from headrace.pools.presets import with_presets
from headrace.resources import Resources
from headrace.wire.pools import PoolView
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace_cli.commands.pools.get_page import options_in_force


def way_of(tree: TreeOptions, *settings: PoolConfig) -> list[PoolView]:
    """Pools below each other, with the options that fair_share tells of them."""
    options = of_tree(tree)
    way = []
    names = [ROOT_POOL, *(PoolName(f"level-{level}") for level, _ in enumerate(settings, 1))]
    for (parent, name), config in zip(pairwise(names), settings, strict=True):
        options = of_pool(options, with_presets(config, tree))
        share = ShareItem(kind=ElementKind.POOL, name=name, parent=parent, options=options)
        nothing = Resources()
        way.append(PoolView(name, parent, f"/{name}", False, config, share, nothing, nothing, nothing, 0, 0))
    return way


def told(tree: TreeOptions, *settings: PoolConfig) -> dict[str, tuple[str, str]]:
    return {each.name: (each.value, each.source) for each in options_in_force(way_of(tree, *settings), tree)}


def test_an_option_comes_from_the_nearest_pool_that_sets_it_else_from_the_tree() -> None:
    options = told(
        TreeOptions(fair_share_starvation_tolerance=0.7, preemption_exempt_time=5_000),
        PoolConfig(fair_share_starvation_timeout=60_000, preemption_exempt_time=90_000),
        PoolConfig(fair_share_starvation_timeout=20_000, enable_aggressive_starvation=False),
        PoolConfig(non_preemptible_resource_usage_threshold=PartialResources(cpu=200)),
    )

    assert options["fair_share_starvation_tolerance"] == ("0.7", "tree")
    assert options["fair_share_starvation_timeout"] == ("20s", "pool level-2")
    assert options["preemption_exempt_time"] == ("90s", "pool level-1")
    assert options["enable_aggressive_starvation"] == ("false", "pool level-2")
    assert options["non_preemptible_resource_usage_threshold"] == ("cpu 2", "own")
    assert options["min_share_preemption_timeout"] == ("never", "default")
    assert options["allocation_preemption_timeout"] == ("10s", "default")
    assert options["allow_aggressive_preemption"] == ("true", "default")


def test_what_a_pool_forbids_stays_forbidden_below_it_whatever_they_say() -> None:
    tree = TreeOptions(preemption_policy=PreemptionPolicy.YARN)
    options = told(
        tree,
        PoolConfig(allow_normal_preemption=False, allow_preemption_from=False),
        PoolConfig(allow_normal_preemption=True),
    )

    assert options["allow_normal_preemption"] == ("false", "pool level-1")
    assert options["allow_preemption_from"] == ("false", "pool level-1")


def test_what_a_preset_says_is_the_pool_s_own() -> None:
    tree = TreeOptions(pool_config_presets={"patient": {"fair_share_starvation_timeout": "2m"}})

    assert told(tree, PoolConfig(config_preset="patient"))["fair_share_starvation_timeout"] == ("2m", "own")


@pytest.mark.parametrize(
    "tree",
    [
        TreeOptions(max_unpreemptible_running_allocation_count=3),
        TreeOptions(non_preemptible_resource_usage_threshold=PartialResources(user_slots=3)),
    ],
)
def test_a_threshold_under_its_old_name_is_the_tree_s_too(tree: TreeOptions) -> None:
    assert told(tree, PoolConfig())["non_preemptible_resource_usage_threshold"] == ("user_slots 3", "tree")


def test_an_option_of_the_yarn_policies_is_shown_under_one_of_them_alone() -> None:
    assert "allow_preemption_from" not in told(TreeOptions(), PoolConfig())


def test_before_its_first_update_a_pool_has_none() -> None:
    (pool,) = way_of(TreeOptions(), PoolConfig())
    new = replace(pool, share=replace(pool.share, options=None))

    assert list(options_in_force([new], TreeOptions())) == []
