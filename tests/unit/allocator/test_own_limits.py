"""What keeps an operation from starting more though its pool has room: its own limits, and its place in a fifo pool."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.pools.amounts import PartialResources
from headrace_allocator.facts.pool_tree import ShareSnapshot
from tests.support.allocating import Desk, an_operation, cores
from tests.support.taken_back import on_a_full_node
from tests.unit.allocator.test_preemption import FOUR, a_share

AT_ITS_LIMIT = {
    "resource_limits": PartialResources(cpu=50),
    "resource_limits_overcommit_tolerance": PartialResources(cpu=50),
}

NONE = PartialResources(cpu=0)


def test_the_tolerance_of_an_operations_limits_is_for_preemptive_stages_only() -> None:
    """It waits beside free room while it may not preempt, and beside a full node it takes one place, not two."""
    live = an_operation("poor")
    desk = Desk({"n": FOUR})
    desk.start(msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, **AT_ITS_LIMIT)))
    desk.tell([a_share("poor", 4)], total=FOUR)
    assert desk.beat("n")[0].start == []
    desk.tell([a_share("poor", 4, starves=True)], total=FOUR)
    desk.now_s += 6
    assert len(desk.beat("n")[0].start) == 1

    host = on_a_full_node(poor=AT_ITS_LIMIT)
    first = host.next_beat()
    assert ([one.operation for one in first.start], len(first.take_back)) == (["poor"], 1)
    host.starts += first.start
    assert host.next_beat().start == []


def test_by_the_older_rules_what_may_go_in_a_pool_is_room_under_its_limit_and_nobody_has_tolerance() -> None:
    older = {"victim_rules": "legacy", "preemption_check_satisfaction": False}
    at_own_limit = on_a_full_node(older, poor=AT_ITS_LIMIT).next_beat()
    at_limit_of_pool = on_a_full_node(older, pool={"resource_limits": {"cpu": 4}}).next_beat()
    with_tolerance = {"resource_limits": {"cpu": 4}, "resource_limits_overcommit_tolerance": {"cpu": 4}}
    none_may_go = on_a_full_node(older, pool=with_tolerance, owed=4).next_beat()

    assert at_own_limit.start == none_may_go.start == []
    assert ([one.operation for one in at_limit_of_pool.start], len(at_limit_of_pool.take_back)) == (["poor"], 1)


def test_an_operation_at_its_limit_may_pass_it_once_the_tree_lets_it_though_its_share_is_the_same() -> None:
    live = an_operation("poor")
    desk = Desk({"n": FOUR})
    desk.start(msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, resource_limits=NONE)))
    share = a_share("poor", 4, starves=True)
    desk.tell([share], total=FOUR)
    assert desk.beat("n")[0].start == []
    desk.refresh()

    lenient = msgspec.structs.replace(desk.options, enable_infinite_resource_limits_overcommit=True)
    desk.engine.on_shares(ShareSnapshot({share.key: share}, changed=[], total=FOUR, options=lenient), desk.now)
    desk.refresh()
    desk.now_s += 6

    assert [one.operation for one in desk.beat("n")[0].start] == ["poor"]


def test_an_operation_that_is_too_far_back_in_its_fifo_pool_starts_nothing_and_is_told_why() -> None:
    desk = Desk({"n": cores(4, slots=4)})
    desk.start(an_operation("first"), an_operation("second"))
    none: dict[str, Any] = {"fifo_index": 1, "schedulable": False}
    desk.tell([a_share("first", 1, demand=1, fifo_index=0), a_share("second", 0, **none)], total=FOUR)

    assert [one.operation for one in desk.beat("n")[0].start] == ["first"]
    assert "the operations ahead of it in its fifo pool reach" in desk.reasons("second")[0]


@pytest.mark.parametrize(("owed", "used"), [(1, 1), (0, 1), (1, 0)])
def test_a_job_that_came_back_to_an_operation_of_a_fifo_pool_starts_before_the_next_snapshot(
    owed: float, used: float
) -> None:
    """None of its jobs waited when the snapshot was made, or what it held was on its way to a node."""
    desk = Desk({"n": cores(4, slots=4)})
    desk.start(an_operation("op"))
    usage = (used / 4, used / 4, 0.0, 0.0, 0.0)
    desk.tell([a_share("op", owed, demand=1, fifo_index=0, schedulable=False, usage_share=usage)], total=FOUR)

    assert [one.operation for one in desk.beat("n")[0].start] == ["op"]
