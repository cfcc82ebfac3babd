"""Trees whose shares are YARN's: by weight and in whole cores, whatever is demanded. The cluster has 100 cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.small_trees import GIB, SmallTree, Work, shares

YARN = {"preemption_policy": "yarn"}
TENANTS = {"one": {"weight": 1}, "two": {"weight": 2}, "three": {"weight": 1}}


def cores(pools: Mapping[str, Any], work: list[Work], *names: str) -> list[int]:
    items = shares(pools, work, YARN)
    return [round(items[name].fair_share.total[1] * 100) for name in names]


def test_tenants_share_by_weight_and_who_has_no_operation_has_no_share() -> None:
    two = [Work("x", "one", 100), Work("y", "two", 100)]

    assert cores(TENANTS, two, "one", "two", "three") == [33, 67, 0]
    assert cores(TENANTS, [*two, Work("z", "three", 100)], "one", "two", "three") == [25, 50, 25]


def test_what_a_pool_could_count_on_is_its_steady_share_whoever_has_operations() -> None:
    pools = {**TENANTS, "below": {"parent": "two", "weight": 1}, "other": {"parent": "two", "weight": 3}}
    items = shares(pools, [Work("x", "one", 100), Work("y", "other", 100)], YARN)
    steady = {name: round(items[name].estimated_guarantee_share[1] * 100) for name in (*pools, "y")}

    assert steady == {"one": 25, "two": 50, "three": 25, "below": 12, "other": 38, "y": 0}


def test_where_no_ratio_gives_out_all_cores_everybody_is_rounded_up() -> None:
    pools: dict[str, Any] = {name: {} for name in "abc"}

    assert cores(pools, [Work(name * 2, name, 100) for name in "abc"], *"abc") == [34, 34, 34]


def test_what_is_demanded_plays_no_part() -> None:
    assert cores({"a": {}, "b": {}}, [Work("x", "a", 1), Work("y", "b", 500)], "a", "b", "x", "y") == [50] * 4


def test_a_guarantee_is_a_floor_and_a_limit_a_ceiling() -> None:
    pools = {
        "guaranteed": {"strong_guarantee_resources": {"cpu": 60}},
        "limited": {"resource_limits": {"cpu": 5}},
        "other": {},
    }
    work = [Work(name, name, 100) for name in ("guaranteed", "limited", "other")]

    assert cores(pools, work, "guaranteed", "limited", "other") == [60, 5, 35]


def test_the_first_operation_of_a_fifo_pool_is_owed_all_of_it() -> None:
    work = [Work("later", "a", 50, started_at_ms=9), Work("first", "a", 1, started_at_ms=3), Work("y", "b", 50)]

    assert cores({"a": {"mode": "fifo"}, "b": {}}, work, "a", "first", "later") == [50, 50, 0]


def test_every_resource_is_divided_by_itself() -> None:
    pools = {"a": {"strong_guarantee_resources": {"cpu": 10, "memory": 80 * GIB}}, "b": {}}
    items = shares(pools, [Work("x", "a", 50, memory=GIB), Work("y", "b", 50, memory=GIB)], YARN)

    assert [round(items[name].fair_share.total[3], 3) for name in "ab"] == [0.8, 0.2]
    assert [items[name].fair_share.total[1] for name in "ab"] == [0.5, 0.5]
    assert items["a"].fair_share.strong_guarantee[3] == items["a"].fair_share.total[3]


MEMORY, CPU = 3, 1


def owed(
    pools: Mapping[str, Any], work: list[Work], options: Mapping[str, Any], *names: str
) -> list[tuple[float, float]]:
    """Shares of memory and cores."""
    items = shares(pools, work, options)
    return [
        (round(items[name].fair_share.total[MEMORY], 2), round(items[name].fair_share.total[CPU], 2)) for name in names
    ]


@pytest.mark.parametrize("where", ["tree", "pool", "pool above"])
def test_where_memory_alone_is_divided_cores_go_to_whoever_wants_them(where: str) -> None:
    pools: dict[str, Any] = {"top": {}, "middle": {"parent": "top"}}
    pools |= {name: {"weight": weight, "parent": "middle"} for name, weight in (("a", 3), ("b", 1))}
    pools["top"] = {"yarn_memory_only": where == "pool above"}
    pools["middle"]["yarn_memory_only"] = where == "pool"
    work = [Work("x", "a", 20, memory=GIB), Work("y", "b", 60, memory=GIB)]

    options = YARN | {"yarn/memory_only": where == "tree"}
    assert owed(pools, work, options, *"abxy") == [(0.75, 0.2), (0.25, 0.6), (0.75, 0.2), (0.25, 0.6)]
    (top,) = owed(pools, work, options, "top")
    assert top == ((1.0, 0.8) if where == "tree" else (1.0, 1.0))


def test_satisfaction_is_that_of_memory_where_memory_alone_is_divided() -> None:
    work = [Work("x", "a", 80, 10, memory=2 * GIB), Work("y", "b", 80, 40, memory=GIB)]
    items = shares({"a": {}, "b": {}}, work, YARN | {"yarn/memory_only": True})

    assert [items[name].local_satisfaction_ratio for name in "ab"] == [pytest.approx(0.4), pytest.approx(0.8)]


def test_the_root_has_all_and_a_pool_closed_to_memory_nothing_where_memory_alone_is_divided() -> None:
    options = YARN | {"yarn/memory_only": True}
    closed = {"a": {"resource_limits": {"memory": 0}}, "b": {}}
    work = [Work(name * 2, name, 50, memory=GIB) for name in "ab"]

    assert owed({}, [], options, "<Root>") == [(1.0, 1.0)]
    assert owed(closed, work, options, "<Root>", "a", "b") == [(1.0, 1.0), (0.0, 0.0), (1.0, 0.5)]


def test_whoever_comes_later_in_a_fifo_pool_is_owed_nothing_of_anything() -> None:
    work = [Work("later", "a", 50, started_at_ms=9, memory=GIB), Work("first", "a", 1, started_at_ms=3, memory=GIB)]

    options = YARN | {"yarn/memory_only": True}
    assert owed({"a": {"mode": "fifo"}}, work, options, "first", "later") == [(1.0, 0.01), (0.0, 0.0)]


def test_a_suspended_operation_has_no_share_until_it_goes_on() -> None:
    tree = SmallTree({"a": {}, "b": {}}, [Work("x", "a", 50), Work("y", "b", 50)], YARN)
    tree.update()
    tree.suspend("x")
    tree.update(1)
    without = tree.engine.items["y"].fair_share.total[1]
    tree.suspend("x", suspended=False)
    tree.update(1)

    assert (without, tree.engine.items["y"].fair_share.total[1]) == (1.0, 0.5)


@pytest.mark.parametrize("back", [{}, YARN | {"yarn/share": "native"}])
def test_the_policy_may_change_while_the_tree_is_at_work(back: dict[str, Any]) -> None:
    pools: dict[str, Any] = {"a": {}, "b": {}}
    work = [Work("x", "a", 10), Work("y", "b", 500)]
    tree = SmallTree(pools, work, {})
    seen = []
    for options in ({}, YARN, back, YARN):
        tree.configure(pools, options)
        tree.update(1)
        assert tree.engine.check() == []
        seen.append([round(tree.engine.items[name].fair_share.total[1] * 100) for name in "xy"])

    assert seen == [[10, 90], [50, 50], [10, 90], [50, 50]]


def test_a_yarn_tree_tells_that_it_takes_nothing_back() -> None:
    tree = SmallTree({"a": {}}, [], YARN | {"yarn/wait_before_kill": "1s"})

    assert tree.engine.configuration.alerts() == [
        "preemption_policy yarn: nothing is preempted until yarn/enabled is true",
    ]
