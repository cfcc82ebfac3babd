"""Who starves and who may preempt, through whole updates of the engine."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import PoolName
from headrace.pools import PoolTree
from headrace.resources import Resources
from headrace.wire.codec import decode, encode
from headrace.wire.refusals import BadRequest
from headrace.wire.snapshots import (
    PreemptionPriority,
    SchedulingStatus,
    ShareItem,
    StarvationReason,
    StarvationStatus,
)
from headrace_fair_share.configuration.rules import TreeBounds, broken_options, broken_rules
from headrace_fair_share.starvation.clocks import Ages
from tests.support.clocks import at
from tests.support.small_trees import SmallTree, Work, a_tree, clocks

BELOW, NORMAL = SchedulingStatus.BELOW_FAIR_SHARE, SchedulingStatus.NORMAL
NON_STARVING, STARVING, AGGRESSIVE = StarvationStatus
NONE, PLAIN, FIRST = PreemptionPriority
Options = dict[str, Any]


def course(pools: Options, work: list[Work], options: Options, *after_s: float) -> dict[str, ShareItem]:
    """Items by name after updates at these moments, the first of them at 0."""
    small = SmallTree(pools, work, options)
    small.update()
    for earlier, later in zip((0.0, *after_s), after_s, strict=False):
        small.update(later - earlier)
    return {key.removeprefix("/"): item for key, item in small.engine.items.items()}


# Operations: their own options, and how much they have to do.


@pytest.mark.parametrize(
    ("wishes", "running", "expected"),
    [
        ({}, 39, BELOW),
        ({}, 40, NORMAL),
        ({"fair_share_starvation_tolerance": 0.5}, 39, NORMAL),
        ({"fair_share_starvation_tolerance": 1.0}, 40, NORMAL),
    ],
)
def test_an_operation_may_be_content_with_less(wishes: Options, running: int, expected: SchedulingStatus) -> None:
    work = [Work("x", "a", 100, running=running, wishes=wishes), Work("y", "a", 100)]

    assert course({"a": {}}, work, {})["x"].scheduling_status is expected


@pytest.mark.parametrize(("own_ms", "after_s", "expected"), [(60_000, 31, 0), (60_000, 61, 1), (1_000, 30, 0)])
def test_an_operation_may_wait_longer_and_not_shorter(own_ms: int, after_s: float, expected: int) -> None:
    work = [Work("x", "a", 100, wishes={"fair_share_starvation_timeout_ms": own_ms}), Work("y", "a", 100)]

    assert course({"a": {}}, work, {}, after_s)["x"].starvation_status is (NON_STARVING, STARVING)[expected]


@pytest.mark.parametrize(("jobs", "after_s", "expected"), [(4, 12, 0), (4, 12.1, 1), (10, 30, 0), (100, 30, 0)])
def test_an_operation_with_few_jobs_pending_starves_sooner(jobs: int, after_s: float, expected: int) -> None:
    """Of 10 jobs and more after 30 s, of 4 after 12 s."""
    items = course({"a": {}}, [Work("x", "a", jobs)], {"allocation_count_preemption_timeout_coefficient": 10}, after_s)

    assert items["x"].starvation_status is (NON_STARVING, STARVING)[expected]


def test_it_gets_aggressive_sooner_too_and_its_pool_does_not() -> None:
    options = {"allocation_count_preemption_timeout_coefficient": 10, "enable_aggressive_starvation": True}

    items = course({"a": {}}, [Work("x", "a", 1)], options, 12.1)

    assert (items["x"].starvation_status, items["a"].starvation_status) == (AGGRESSIVE, NON_STARVING)


@pytest.mark.parametrize(
    ("absolute", "running", "expected"), [(False, 33, BELOW), (True, 33, NORMAL), (True, 32, BELOW), (True, 34, NORMAL)]
)
def test_nobody_is_below_its_share_for_less_than_a_job_if_that_is_so(
    absolute: bool, running: int, expected: SchedulingStatus
) -> None:
    work = [Work(name, "a", 100, running=running) for name in ("x", "y", "z")]
    options = {"fair_share_starvation_tolerance": 1, "enable_absolute_fair_share_starvation_tolerance": absolute}

    items = course({"a": {}}, work, options)
    assert items["x"].scheduling_status is expected
    assert items["a"].scheduling_status is (BELOW if running < 34 else NORMAL)


def test_who_is_owed_everything_lacks_its_last_job_whatever_the_absolute_tolerance() -> None:
    options = {"enable_absolute_fair_share_starvation_tolerance": True}

    items = course({"a": {}}, [Work("x", "a", 10, running=9)], options)

    assert items["x"].scheduling_status is BELOW


def test_an_operation_that_was_suspended_waits_anew() -> None:
    small = SmallTree({"a": {}}, [Work("x", "a", 100)], {})
    small.update()
    small.update(29.0)
    small.suspend("x")
    small.update(1.0)
    small.suspend("x", suspended=False)
    small.update(1.0)
    small.update(29.0)

    assert small.engine.items["x"].starvation_status is NON_STARVING
    assert small.engine.items["/a"].starvation_status is NON_STARVING


def test_the_clock_of_a_suspended_operation_is_put_back_also_while_nobody_knows_the_usage() -> None:
    small = SmallTree({"a": {}}, [Work("x", "a", 100)], {})
    small.update()
    small.update(29.0)
    small.suspend("x")
    small.update(1.0, complete=False)
    small.suspend("x", suspended=False)
    small.update(1.0)

    item = small.engine.items["x"]
    assert item.below_fair_share_since_ms == small.engine.frame.at_ms


# Guarantees.

#: With half of the cluster guaranteed, and content with half of what it is owed.
GUARANTEED = {"strong_guarantee_resources": {"cpu": 50}, "fair_share_starvation_tolerance": 0.5}
SHORT = {"min_share_preemption_timeout": "5s"}
#: Wants everything in a pool beside it.
OTHER = Work("y", "b", 100, running=50)


@pytest.mark.parametrize(("after_s", "expected"), [(5.0, 0), (5.001, 1)])
def test_a_pool_below_its_guarantee_starves_strictly_after_the_timeout_though_its_status_is_normal(
    after_s: float, expected: int
) -> None:
    items = course({"a": GUARANTEED, "b": {}}, [Work("x", "a", 100, running=40), OTHER], SHORT, after_s)

    pool, operation = items["a"], items["x"]
    assert (pool.scheduling_status, pool.below_fair_share_since_ms) == (NORMAL, None)
    assert pool.starvation_status is (NON_STARVING, STARVING)[expected]
    assert pool.starvation_reason is (StarvationReason.NONE, StarvationReason.MIN_SHARE)[expected]
    assert operation.starvation_status is NON_STARVING
    assert operation.preemption_priority is (NONE, PLAIN)[expected]


@pytest.mark.parametrize(
    ("pool", "work", "options"),
    [
        (GUARANTEED, Work("x", "a", 100, running=50), SHORT),
        (GUARANTEED, Work("x", "a", 40, running=40), SHORT),
        (GUARANTEED, Work("x", "a", 100, running=40), {}),
        ({"fair_share_starvation_tolerance": 0.5}, Work("x", "a", 100, running=30), SHORT),
    ],
    ids=["has its guarantee", "demands less", "no timeout", "no guarantee"],
)
def test_a_pool_that_is_not_short_of_a_guarantee_does_not_starve_for_one(
    pool: Options, work: Work, options: Options
) -> None:
    assert course({"a": pool, "b": {}}, [work, OTHER], options, 10)["a"].starvation_status is NON_STARVING


def test_a_pool_that_is_owed_all_starves_for_any_resource_that_follows_from_its_guarantee() -> None:
    """It has its cores. Slots are below what follows for them, until it has a figure of its own for slots."""
    pool: dict[str, Any] = {"fair_share_starvation_tolerance": 0.5}
    work, options = [Work("x", "a", 90, running=60)], {"min_share_preemption_timeout": "1s"}
    found = [
        clocks("/a", {"a": pool | {"strong_guarantee_resources": amounts}}, work, options, 5)
        for amounts in ({"cpu": 50}, {"cpu": 50, "user_slots": 0})
    ]

    assert found == [STARVING, NON_STARVING]


def test_a_demand_below_the_guarantee_is_what_counts() -> None:
    items = course({"a": GUARANTEED}, [Work("x", "a", 40, running=30)], SHORT, 6)

    assert items["a"].starvation_reason is StarvationReason.MIN_SHARE
    assert items["<Root>"].starvation_status is NON_STARVING


def test_a_pool_may_have_a_timeout_of_its_own() -> None:
    pools = {"a": GUARANTEED | {"min_share_preemption_timeout": "1m"}, "b": GUARANTEED}
    work = [Work("x", "a", 100, running=40), Work("y", "b", 100, running=40)]

    items = course(pools, work, SHORT, 30)
    assert (items["a"].starvation_status, items["b"].starvation_status) == (NON_STARVING, STARVING)


def test_its_fair_share_is_the_reason_where_it_has_its_guarantee() -> None:
    pools = {"a": {"strong_guarantee_resources": {"cpu": 5}}, "b": {}}

    items = course(pools, [Work("x", "a", 100, running=10), OTHER], SHORT, 31)

    assert items["a"].starvation_reason is StarvationReason.FAIR_SHARE


@pytest.mark.parametrize(
    "options", [{"scheduling_preemption_priority_scope": "operation_only"}, {"enable_pool_starvation": False}]
)
def test_a_timeout_for_guarantees_is_refused_where_nothing_would_follow_from_it(options: Options) -> None:
    tree = PoolTree(a_tree({"a": SHORT}, options))

    def places(found: list[Any]) -> list[tuple[str, str]]:
        return [(each.place, each.rule) for each in found if isinstance(each, BadRequest)]

    refused = [("min_share_preemption_timeout", "needs_another_option")]
    assert places(broken_rules(tree, TreeBounds())) == refused
    assert places(broken_options(a_tree({}, SHORT | options).options)) == refused
    assert broken_rules(PoolTree(a_tree({"a": SHORT}, {})), TreeBounds()) == []


def test_a_pool_that_starves_for_its_guarantee_does_so_at_once_in_the_next_life_of_the_service() -> None:
    first = SmallTree({"a": GUARANTEED, "b": {}}, [Work("x", "a", 100, running=40), OTHER], SHORT)
    first.update()
    first.update(6.0)
    saved = decode(encode(Ages(first.engine.ages(), term=1)), Ages)

    second = SmallTree({"a": GUARANTEED, "b": {}}, first.work, SHORT)
    second.engine.on_leading(1, [saved], at(0))
    second.update()

    pool = second.engine.items["/a"]
    assert (pool.starvation_status, pool.starvation_reason) == (STARVING, StarvationReason.MIN_SHARE)
    assert second.engine.items["x"].preemption_priority is PLAIN


# Priorities.

#: Pool `a` starves, and one of its operations has what it is owed; so does one of `b`, which may starve aggressively.
POOLS: Options = {"a": {}, "b": {"enable_aggressive_starvation": True}, "c": {}}
WORK = [
    Work("fed", "a", 100, running=17),
    Work("hungry", "a", 100),
    Work("waits", "a", 100, wishes={"fair_share_starvation_timeout_ms": 600_000}),
    Work("fierce", "b", 100),
    Work("rich", "c", 200, running=83),
    Work("done", "b", 0),
]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("operation_only", {"hungry": PLAIN, "fierce": FIRST}),
        ("operation_and_ancestors", {"fed": PLAIN, "hungry": PLAIN, "waits": PLAIN, "fierce": FIRST}),
    ],
)
def test_an_operation_preempts_by_what_starves_on_its_way_to_the_root(
    scope: str, expected: dict[str, PreemptionPriority]
) -> None:
    options = {"scheduling_preemption_priority_scope": scope}

    items = course(POOLS, WORK, options, 121)

    found = {name: item.preemption_priority for name, item in items.items() if item.preemption_priority is not NONE}
    assert found == expected


def test_pools_that_are_not_looked_at_give_their_operations_no_priority() -> None:
    items = course(POOLS, WORK, {"enable_pool_starvation": False}, 121)

    assert [items[name].starvation_status for name in ("a", "b", "hungry", "fierce")] == [
        NON_STARVING,
        NON_STARVING,
        STARVING,
        AGGRESSIVE,
    ]
    assert (items["fed"].preemption_priority, items["hungry"].preemption_priority) == (NONE, PLAIN)


# Reports to the allocator.


def test_pools_tell_their_options_and_operations_their_rank() -> None:
    pools = {"a": {"fair_share_starvation_tolerance": 0.5}, "b": {"parent": "a", "mode": "fifo"}}
    work = [Work("x", "b", 10, started_at_ms=7), Work("y", "b", 20, weight=2.0, started_at_ms=9), Work("z", "a", 1)]

    items = course(pools, work, {"preemption_satisfaction_threshold": 0.9})

    tolerances = {
        name: None if item.options is None else item.options.fair_share_starvation_tolerance
        for name, item in items.items()
    }
    assert tolerances == {"<Root>": 0.8, "a": 0.5, "b": 0.5, "x": None, "y": None, "z": None}
    assert {name: item.rank for name, item in items.items()} == {"<Root>": 0, "a": 1, "b": 2, "x": 1, "y": 0, "z": 1}


def test_a_change_of_options_is_told_of_every_pool_that_it_reaches() -> None:
    small = SmallTree({"a": {}, "b": {"parent": "a"}, "c": {}}, [], {})
    small.update()
    small.configure({"a": {"allow_normal_preemption": False}, "b": {"parent": "a"}, "c": {}}, {})

    told = small.update(1.0)

    assert {item.name for item in told.changed} == {"a", "b"}
    assert not any(item.options and item.options.allow_normal_preemption for item in told.changed)


def test_the_frame_tells_the_options_of_its_tree() -> None:
    small = SmallTree({"a": {}}, [], {"preemption": "observe"})

    assert small.update().frame.options.preemption == "observe"
    assert PoolName("a") in small.engine.pool_results
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(small.engine.frame.options)) == {"preemption": "observe"}
    assert Resources() == small.engine.pool_results[PoolName("a")].usage
