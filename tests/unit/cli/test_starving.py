"""What starves, in words and as a table."""

from __future__ import annotations

from typing import Any

from headrace.client.preemptions import starving_in
from headrace.wire.plain_values import plain
from headrace.wire.pools import GetPools, PoolList, StarvationOutlook
from headrace.wire.snapshots import (
    ElementKind,
    PreemptionPriority,
    SchedulingStatus,
    ShareItem,
    StarvationReason,
    StarvationStatus,
)
from headrace.wire.version import Version
from headrace_cli.commands.pools.starving import starving_table
from headrace_cli.show.starvation import starvation_facts
from headrace_cli.show.times import time_of_day
from headrace_fair_share.view import pool_list
from tests.support.small_trees import SmallTree, Work
from tests.unit.cli.test_render import shown


def listed(small: SmallTree) -> PoolList:
    """What fair share answers."""
    answer = pool_list(small.engine, GetPools(operations=True, only_starving=True), Version(1, 1))
    assert isinstance(answer, PoolList)
    return answer


def a_starving_tree(**options: Any) -> SmallTree:
    """Pool `a` starves with two of its operations, one of which may starve aggressively; one in it has what it is owed."""
    pools = {"a": {}, "fierce": {"parent": "a", "enable_aggressive_starvation": True}, "b": {}}
    work = [
        Work("fed", "a", 100, running=17),
        Work("hungry", "a", 100, running=1),
        Work("wolf", "fierce", 100),
        Work("rich", "b", 200, running=82),
    ]
    small = SmallTree(pools, work, options)
    small.update()
    small.update(31.0)
    small.update(90.0)
    return small


def test_what_starves_is_listed_with_those_who_may_preempt_for_it() -> None:
    answer = listed(a_starving_tree())

    lines = [" ".join(line.split()) for line in shown(starving_table(starving_in(answer), answer.frame.at_ms), 100)]

    assert lines == [
        "starving in pool since for its of fair share may preempt",
        "a <Root> 1m30s fair share 36% fed",
        "fierce a 1m30s ! fair share 0% –",
        "hungry a 1m30s fair share 6% hungry",
        "wolf fierce 1m30s ! fair share 0% wolf",
    ]


def test_under_a_yarn_policy_it_is_told_what_is_due_to_whom() -> None:
    pools = {"a": {"strong_guarantee_resources": {"cpu": 30}}, "b": {}}
    work = [Work("hungry", "a", 100, running=10), Work("rich", "b", 200, running=90)]
    small = SmallTree(pools, work, YARN)
    for _ in range(3):
        small.update(10.0)
    answer = listed(small)

    lines = [" ".join(line.split()) for line in shown(starving_table(starving_in(answer), answer.frame.at_ms), 100)]

    assert lines == [
        "starving in pool since for its of fair share due to guarantee due to fair share",
        "a <Root> 10s strong guarantee 20% cpu 5 cpu 15",
        "hungry a 10s strong guarantee 20% cpu 5 cpu 15",
    ]


YARN = {
    "preemption_policy": "yarn",
    "yarn/enabled": True,
    "fair_share_starvation_timeout": "5s",
    "fair_share_starvation_tolerance": 0.5,
    "min_share_preemption_timeout": "5s",
}


def test_operations_that_are_content_and_may_not_preempt_are_left_out_of_the_answer() -> None:
    assert {item.name for item in listed(a_starving_tree()).operations} == {"fed", "hungry", "wolf"}


def test_nobody_preempts_for_a_pool_where_only_operations_count() -> None:
    found = starving_in(listed(a_starving_tree(scheduling_preemption_priority_scope="operation_only")))

    assert {each.name: list(each.may_preempt) for each in found} == {
        "a": [],
        "fierce": [],
        "hungry": ["hungry"],
        "wolf": ["wolf"],
    }


def test_the_json_of_an_element_that_starves_has_all_of_it() -> None:
    first: Any = plain(starving_in(listed(a_starving_tree()))[0])

    assert first["name"] == "a"
    assert (first["starvation_status"], first["starvation_reason"]) == ("starving", "fair_share")
    assert first["may_preempt"] == {"fed": "normal"}
    assert first["starving_since_ms"] - first["below_fair_share_since_ms"] == 31_000


def test_what_is_short_is_told_for_how_long_and_when_it_starves() -> None:
    small = a_starving_tree()
    now_ms = small.engine.frame.at_ms
    hungry, fed, pool = (small.engine.items[key] for key in ("hungry", "fed", "/a"))

    assert starvation_facts(hungry, [], now_ms) == [
        ("below fair share", "for 2m1s"),
        ("starves", "for 1m30s, for its fair share"),
        ("may preempt", "in the normal stage: it starves itself"),
    ]
    assert starvation_facts(fed, [], now_ms) == [("may preempt", "in the normal stage: a pool above it starves")]
    assert starvation_facts(pool, [], now_ms)[1] == ("starves", "for 1m30s, for its fair share")


