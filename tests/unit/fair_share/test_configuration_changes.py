"""Changes of a tree, and the rules that every one of them keeps."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import PartialResources, Person, Pool, PoolTree, Tree, read_tree
from headrace.resources import Resources
from headrace.wire.pool_changes import Create, PoolChange, Set
from headrace.wire.refusals import BadRequest, Exists, NotAllowed, NotFound, WrongState
from headrace_fair_share.configuration.change_decisions import TreeConfiguration, configuration_warnings
from headrace_fair_share.configuration.differences import planned
from headrace_fair_share.configuration.guarantee_rules import guarantee_warnings, overcommitted
from headrace_fair_share.configuration.rules import TreeBounds, broken_rules, misplaced
from tests.support.fair_share import stored
from tests.support.pool_trees import (
    a_tree,
    create,
    drafted,
    move,
    remove,
    set_,
    set_options,
    settings,
    transfer,
)

CPU = "strong_guarantee_resources"


def after(tree: PoolTree, *changes: PoolChange, **given: Any) -> PoolTree:
    draft = drafted(tree, *changes, **given)
    assert draft.problems == []
    return draft.tree


def told(tree: PoolTree, *changes: PoolChange, **given: Any) -> str:
    draft = drafted(tree, *changes, **given)
    assert draft.problems
    return "\n".join(problem.text() for problem in draft.problems)


def test_a_new_pool_stands_behind_its_siblings() -> None:
    tree = after(a_tree(a={}, b={}), create("c"))

    assert tree.children[ROOT_POOL] == ["a", "b", "c"]
    assert misplaced(tree) == broken_rules(tree, TreeBounds()) == []


def test_a_name_is_taken_in_the_whole_tree() -> None:
    draft = drafted(a_tree(a={}, b={"parent": "a"}), create("b"))

    assert draft.problems == [Exists(what="pool", name="b", where="/a/b")]


@pytest.mark.parametrize("name", ["", "A", "a.b", "a b", "<Root>", "x" * 101, "a/b", "ä", "a\n", "a:b", "a$b"])
def test_a_name_of_other_characters_is_refused(name: str) -> None:
    tree = a_tree({"access": {"write": ["ann"]}})
    (problem,) = drafted(tree, create(name), person=Person("ann")).problems

    assert isinstance(problem, BadRequest)
    assert problem.place == "name"


def test_administrators_may_give_names_that_others_may_not() -> None:
    tree = a_tree({"access": {"write": ["ann"], "administer": ["eve"]}})

    assert "[-_a-z0-9]+" in told(tree, create("Big:one"), person=Person("ann"))
    assert "Big:one" in after(tree, create("Big:one"), person=Person("eve")).pools
    assert "name" in told(tree, create("a$b"), person=Person("eve"))


def test_an_unknown_parent_is_refused_with_the_nearest_names() -> None:
    draft = drafted(a_tree(research={}), create("new", "reserch"))

    assert draft.problems == [NotFound(what="pool", name="reserch", near=["research"])]


def test_a_pool_that_lives_by_its_operations_is_no_parent_but_its_name_may_be_given() -> None:
    assert "pool guest is ephemeral" in told(a_tree(), create("new", "guest"), in_use={"guest": 1})
    assert after(a_tree(), create("guest"), in_use={"guest": 1}).preorder == ["guest"]


def test_there_are_thirty_levels_and_no_more() -> None:
    chain = [create(f"p{level}", f"p{level - 1}" if level > 1 else ROOT_POOL) for level in range(1, 31)]
    tree = after(a_tree(), *chain)

    assert "at most 30 levels" in told(tree, create("deeper", "p30"))
    assert "pool deepest is on level 31" in told(tree, create("top"), create("deepest", "p30"))
    assert "p30 is on level 31" in told(tree, create("above"), move("p1", "above"))


def test_a_subtree_has_as_many_pools_as_are_allowed_and_no_more() -> None:
    bounds = TreeBounds(largest_subtree=3)
    tree = a_tree(a={}, aa={"parent": "a"}, b={}, bb={"parent": "b"})

    assert "at most 3 are allowed" in told(tree, move("b", "aa"), bounds=bounds)
    assert after(tree, move("bb", "a"), bounds=bounds).children[PoolName("a")] == ["aa", "bb"]
    assert "the subtree of /a has 4 pools" in told(tree, create("x", "aa"), create("y", "aa"), bounds=bounds)


def test_children_are_guaranteed_no_more_than_their_parent() -> None:
    tree = a_tree(a={CPU: {"cpu": 10}}, a1={"parent": "a", CPU: {"cpu": 6}})

    assert "a2" in after(tree, create("a2", "a", strong_guarantee_resources={"cpu": 4})).pools
    assert drafted(tree, create("a2", "a", strong_guarantee_resources={"cpu": "4.01"})).problems == [
        BadRequest.because(
            "strong_guarantee_resources.cpu",
            "the children of /a have 10.01 together, more than the 10 of a itself",
            rule="guarantee_sum",
        )
    ]
    assert "more than the 5 of a itself" in told(tree, set_("a", {f"{CPU}/cpu": 5}))


def test_a_child_has_no_figure_of_a_resource_that_its_parent_lacks_not_even_zero() -> None:
    tree = a_tree(a={CPU: {"cpu": 10}})

    for amount in ("1G", 0):
        words = told(tree, create("a1", "a", strong_guarantee_resources={"cpu": 1, "memory": amount}))
        assert "strong_guarantee_resources.memory" in words
        assert "/a has no guarantee of memory" in words
    assert "/a has no guarantee of cpu" in told(
        after(tree, create("a1", "a", strong_guarantee_resources={"cpu": 1})), set_("a", {CPU: None})
    )


def test_the_main_resource_comes_with_every_strong_guarantee() -> None:
    assert "but none of cpu, the tree's main resource" in told(
        a_tree(), create("a", strong_guarantee_resources={"memory": 1})
    )
    assert "a" in after(a_tree(), create("a", strong_guarantee_resources={"memory": 1, "cpu": 0})).pools
    tree = a_tree(a={CPU: {"cpu": 1}}, b={CPU: {"cpu": 1, "memory": 5}})
    assert "/a has a guarantee of cpu 1" in told(tree, set_options(main_resource="memory"))


def test_top_pools_may_be_promised_more_than_there_is_and_it_is_said_with_both_figures() -> None:
    tree = after(a_tree(a={CPU: {"cpu": 10}}), create("b", strong_guarantee_resources={"cpu": 5}))

    assert overcommitted(tree, Resources(cpu=1200)) == [
        "strong guarantees of the top pools promise 15 of cpu; the cluster has 12"
    ]
    assert overcommitted(tree, Resources(cpu=1500)) == []
    assert overcommitted(tree, Resources()) == []


def test_flows_and_bursts_of_children_fit_their_parents_too() -> None:
    budget = {"resource_flow": {"cpu": 1}, "burst_guarantee_resources": {"cpu": 2}}
    tree = a_tree(a={"integral_guarantees": budget})
    too_much = {**budget, "burst_guarantee_resources": {"cpu": 3}}

    assert "a1" in after(tree, create("a1", "a", integral_guarantees={**budget, "guarantee_type": "burst"})).pools
    words = told(tree, create("a1", "a", integral_guarantees=too_much))
    assert "integral_guarantees.burst_guarantee_resources.cpu: the children of /a have 3 together" in words
    assert "more than the 2 of a itself" in words


def test_below_an_integral_pool_nobody_has_a_flow() -> None:
    figures = {"resource_flow": {"cpu": 1}, "burst_guarantee_resources": {"cpu": 1}}
    tree = a_tree(a={"integral_guarantees": {"guarantee_type": "burst", **figures}})

    words = told(tree, create("a1", "a", integral_guarantees={"resource_flow": {"cpu": "0.5"}}))
    assert "/a/a1 has an integral guarantee (flow cpu 0.5)" in words
    assert "below /a, whose guarantee_type is burst" in words
    assert "a1" in after(tree, create("a1", "a", integral_guarantees={"guarantee_type": "relaxed"})).pools


def test_a_pool_above_flows_does_not_become_integral() -> None:
    flow = {"integral_guarantees": {"resource_flow": {"cpu": 1}}}
    tree = a_tree(a=flow, b={"parent": "a", **flow}, c={"parent": "b", **flow})

    for name in ("a", "b"):
        words = told(tree, set_(name, {"integral_guarantees/guarantee_type": "relaxed"}))
        assert "has an integral guarantee (flow cpu 1) below" in words
        assert f"below {tree.path(PoolName(name))}, whose guarantee_type is relaxed" in words


def test_a_relaxed_pool_has_no_burst() -> None:
    relaxed = {"guarantee_type": "relaxed", "burst_guarantee_resources": {"cpu": 3}}

    assert "/a has a burst guarantee (cpu 3), but its guarantee_type is relaxed" in told(
        a_tree(), create("a", integral_guarantees=relaxed)
    )


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"resource_flow": {"cpu": 1}}, "has no burst_guarantee_resources: it gets nothing from its savings"),
        (
            {"resource_flow": {"cpu": 3}, "burst_guarantee_resources": {"cpu": 2}},
            "has a burst guarantee of 2 cpu, less than its flow of 3",
        ),
        ({"resource_flow": {"cpu": 2}, "burst_guarantee_resources": {"cpu": 2}}, ""),
    ],
)
def test_a_burst_pool_is_told_what_it_will_get(figures: dict[str, Any], words: str) -> None:
    tree = after(a_tree(), create("a", integral_guarantees={"guarantee_type": "burst", **figures}))

    warnings = guarantee_warnings(tree, PoolName("a"))
    assert words in " ".join(warnings)
    assert bool(words) == bool(warnings)


def test_a_pool_with_children_or_operations_stays_unless_that_is_asked_for() -> None:
    tree = a_tree(a={}, b={"parent": "a"})

    assert drafted(tree, remove("a")).problems == [
        WrongState(
            "pool",
            "a",
            "the parent of b",
            "a pool without child pools, or --recursive to remove the pools below it too",
        )
    ]
    assert "in use by 2 operations" in told(tree, remove("b"), in_use={"b": 2})
    assert "pool b is in use by 1 operation;" in told(tree, remove("a", recursive=True), in_use={"b": 1})
    assert after(tree, remove("b")).preorder == ["a"]
    assert after(tree, remove("a", recursive=True)).preorder == []
    kept = drafted(tree, remove("b", in_use=True), in_use={"b": 2})
    assert kept.problems == []
    assert "2 operations go on in an ephemeral pool b" in kept.warnings[0]


def test_a_moved_pool_takes_all_below_it_along() -> None:
    tree = after(a_tree(a={}, b={"parent": "a"}, c={"parent": "b", "weight": 3}), move("b", ROOT_POOL))

    assert [tree.path(name) for name in tree.preorder] == ["/a", "/b", "/b/c"]
    assert tree.pools[PoolName("c")].settings.weight == 3
    assert misplaced(tree) == []


def test_the_plan_of_a_move_lists_all_pools_below_with_their_new_paths() -> None:
    tree = a_tree(a={}, b={"parent": "a"}, c={})
    a, b, c = tree.tree.pools
    moved = [c, msgspec.structs.replace(a, parent=c.name), b]
    plan = planned(tree, PoolTree(msgspec.structs.replace(tree.tree, pools=moved)))

    assert (plan.created, plan.removed) == ([], [])
    assert [(pool.name, pool.path_before, pool.path_after) for pool in plan.changed] == [
        ("a", "/a", "/c/a"),
        ("b", "/a/b", "/c/a/b"),
    ]


def test_a_pool_moved_behind_a_younger_one_is_stored_behind_it() -> None:
    tree = after(a_tree(a={}, aa={"parent": "a"}, z={}), move("a", "z"))

    assert [pool.name for pool in tree.tree.pools] == ["z", "a", "aa"]


def test_a_renamed_pool_keeps_its_place_its_settings_and_what_is_below() -> None:
    tree = after(a_tree(a={"weight": 2}, aa={"parent": "a"}, z={}), move("a", new_name="first"))

    assert [tree.path(name) for name in tree.preorder] == ["/first", "/first/aa", "/z"]
    assert tree.pools[PoolName("first")].settings.weight == 2


def test_operations_stay_with_the_old_name_of_a_renamed_pool() -> None:
    draft = drafted(a_tree(a={}), move("a", new_name="b"), in_use={"a": 1})

    assert draft.warnings == [
        "1 operation goes on in an ephemeral pool a, since operations keep the name of their pool"
    ]


@pytest.mark.parametrize("parent", ["a", "aa"])
def test_a_pool_does_not_move_into_itself(parent: str) -> None:
    assert "a pool that is not below a" in told(a_tree(a={}, aa={"parent": "a"}), move("a", parent))


def test_the_rules_hold_where_a_pool_goes_to_and_where_it_comes_from() -> None:
    tree = a_tree(n={}, f={"mode": "fifo"}, g={CPU: {"cpu": 1}})

    assert "/n has no guarantee of cpu" in told(tree, move("g", "n"))
    assert "/f is a fifo pool, but has the child pools g" in told(tree, move("g", "f"))


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"mode": "fifo"}, "/p is a fifo pool, but has the child pools c"),
        (
            {"max_operation_count": 5, "max_running_operation_count": 6},
            "/p has 6, more than its max_operation_count of 5",
        ),
        ({"metering_tags": {"k": "v"}}, "has metering_tags without abc"),
        ({"config_preset": "a", "config_presets": ["b"]}, "has both config_preset and config_presets"),
        ({"config_preset": "gone"}, "config_presets of /p: there is no preset gone"),
    ],
)
def test_attributes_that_do_not_go_together_are_refused(attributes: dict[str, Any], words: str) -> None:
    assert words in told(a_tree(p={}, c={"parent": "p"}), set_("p", attributes))


def test_a_fifo_pool_is_no_hub_and_no_pool_becomes_one_with_guests_in_it() -> None:
    hub = {"create_ephemeral_subpools": True}

    assert "is a fifo pool, in which no pools can be made" in told(a_tree(h=hub), set_("h", mode="fifo"))
    assert "is a fifo pool, in which no pools can be made" in told(a_tree(f={"mode": "fifo"}), set_("f", hub))
    both = {"mode": "fifo", "create_ephemeral_subpools": False}
    assert "the parent of ephemeral h$ann" in told(a_tree(h=hub), set_("h", both), in_use={"h$ann": 1})
    assert after(a_tree(h=hub), set_("h", both)).mode(PoolName("h")) == "fifo"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"aggressive_preemption_satisfaction_threshold": 1.1},
            "1.1 is more than preemption_satisfaction_threshold, 1",
        ),
        ({"preemption_satisfaction_threshold": 0.4}, "0.5 is more than preemption_satisfaction_threshold, 0.4"),
        (
            {"fair_share_aggressive_starvation_timeout": "29s"},
            "29000 ms is less than fair_share_starvation_timeout, 30000 ms",
        ),
        ({"fair_share_starvation_timeout": "121s"}, "120000 ms is less than fair_share_starvation_timeout, 121000 ms"),
        ({"fair_share_starvation_tolerance": 1.01}, "a number from 0 to 1"),
        ({"job_interrupt_timeout": 1, "allocation_preemption_timeout": 1}, "are names of the same option"),
        ({"max_ephemeral_pools_per_user": 0}, "1 or more"),
        ({"weight": 1}, "weight is an attribute of pools"),
        ({"enable_infinite_resource_limits_overcommit": True}, "use_precommit_for_preemption"),
        (
            {"min_job_resource_limits": {"cpu": 2}, "max_job_resource_limits": {"cpu": 1}},
            "is more than max_job_resource_limits, 1",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], words: str) -> None:
    assert words in told(a_tree(), set_options(**options))


def test_a_preset_is_not_changed_into_one_that_a_pool_cannot_use() -> None:
    tree = a_tree({"pool_config_presets": {"p": {"enable_aggressive_starvation": True}}}, a={"config_preset": "p"})

    assert "/a" in told(tree, set_options(pool_config_presets={}))
    assert "pool_config_presets.p.mode" in told(tree, set_options(**{"pool_config_presets/p": {"mode": "fifo"}}))


def test_the_root_is_neither_changed_nor_removed() -> None:
    for change in (set_(ROOT_POOL, weight=1), remove(ROOT_POOL), move(ROOT_POOL, new_name="a")):
        assert "is the root" in told(a_tree(), change)


def test_an_unknown_pool_is_neither_changed_nor_removed() -> None:
    tree = a_tree(research={})

    assert "did you mean research?" in told(tree, set_("research2", {}))
    assert "did you mean research?" in told(tree, remove("researc"))


# --- several at once ----------------------------------------------------------------------------------------------------


def test_changes_are_made_one_after_the_other() -> None:
    tree = after(
        a_tree(a={CPU: {"cpu": 1}}),
        create("b", "a"),
        set_("b", {CPU: {"cpu": 2}}),
        set_("a", {CPU: {"cpu": 2}}),
        move("b", new_name="c"),
        create("d", "c"),
    )

    assert [tree.path(name) for name in tree.preorder] == ["/a", "/a/c", "/a/c/d"]


def test_everything_that_is_wrong_is_told_at_once() -> None:
    words = told(
        a_tree(a={}),
        create("a"),
        create("b", weight=0, mode="queue"),
        set_("gone", weight=1),
        create("c", "b", strong_guarantee_resources={"memory": 1}),
        set_options(main_resource="cpus"),
    )

    assert [line.partition(":")[0] for line in words.splitlines()] == [
        "pool 'a' exists already (/a)",
        "pools.b.weight",
        "pools.b.mode",
        "there is no pool 'gone'",
        "options.main_resource",
        "strong_guarantee_resources.memory",
        "strong_guarantee_resources",
    ]


# --- transfer -----------------------------------------------------------------------------------------------------------


def test_what_is_given_goes_up_to_the_common_ancestor_and_down_from_it() -> None:
    tree = a_tree(
        top={CPU: {"cpu": 10}},
        a={"parent": "top", CPU: {"cpu": 6}},
        b={"parent": "top", CPU: {"cpu": 4}},
        bb={"parent": "b"},
    )
    given = after(tree, transfer("a", "bb", strong_guarantee_resources={"cpu": 2}))

    assert {name: pool.settings.strong_guarantee_resources.cpu for name, pool in given.pools.items()} == {
        "top": 1000,
        "a": 400,
        "b": 600,
        "bb": 200,
    }


def test_giving_everything_leaves_an_explicit_zero() -> None:
    tree = after(a_tree(a={CPU: {"cpu": 1}}, b={}), transfer("a", "b", strong_guarantee_resources={"cpu": 1}))

    assert tree.pools[PoolName("a")].settings.strong_guarantee_resources == PartialResources(cpu=0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            transfer("a", "b", strong_guarantee_resources={"cpu": 2}),
            "2 cannot be used; expected at most what /a has; it has 1",
        ),
        (transfer("a", "b", max_operation_count=1), "at most what /a has; none is set"),
        (transfer("a", "b", max_operation_count=-1), "a whole number, 0 or more"),
        (transfer("a", "a", max_operation_count=1), "a pool other than the source"),
        (transfer("a", "b"), "Name at least one amount to transfer"),
        (transfer("a", "c", strong_guarantee_resources={"cpu": 1}), "there is no pool 'c'"),
        (transfer("a", "b", guarantee={"cpu": 1}), "delta.guarantee"),
        (transfer(ROOT_POOL, "b", max_operation_count=2**60), "whole number"),
    ],
)
def test_what_cannot_be_given_is_told(change: PoolChange, words: str) -> None:
    assert words in told(a_tree(a={CPU: {"cpu": 1}}, b={}), change)


# --- rights -------------------------------------------------------------------------------------------------------------

WRITER = {"write": ["ann"]}


def test_whoever_may_not_write_changes_nothing() -> None:
    tree = a_tree(a={"access": WRITER}, b={})
    bob = Person("bob")

    for change in (set_("a", weight=2), remove("a"), move("a", "b"), create("c", "a"), create("c")):
        problems = drafted(tree, change, person=bob).problems
        assert any(isinstance(problem, NotAllowed) for problem in problems), change


def test_rights_hold_for_everything_below() -> None:
    tree = a_tree(a={"access": WRITER}, b={"parent": "a"}, c={})
    ann = Person("ann")

    assert after(tree, set_("b", weight=2), create("d", "b"), person=ann).settings(PoolName("b")).weight == 2
    assert "ann may not" in told(tree, set_("c", weight=2), person=ann)
    assert "ann may not" in told(tree, move("b", "c"), person=ann)
    given = transfer("b", "c", max_operation_count=1)
    limits = [set_(name, max_operation_count=1) for name in ("a", "b")]
    words = told(after(tree, *limits), given, person=ann)
    assert words == "ann may not change pool c; this needs the right `write` on pool c, held by: nobody"


def test_attributes_for_administrators_are_refused_to_others() -> None:
    tree = a_tree(a={"access": {"write": ["ann"], "administer": ["eve"]}})

    assert "enable_lightweight_operations" in told(
        tree, set_("a", enable_lightweight_operations=True), person=Person("ann")
    )
    assert "ann may not set access" in told(tree, set_("a", access={}), person=Person("ann"))
    assert "pools.a.color" in told(tree, set_("a", color="red"), person=Person("ann"))
    assert "options" in told(tree, set_options(max_operation_count=1), person=Person("eve"))
    kept = drafted(tree, set_("a", color="red", enable_lightweight_operations=True), person=Person("eve"))
    assert kept.problems == []
    assert "color on pool a is not known here; it is kept and has no effect" in kept.warnings[0]
    assert "did you mean weight?" in told(tree, set_("a", wieght=1), person=Person("eve"))


# --- stored trees -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pools",
    [
        {"a": {"parent": "nowhere"}},
        {"b": {"parent": "a"}, "a": {}},
        {"a": {"parent": "a"}},
        {"a": {"parent": "b"}, "b": {"parent": "a"}},
        {"": {}},
        {ROOT_POOL: {}},
    ],
)
def test_a_stored_tree_whose_pools_have_no_place_is_found_out(pools: dict[str, Any]) -> None:
    assert misplaced(a_tree(None, **pools))


def test_settings_in_tests_are_what_people_write() -> None:
    assert settings(weight="2").weight == 2.0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            b'{"pools":[{"name":"a","parent":"<Root>","settings":{"max_operation_count":-1}}]',
            "a whole number, 0 or more",
        ),
        (
            b'{"pools":[{"name":"a","parent":"<Root>","settings":{"config_preset":"gone"}}]',
            "config_presets of /a: there is no preset gone",
        ),
        (b'{"pools":[],"options":{"fair_share_starvation_tolerance":2}', "options.fair_share_starvation_tolerance"),
        (
            b'{"pools":[],"options":{"preemption_satisfaction_threshold":0.1}',
            "0.5 is more than preemption_satisfaction_threshold, 0.1",
        ),
    ],
)
def test_a_stored_tree_with_values_that_no_request_brings_is_not_used(value: bytes, words: str) -> None:
    configuration = TreeConfiguration(TreeName("default"))
    configuration.on_stored(stored(Tree(TreeName("default"), [Pool(PoolName("earlier"), ROOT_POOL)]), 1))
    configuration.on_stored(stored(read_tree(value + b',"tree":"default","format":2}'), 2))

    assert words in configuration.trouble
    assert list(configuration.pools.pools) == ["earlier"]
    assert configuration.alerts() == [configuration.trouble]


def test_a_preset_that_nobody_can_use_is_warned_of_before_anybody_does() -> None:
    presets = {"good": {"enable_aggressive_starvation": True}, "bad": {"mode": "fifo"}}

    (warning,) = configuration_warnings(after(a_tree(), set_options(pool_config_presets=presets)))

    assert warning.startswith("preset bad cannot be used: pool_config_presets.bad.mode")


@pytest.mark.parametrize("written", [b"", b"\xff", b"{1: 2}", b"[]", b'{"abc": NaN}', b'{"abc": {"a"}}'])
def test_attributes_that_are_no_json_object_are_refused(written: bytes) -> None:
    assert "pools.a" in told(a_tree(), Create(PoolName("a"), ROOT_POOL, written))


@pytest.mark.parametrize("depth", [50, 400, 900, 5_000])
@pytest.mark.parametrize("key", ["abc", "weight", "unheard-of", "resource_limits"])
def test_what_is_nested_very_deep_is_refused(depth: int, key: str) -> None:
    nested = b'{"' + key.encode() + b'": ' + b'{"a":' * depth + b"1" + b"}" * (depth + 1)
    listed = b'{"' + key.encode() + b'": ' + b"[" * depth + b"]" * depth + b"}"

    for written in (nested, listed, b"[" * depth + b"]" * depth):
        assert "pools.a" in told(a_tree(a={}), Set(PoolName("a"), written))


@pytest.mark.parametrize("first", ["future", "metering_tags"])
def test_a_request_changes_a_bounded_number_of_parts_of_large_maps(first: str) -> None:
    """Each part copies its map: 35,000 parts in a request stopped fair_share for 8 s, also if their sender had no right to change them."""
    tree = a_tree(own={})
    parts = [{f"{first}/{n}-{k}": "x" for k in range(100)} for n in range(11)]
    few = drafted(tree, *(set_("own", part) for part in parts[:10]))
    many = drafted(tree, *(set_("own", part) for part in parts))
    options = drafted(tree, set_options(**{f"{first}.{k}": "x" for k in range(1_001)}))

    words = "more than 1000 keys of one request name a part of a map"
    found = [any(words in problem.text() for problem in draft.problems) for draft in (few, many, options)]
    assert found == [False, True, True]


def test_parts_of_resources_are_not_counted() -> None:
    names = [f"p{n}" for n in range(600)]
    tree = a_tree(**{name: {} for name in names})
    parts = {"strong_guarantee_resources/cpu": 0, "resource_limits/memory": "1G"}

    assert not drafted(tree, *(set_(name, parts) for name in names)).problems


@pytest.mark.parametrize("depth", [42, 950, 30_000])
def test_a_key_has_a_bounded_number_of_parts(depth: int) -> None:
    """Otherwise a flat value became a map of 950 levels, which neither `pool export` nor the HTTP API could write."""
    (problem,) = drafted(a_tree(own={}), set_("own", {"future" + "/a" * (depth - 1): 1})).problems

    assert f"the key has {depth} parts; at most 41 are allowed" in problem.text()
