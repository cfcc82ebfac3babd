"""What is in force where: limits, modes, hubs, parents of pools that nobody made, presets; and trees of an earlier format."""

from __future__ import annotations

import msgspec
import pytest

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import (
    NOTHING,
    POOL_ATTRIBUTES,
    TREE_ATTRIBUTES,
    PartialResources,
    Pool,
    PoolConfig,
    PoolTree,
    Tree,
    preset_problems,
    read_tree,
    write_tree,
)
from headrace.wire.codec import decode, encode


def a_tree(options: dict[str, object] | None = None, /, **pools: dict[str, object]) -> PoolTree:
    """Pools with attributes as people write them, and `parent`."""
    made = []
    for name, attributes in pools.items():
        parent = PoolName(str(attributes.pop("parent", ROOT_POOL)))
        settings = POOL_ATTRIBUTES.changed(PoolConfig(), attributes).value
        made.append(Pool(PoolName(name), parent, settings))
    read = TREE_ATTRIBUTES.changed(TREE_ATTRIBUTES.of(), options or {}).value
    return PoolTree(Tree(TreeName("default"), made, read))


def limits(tree: PoolTree, name: str) -> tuple[int, int]:
    return tree.max_operation_count(PoolName(name)), tree.max_running_operation_count(PoolName(name))


def test_a_limit_is_the_pools_own_else_the_trees_for_each_pool() -> None:
    tree = a_tree(
        {"max_operation_count_per_pool": 7, "max_running_operation_count_per_pool": 6},
        a={"max_operation_count": 0},
        b={"max_running_operation_count": 3},
    )

    assert limits(tree, "a") == (0, 6)
    assert limits(tree, "b") == (7, 3)
    assert limits(tree, "unheard-of") == (7, 6)


def test_the_roots_limits_are_options_of_the_tree() -> None:
    assert limits(a_tree(), ROOT_POOL) == (50_000, 2_000)
    assert limits(a_tree({"max_operation_count": 9, "max_running_operation_count": 8}), ROOT_POOL) == (9, 8)


def test_a_hub_makes_the_pools_that_are_named_after_it_and_a_user() -> None:
    tree = a_tree(hub={"create_ephemeral_subpools": True}, plain={})

    assert tree.hub_of(PoolName("hub$ann")) == "hub"
    assert tree.hub_of(PoolName("plain$ann")) is None
    assert tree.hub_of(PoolName("hub")) is None


def test_a_pools_own_setting_goes_before_an_earlier_preset_and_that_before_a_later_one() -> None:
    presets: dict[str, object] = {
        "pool_config_presets": {
            "first": {"fair_share_starvation_timeout": 1000, "enable_aggressive_starvation": True},
            "second": {"fair_share_starvation_timeout": 2000, "fair_share_starvation_tolerance": 0.5},
        }
    }
    tree = a_tree(
        presets,
        p={"config_presets": ["first", "second"], "enable_aggressive_starvation": False},
        q={"config_preset": "second"},
    )

    both, one = tree.settings(PoolName("p")), tree.settings(PoolName("q"))

    assert both.fair_share_starvation_timeout == 1000
    assert both.fair_share_starvation_tolerance == 0.5
    assert both.enable_aggressive_starvation is False
    assert one.fair_share_starvation_timeout == 2000
    assert one.enable_aggressive_starvation is None


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        (None, "no preset"),
        ({"mode": "fifo"}, "pool_config_presets.p.mode"),
        ({"ffair_share_starvation_timeout": 1}, "did you mean fair_share_starvation_timeout"),
        ({"fair_share_starvation_tolerance": 2}, "a number from 0 to 1"),
    ],
)
def test_a_preset_that_cannot_be_used_is_told_with_what_would_do(preset: object, words: str) -> None:
    options: dict[str, object] = {} if preset is None else {"pool_config_presets": {"p": preset}}
    tree = a_tree(options, a={"config_preset": "p"})

    problems = preset_problems(tree.pools[PoolName("a")].settings, tree.options)

    assert words in " ".join(map(str, problems))


def test_a_tree_of_the_format_before_is_read_with_zeros_as_nothing_said() -> None:
    stored = (
        b'{"tree":"default","pools":[{"name":"a","parent":"<Root>","settings":{"weight":2.0,'
        b'"strong_guarantee_resources":[0,400,0,0,0],"integral_guarantees":{"guarantee_type":"burst",'
        b'"resource_flow":[0,100,0,0,0],"burst_guarantee_resources":[0,0,0,0,0]}}}]}'
    )

    (pool,) = read_tree(stored).pools

    assert pool.settings.weight == 2.0
    assert pool.settings.strong_guarantee_resources == PartialResources(cpu=400)
    assert pool.settings.integral_guarantees.resource_flow == PartialResources(cpu=100)
    assert pool.settings.integral_guarantees.burst_guarantee_resources == NOTHING


def test_a_tree_of_this_format_keeps_its_zeros() -> None:
    tree = a_tree({"main_resource": "memory"}, a={"strong_guarantee_resources": {"memory": 0}}).tree

    assert read_tree(msgspec.json.encode(tree)) == tree
    assert decode(encode(tree), Tree) == tree


def test_a_pool_without_settings_takes_little_room() -> None:
    assert msgspec.json.encode(Pool(PoolName("a"), ROOT_POOL)) == b'{"name":"a","parent":"<Root>"}'


def test_a_tree_of_ten_thousand_pools_is_stored_in_less_than_a_message_carries() -> None:
    strong = PoolConfig(weight=2.0, strong_guarantee_resources=PartialResources(cpu=100))
    tree = Tree(TreeName("default"), [Pool(PoolName(f"pool-{number}"), ROOT_POOL, strong) for number in range(10_000)])

    stored = write_tree(tree)

    assert len(stored) < 500 * 1024
    assert read_tree(stored) == tree


@pytest.mark.parametrize("data", [b"", b"rubbish", b"x\x9c", b"[1]", b"{", b"\xff"])
def test_what_is_no_tree_is_no_tree(data: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        read_tree(data)