def told_of(small: SmallTree, key: str) -> list[tuple[str, str]]:
    """The facts of an element as fair_share answers who asks for them."""
    answer = pool_list(small.engine, GetPools(name="a", outlook_of=key), Version(1, 1))
    assert isinstance(answer, PoolList)
    return starvation_facts(small.engine.items[key], answer.outlooks, answer.frame.at_ms)


def after(ms: int) -> str:
    """The time of day so many milliseconds after the first update."""
    return time_of_day(ms, 0)


def test_who_does_not_starve_yet_is_told_when_it_and_the_pools_above_it_will() -> None:
    pools = {"a": {}, "inner": {"parent": "a", "fair_share_starvation_timeout": "10s"}}
    small = SmallTree(pools, [Work("x", "inner", 3)], {"allocation_count_preemption_timeout_coefficient": 6})
    small.update()
    small.update(3.0)

    assert told_of(small, "x") == [
        ("below fair share", f"for 3s; it starves in 2s, at {after(5_000)}"),
        ("pool inner", f"below its fair share for 3s; it starves in 7s, at {after(10_000)}"),
        ("pool a", f"below its fair share for 3s; it starves in 27s, at {after(30_000)}"),
    ]


def test_it_is_told_when_who_may_starve_aggressively_does_so() -> None:
    wishes = {"fair_share_starvation_timeout_ms": 600_000}
    work = [Work("x", "a", 100), Work("patient", "a", 100, wishes=wishes)]
    small = SmallTree({"a": {"enable_aggressive_starvation": True}}, work, {})
    small.update()
    small.update(5.0)

    assert told_of(small, "/a") == [
        (
            "below fair share",
            f"for 5s; it starves in 25s, at {after(30_000)}, and aggressively in 1m55s, at {after(120_000)}",
        )
    ]
    assert told_of(small, "patient")[0] == (
        "below fair share",
        f"for 5s; it starves aggressively in 1m55s, at {after(120_000)}",
    )
    small.update(26.0)
    assert told_of(small, "x") == [
        ("below fair share", f"for 31s; it starves aggressively in 1m29s, at {after(120_000)}"),
        ("starves", "for 0ms, for its fair share"),
        ("may preempt", "in the normal stage: it starves itself"),
        (
            "pool a",
            f"below its fair share for 31s; it starves aggressively in 1m29s, at {after(120_000)}; "
            "starves for 0ms, for its fair share",
        ),
    ]


def test_it_is_told_when_a_pool_starves_for_its_strong_guarantee() -> None:
    pools = {"a": {"strong_guarantee_resources": {"cpu": 50}, "fair_share_starvation_tolerance": 0.5}, "b": {}}
    work = [Work("x", "a", 100, running=40), Work("rich", "b", 200, running=60)]
    small = SmallTree(pools, work, {"min_share_preemption_timeout": "5s"})
    small.update()
    small.update(2.0)

    assert told_of(small, "/a") == [
        ("below guarantee", f"for 2s; it starves for the guarantee in 3s, at {after(5_000)}")
    ]
    assert told_of(small, "x") == [
        ("pool a", f"below its strong guarantee for 2s; it starves for the guarantee in 3s, at {after(5_000)}")
    ]


def test_a_moment_that_is_over_comes_with_the_next_update() -> None:
    outlook = StarvationOutlook(
        ElementKind.POOL,
        "a",
        StarvationStatus.NON_STARVING,
        StarvationReason.NONE,
        below_fair_share_since_ms=1_000,
        starves_for_fair_share_at_ms=6_000,
    )
    item = ShareItem("pool", "a", "<Root>", below_fair_share_since_ms=1_000, scheduling_status=BELOW)  # type: ignore[arg-type]
    assert starvation_facts(item, [outlook], 6_000) == [("below fair share", "for 5s; it starves with the next update")]


def test_no_moment_is_told_that_nobody_tells() -> None:
    item = ShareItem("pool", "a", "<Root>", below_fair_share_since_ms=1_000, scheduling_status=BELOW)  # type: ignore[arg-type]

    assert starvation_facts(item, [], 6_000) == [("below fair share", "for 5s")]


def test_nothing_is_told_of_who_has_what_it_is_owed() -> None:
    item = ShareItem("pool", "a", "<Root>")  # type: ignore[arg-type]

    assert starvation_facts(item, [], 6_000) == []
    assert (item.preemption_priority, item.starvation_reason) == (PreemptionPriority.NONE, StarvationReason.NONE)


BELOW = SchedulingStatus.BELOW_FAIR_SHARE
