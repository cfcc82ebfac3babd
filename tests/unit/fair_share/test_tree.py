"""The rules that every change of a pool tree keeps."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import PartialResources
from headrace.resources import Resources
from headrace.wire.pools import CreatePool, IntegralGuarantees, IntegralType, Pool, PoolSettings, RemovePool, Tree
from headrace.wire.refusals import BadRequest, Exists, NotFound, Refusal, WrongState
from headrace_fair_share.tree import LARGEST_SUBTREE, MOST_LEVELS, Change, PoolTree

TREE = TreeName("default")


def a_tree(*pools: tuple[str, str] | tuple[str, str, PoolSettings]) -> PoolTree:
    listed = [Pool(PoolName(each[0]), PoolName(each[1]), *each[2:]) for each in pools]
    return PoolTree(Tree(tree=TREE, pools=listed))


def create(name: str, parent: str = ROOT_POOL, settings: PoolSettings | None = None) -> CreatePool:
    return CreatePool(name=PoolName(name), parent=PoolName(parent), settings=settings or PoolSettings())


def strong(**amounts: int) -> PoolSettings:
    return PoolSettings(strong_guarantee_resources=PartialResources(**amounts))


def integral(kind: str, **given: Any) -> PoolSettings:
    return PoolSettings(integral_guarantees=IntegralGuarantees(guarantee_type=IntegralType(kind), **given))


def refused(answer: Change | Refusal) -> str:
    assert not isinstance(answer, Change)
    return answer.text()


def accepted(answer: Change | Refusal) -> PoolTree:
    assert isinstance(answer, Change), answer
    return PoolTree(answer.tree)


def test_a_new_pool_stands_behind_its_siblings() -> None:
    tree = accepted(a_tree(("a", ROOT_POOL), ("b", ROOT_POOL)).created(create("c")))

    assert tree.children[ROOT_POOL] == ["a", "b", "c"]
    assert tree.problems() == []


def test_parents_come_before_children_and_siblings_keep_their_order() -> None:
    tree = a_tree(("b", ROOT_POOL), ("a", ROOT_POOL), ("b2", "b"), ("b1", "b"), ("a1", "a"))

    assert tree.preorder == ["b", "b2", "b1", "a", "a1"]


def test_a_path_names_every_pool_down_from_the_root() -> None:
    tree = a_tree(("a", ROOT_POOL), ("b", "a"))

    assert tree.path(PoolName("b")) == "/a/b"
    assert tree.path(ROOT_POOL) == "/"


def test_a_name_is_taken_in_the_whole_tree() -> None:
    answer = a_tree(("a", ROOT_POOL), ("b", "a")).created(create("b"))

    assert answer == Exists(what="pool", name="b", where="/a/b")


@pytest.mark.parametrize("name", ["", "A", "a.b", "a b", "<Root>", "x" * 101, "a/b", "ä"])
def test_a_name_of_other_characters_is_refused(name: str) -> None:
    answer = a_tree().created(create(name))

    assert isinstance(answer, BadRequest)
    assert answer.place == "name"


def test_an_unknown_parent_is_refused_with_the_nearest_names() -> None:
    answer = a_tree(("research", ROOT_POOL)).created(create("new", "reserch"))

    assert answer == NotFound(what="pool", name="reserch", near=["research"])


def test_a_pool_that_lives_by_its_operations_is_no_parent() -> None:
    answer = a_tree().created(create("new", "guest"), ephemeral=frozenset({PoolName("guest")}))

    assert "pool guest is ephemeral" in refused(answer)


def test_a_pool_created_under_an_ephemeral_ones_name_is_simply_there() -> None:
    tree = accepted(a_tree().created(create("guest"), ephemeral=frozenset({PoolName("guest")})))

    assert tree.preorder == ["guest"]


def test_there_are_thirty_levels_and_no_more() -> None:
    chain = [("p1", ROOT_POOL), *((f"p{level}", f"p{level - 1}") for level in range(2, MOST_LEVELS))]
    tree = accepted(a_tree(*chain).created(create(f"p{MOST_LEVELS}", f"p{MOST_LEVELS - 1}")))

    assert "at most 30 levels" in refused(tree.created(create("deeper", f"p{MOST_LEVELS}")))


def test_a_subtree_has_a_thousand_pools_and_no_more() -> None:
    pools = [("a", ROOT_POOL), *((f"a{number}", "a") for number in range(LARGEST_SUBTREE - 2))]
    tree = accepted(a_tree(*pools).created(create("last", "a")))

    assert "at most 1000 pools" in refused(tree.created(create("one-more", "a")))
    assert isinstance(tree.created(create("elsewhere")), Change)


def test_children_are_guaranteed_no_more_than_their_parent() -> None:
    tree = a_tree(("a", ROOT_POOL, strong(cpu=1000)), ("a1", "a", strong(cpu=600)))

    assert isinstance(tree.created(create("a2", "a", strong(cpu=400))), Change)
    assert tree.created(create("a2", "a", strong(cpu=401))) == BadRequest(
        place="strong_guarantee_resources.cpu",
        value="10.01 in sum over the children of /a",
        expected="at most the 10 of a itself",
    )


def test_a_child_has_no_guarantee_of_a_resource_that_its_parent_lacks() -> None:
    tree = a_tree(("a", ROOT_POOL, strong(cpu=1000)))

    assert "strong_guarantee_resources.memory" in refused(tree.created(create("a1", "a", strong(memory=1))))


def test_a_guarantee_is_not_lowered_below_what_the_children_have() -> None:
    tree = a_tree(("a", ROOT_POOL, strong(cpu=1000)), ("a1", "a", strong(cpu=600)))

    assert "at most the 5 of a itself" in refused(tree.changed(PoolName("a"), strong(cpu=500)))
    assert isinstance(tree.changed(PoolName("a"), strong(cpu=600)), Change)


def test_top_pools_may_be_promised_more_than_there_is_and_it_is_said_with_both_figures() -> None:
    tree = accepted(a_tree(("a", ROOT_POOL, strong(cpu=1000))).created(create("b", settings=strong(cpu=500))))

    assert tree.overcommitted(Resources(cpu=1200)) == [
        "strong guarantees of the top pools promise 15 of cpu; the cluster has 12"
    ]
    assert tree.overcommitted(Resources(cpu=1500)) == []
    assert tree.overcommitted(Resources()) == []


def test_flows_and_bursts_of_children_fit_their_parents_too() -> None:
    quota = integral(
        "none", resource_flow=PartialResources(cpu=100), burst_guarantee_resources=PartialResources(cpu=200)
    )
    tree = a_tree(("a", ROOT_POOL, quota))

    fits = integral(
        "burst", resource_flow=PartialResources(cpu=100), burst_guarantee_resources=PartialResources(cpu=200)
    )
    too_much = integral(
        "burst", resource_flow=PartialResources(cpu=100), burst_guarantee_resources=PartialResources(cpu=201)
    )
    assert isinstance(tree.created(create("a1", "a", fits)), Change)
    assert "integral_guarantees.burst_guarantee_resources.cpu" in refused(tree.created(create("a1", "a", too_much)))


def test_below_an_integral_pool_nobody_has_a_flow() -> None:
    figures = {
        "resource_flow": PartialResources(cpu=100),
        "burst_guarantee_resources": PartialResources(cpu=100),
    }
    tree = a_tree(("a", ROOT_POOL, integral("burst", **figures)))

    answer = tree.created(create("a1", "a", integral("none", resource_flow=PartialResources(cpu=1))))
    assert "none below /a, which is burst" in refused(answer)
    assert isinstance(tree.created(create("a1", "a", integral("relaxed"))), Change)


def test_a_relaxed_pool_has_no_burst() -> None:
    answer = a_tree().created(
        create("a", settings=integral("relaxed", burst_guarantee_resources=PartialResources(cpu=1)))
    )

    assert "relaxed pool a" in refused(answer)


def test_a_pool_with_children_or_operations_stays() -> None:
    tree = a_tree(("a", ROOT_POOL), ("b", "a"))

    assert tree.removed(RemovePool(PoolName("a")), 0) == WrongState(
        "pool", "a", "the parent of b", "a pool without child pools"
    )
    assert "in use by 2 operations" in refused(tree.removed(RemovePool(PoolName("b")), 2))
    assert accepted(tree.removed(RemovePool(PoolName("b")), 0)).preorder == ["a"]


def test_the_root_is_neither_changed_nor_removed() -> None:
    assert "the root" in refused(a_tree().changed(ROOT_POOL, PoolSettings()))
    assert "the root" in refused(a_tree().removed(RemovePool(ROOT_POOL), 0))


def test_an_unknown_pool_is_neither_changed_nor_removed() -> None:
    tree = a_tree(("research", ROOT_POOL))

    assert "did you mean research?" in refused(tree.changed(PoolName("research2"), PoolSettings()))
    assert "did you mean research?" in refused(tree.removed(RemovePool(PoolName("researc")), 0))


@pytest.mark.parametrize(
    "pools",
    [
        [("a", "nowhere")],
        [("b", "a"), ("a", ROOT_POOL)],
        [("a", ROOT_POOL), ("a", ROOT_POOL)],
        [("a", "a")],
        [("a", "b"), ("b", "a")],
        [("Big", ROOT_POOL)],
    ],
)
def test_a_stored_tree_that_breaks_a_rule_is_found_out(pools: list[tuple[str, str]]) -> None:
    assert a_tree(*pools).problems()
