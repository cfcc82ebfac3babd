"""When elements will starve, as people are told it, beside what becomes of them at that moment."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.wire.pools import GetPools, PoolList, StarvationOutlook
from headrace.wire.snapshots import ShareItem, StarvationReason, StarvationStatus
from headrace.wire.version import NEVER
from headrace_fair_share.view import pool_list
from tests.support.small_trees import SmallTree, Work

Options = dict[str, Any]
NON_STARVING, STARVING, AGGRESSIVE = StarvationStatus
#: Half of the cluster is guaranteed to pool `a`, which has 10 % and is content with half of its fair share.
GUARANTEED: Options = {"strong_guarantee_resources": {"cpu": 50}, "fair_share_starvation_tolerance": 0.5}
RICH = Work("rich", "b", 200, running=90)


def told(small: SmallTree, key: str) -> list[StarvationOutlook]:
    """What fair_share answers."""
    answer = pool_list(small.engine, GetPools(name="a", outlook_of=key), NEVER)
    assert isinstance(answer, PoolList)
    return answer.outlooks


def a_course(pools: Options, work: list[Work], options: Options, *after_s: float) -> SmallTree:
    """A tree after updates so far apart, with a first one at 0."""
    small = SmallTree(pools, work, options)
    small.update()
    for each in after_s:
        small.update(each)
    return small


def at_that_moment(small: SmallTree, key: str, moment_ms: int | None) -> tuple[ShareItem, ShareItem]:
    """The item of an element one millisecond before a moment, and then."""
    assert moment_ms is not None
    small.update((moment_ms - 1 - small.engine.frame.at_ms) / 1000)
    before = small.engine.items[key]
    small.update(0.001)
    return before, small.engine.items[key]


@pytest.mark.parametrize("jobs", [1, 3, 4, 7, 9, 10, 100])
@pytest.mark.parametrize("running", [0, 1])
def test_an_operation_that_needs_few_slots_is_told_the_moment_at_which_it_starves(jobs: int, running: int) -> None:
    work = [Work("x", "a", jobs + running, running=running), RICH]
    small = a_course({"a": {}, "b": {}}, work, {"allocation_count_preemption_timeout_coefficient": 9}, 2.0)

    (outlook, *_) = told(small, "x")
    assert outlook.starves_for_fair_share_at_ms == 30_000 * min(jobs, 9) // 9 + 1
    before, then = at_that_moment(small, "x", outlook.starves_for_fair_share_at_ms)
    assert (before.starvation_status, then.starvation_status) == (NON_STARVING, STARVING)
    assert told(small, "x")[0].starves_for_fair_share_at_ms is None


def test_an_operation_that_may_wait_longer_is_told_so() -> None:
    small = a_course({"a": {}}, [Work("x", "a", 100, wishes={"fair_share_starvation_timeout_ms": 60_000})], {})

    operation, pool = told(small, "x")
    assert (operation.starves_for_fair_share_at_ms, pool.starves_for_fair_share_at_ms) == (60_001, 30_001)


@pytest.mark.parametrize("coefficient", [1, 10])
def test_it_is_told_when_it_becomes_aggressive_where_that_is_enabled(coefficient: int) -> None:
    pools: Options = {"a": {}, "inner": {"parent": "a", "enable_aggressive_starvation": True}}
    options = {"allocation_count_preemption_timeout_coefficient": coefficient}
    small = a_course(pools, [Work("x", "inner", 5)], options, 31.0)

    operation, inner, outer = told(small, "x")
    assert (outer.starvation_status, outer.starves_aggressively_at_ms) == (STARVING, None)
    assert inner.starves_aggressively_at_ms == 120_001
    before, then = at_that_moment(small, "x", operation.starves_aggressively_at_ms)
    assert (before.starvation_status, then.starvation_status) == (STARVING, AGGRESSIVE)
    assert told(small, "x")[0].starves_aggressively_at_ms is None


def test_an_element_that_becomes_aggressive_first_starves_with_that() -> None:
    pools: Options = {"a": {"enable_aggressive_starvation": True}}
    wishes = {"fair_share_starvation_timeout_ms": 600_000}
    small = a_course(pools, [Work("x", "a", 100, wishes=wishes)], {}, 1.0)

    operation = told(small, "x")[0]
    assert operation.starves_for_fair_share_at_ms == operation.starves_aggressively_at_ms
    before, then = at_that_moment(small, "x", operation.starves_for_fair_share_at_ms)
    assert (before.starvation_status, then.starvation_status) == (NON_STARVING, AGGRESSIVE)


def test_a_pool_is_told_when_it_starves_for_its_strong_guarantee_and_so_are_those_in_it() -> None:
    pools: Options = {"a": GUARANTEED, "b": {}}
    small = a_course(pools, [Work("x", "a", 100, running=40), RICH], {"min_share_preemption_timeout": "5s"}, 2.0)

    (pool,) = told(small, "/a")
    assert told(small, "x")[-1] == pool
    assert (pool.below_fair_share_since_ms, pool.below_strong_guarantee_since_ms) == (None, 0)
    assert (pool.starves_for_fair_share_at_ms, pool.starves_for_strong_guarantee_at_ms) == (None, 5_001)
    before, then = at_that_moment(small, "/a", pool.starves_for_strong_guarantee_at_ms)
    assert (before.starvation_status, then.starvation_status) == (NON_STARVING, STARVING)
    assert then.starvation_reason is StarvationReason.MIN_SHARE
    assert told(small, "/a")[0].starves_for_strong_guarantee_at_ms is None


def test_nothing_is_told_of_a_guarantee_without_a_timeout() -> None:
    assert told(a_course({"a": GUARANTEED, "b": {}}, [Work("x", "b", 100)], {}), "/a") == []
    (pool,) = told(a_course({"a": GUARANTEED, "b": {}}, [Work("x", "a", 100), RICH], {}), "/a")
    assert (pool.below_strong_guarantee_since_ms, pool.starves_for_strong_guarantee_at_ms) == (None, None)


def test_pools_above_are_told_with_timeouts_of_their_own_the_nearest_first_and_the_root_never() -> None:
    pools: Options = {"a": {}, "inner": {"parent": "a", "fair_share_starvation_timeout": "10s"}}
    small = a_course(pools, [Work("x", "inner", 100)], {}, 1.0)

    outlooks = told(small, "x")
    assert [(each.key, each.starves_for_fair_share_at_ms) for each in outlooks] == [
        ("x", 10_001),
        ("/inner", 10_001),
        ("/a", 30_001),
    ]
    before, then = at_that_moment(small, "/a", outlooks[-1].starves_for_fair_share_at_ms)
    assert (before.starvation_status, then.starvation_status) == (NON_STARVING, STARVING)


def test_the_time_that_did_not_count_makes_it_later() -> None:
    small = a_course({"a": {}}, [Work("x", "a", 100)], {}, 1.0)
    small.update(1.0, complete=False)
    small.update(6.0, complete=False)
    small.update(1.0)

    assert small.engine.frame.at_ms == 9_000
    operation = told(small, "x")[0]
    assert operation.starves_for_fair_share_at_ms == 38_001
    before, then = at_that_moment(small, "x", operation.starves_for_fair_share_at_ms)
    assert (before.starvation_status, then.starvation_status) == (NON_STARVING, STARVING)


@pytest.mark.parametrize(
    "options",
    [{"preemption_policy": "yarn", "yarn/enabled": True}, {"pause_starts": True}],
)
def test_no_moment_is_told_where_nobody_can_tell_it(options: Options) -> None:
    small = a_course({"a": {}, "b": {}}, [Work("x", "a", 100), RICH], {}, 1.0)
    small.configure({"a": {}, "b": {}}, options)
    small.update(1.0)

    outlooks = told(small, "x")
    assert [each.key for each in outlooks] == ["x", "/a"]
    assert {each.below_fair_share_since_ms is None for each in outlooks} == {False}
    assert {each.starves_for_fair_share_at_ms for each in outlooks} == {None}


def test_no_moment_is_told_while_usage_is_not_known_as_a_whole() -> None:
    small = a_course({"a": {}}, [Work("x", "a", 100)], {}, 1.0)
    small.update(1.0, complete=False)

    assert {each.starves_for_fair_share_at_ms for each in told(small, "x")} == {None}


def test_no_moment_is_told_of_pools_that_are_not_looked_at() -> None:
    small = a_course({"a": {}}, [Work("x", "a", 100)], {}, 1.0)
    small.configure({"a": {}}, {"enable_pool_starvation": False})
    small.update(1.0)

    operation, pool = told(small, "x")
    assert (operation.starves_for_fair_share_at_ms, pool.starves_for_fair_share_at_ms) == (30_001, None)


def test_nothing_is_told_of_an_operation_that_was_suspended_a_moment_ago() -> None:
    small = a_course({"a": {}}, [Work("x", "a", 100), Work("y", "a", 100)], {}, 1.0)
    small.suspend("x")

    assert [each.key for each in told(small, "x")] == ["/a"]


@pytest.mark.parametrize("key", ["no such", "/<Root>", "rich", "/b", ""])
def test_nothing_is_told_of_what_is_short_of_nothing(key: str) -> None:
    small = a_course({"a": {}, "b": {}}, [Work("x", "a", 100), RICH], {}, 1.0)

    assert told(small, key) == []


def test_it_is_told_once_and_not_on_every_page() -> None:
    small = a_course({"a": {}}, [Work("x", "a", 100)], {}, 1.0)

    answer = pool_list(small.engine, GetPools(first=1, outlook_of="x"), NEVER)
    assert isinstance(answer, PoolList)
    assert answer.outlooks == []


def test_the_share_of_the_operation_is_told_however_many_stand_in_its_pool() -> None:
    work = [Work(f"operation-{number}", "a", 10) for number in range(1_000)]
    small = a_course({"a": {}}, work, {}, 1.0)

    answer = pool_list(small.engine, GetPools(name="a", operations=True, outlook_of="operation-999"), NEVER)
    assert isinstance(answer, PoolList)
    assert answer.operations_left_out > 0
    assert [item.name for item in answer.operations[:2]] == ["operation-999", "operation-0"]
    assert [each.key for each in answer.outlooks] == ["operation-999", "/a"]
