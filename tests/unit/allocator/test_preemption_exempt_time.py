"""A job that has not run for its pool's `preemption_exempt_time` makes no room for others, and whoever waits is told so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import OperationId
from headrace.pools import TreeOptions
from headrace.resources import Resources
from headrace.wire.explanations import ExplainWaiting, WaitingExplained
from headrace.wire.heartbeat import AllocationReport, Orders
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from tests.support.allocating import Desk, an_operation, cores
from tests.support.taken_back import on_a_full_node
from tests.unit.allocator.test_preemption import FOUR, Host, a_share

#: All jobs of a `Host` begin at this time of its CLOCK_BOOTTIME.
BEGAN_MS = 10
MINUTE = {"preemption_exempt_time": "1m"}


def beat(host: Host, ran_s: float, **changes: Any) -> Orders:
    """The next heartbeat, of a host whose jobs have run for so long."""
    return host.next_beat(boottime_ms=BEGAN_MS + int(ran_s * 1000), **changes)


def records(orders: Orders) -> list[PreemptionRecord]:
    assert all(one.preemption is not None for one in orders.take_back)
    return [one.preemption for one in orders.take_back if one.preemption is not None]


def explained(desk: Desk, operation: str) -> WaitingExplained:
    answer = desk.engine.on_question(ExplainWaiting(OperationId(operation)), desk.now).answer
    assert isinstance(answer, WaitingExplained)
    return answer


@pytest.mark.parametrize("aggressive", [False, True])
def test_a_job_is_taken_for_others_once_it_has_run_for_so_long_and_not_before(aggressive: bool) -> None:
    host = on_a_full_node(MINUTE, owed=4 if aggressive else 2, aggressive=aggressive)

    assert (beat(host, 59.9).take_back, beat(host, 59.9).start) == ([], [])
    (record,) = records(beat(host, 60))
    assert (record.beneficiary, record.exempt_time_ms, record.ran_ms) == ("poor", 60_000, 60_000)


def test_a_pool_below_may_have_another_time_and_none() -> None:
    assert records(beat(on_a_full_node(MINUTE, pool={"preemption_exempt_time": 0}), 0))
    assert not beat(on_a_full_node(pool={"preemption_exempt_time": "2m"}), 119).take_back
    assert records(beat(on_a_full_node(pool={"preemption_exempt_time": "2m"}), 120))


def with_last(host: Host, began_ms: int) -> list[AllocationReport]:
    """All that the host shows; the last job that began there did so at this time of its clock, or not yet."""
    *others, last = host.picture()
    assert last.job is not None
    job = msgspec.structs.replace(last.job, started_at_ms=began_ms, started_boottime_ms=began_ms)
    return [*others, msgspec.structs.replace(last, job=job)]


def test_only_jobs_that_have_run_for_so_long_count_as_room_for_somebody() -> None:
    host = on_a_full_node(MINUTE)
    orders = beat(host, 90, allocations=with_last(host, 60_000))
    assert [one.allocation for one in orders.take_back] == [host.starts[2].allocation], "the youngest of the others"

    host = on_a_full_node(MINUTE, poor={"resources": Resources(user_slots=1, cpu=200)})
    orders = beat(host, 90, allocations=with_last(host, 60_000))
    assert (orders.start, orders.take_back) == ([], []), "there are not two cores to be had"


def test_a_job_that_has_not_begun_loses_nothing_and_may_go() -> None:
    host = on_a_full_node(MINUTE)

    (record,) = records(beat(host, 0, allocations=with_last(host, 0)))

    assert (record.exempt_time_ms, record.ran_ms) == (60_000, 0)


def test_what_is_above_a_limit_or_has_no_room_on_its_node_goes_however_young() -> None:
    limited = on_a_full_node(MINUTE, pool_changes={"limits": Resources(user_slots=4, cpu=300)})
    (record,) = records(beat(limited, 0))
    assert (record.reason, record.exempt_time_ms) == (PreemptionReason.RESOURCE_LIMITS_VIOLATED, 0)

    shrunk = on_a_full_node(MINUTE)
    (record,) = records(beat(shrunk, 0, total=msgspec.structs.replace(FOUR, cpu=300)))
    assert (record.beneficiary, record.exempt_time_ms) == ("", 0)


def test_a_limit_is_repaired_with_young_jobs_beside_a_start_that_took_an_older_one() -> None:
    host = on_a_full_node(MINUTE, other_pool=True, pool_changes={"limits": Resources(user_slots=4, cpu=200)})

    told = records(beat(host, 90, allocations=with_last(host, 60_000)))

    assert [one.reason for one in told] == [PreemptionReason.PREEMPTION, PreemptionReason.RESOURCE_LIMITS_VIOLATED]
    assert [one.exempt_time_ms for one in told] == [60_000, 0]


def test_a_graceful_operation_is_asked_for_no_job_that_began_lately() -> None:
    host = on_a_full_node(MINUTE, preemption_mode=PreemptionMode.GRACEFUL)

    assert beat(host, 59).take_back == []
    assert {one.reason for one in records(beat(host, 60))} == {PreemptionReason.GRACEFUL_PREEMPTION}


def test_what_is_only_observed_waits_as_long() -> None:
    host = on_a_full_node(MINUTE, pool={"preemption": "observe"})

    beat(host, 59)
    assert host.engine.answers.decided.observed == []
    beat(host, 60)
    assert host.engine.answers.decided.observed


def test_the_stages_pause_on_a_node_as_long_as_ever_where_nothing_may_be_taken_yet() -> None:
    host = on_a_full_node(MINUTE)
    beat(host, 50)

    beat(host, 52, after_s=2)
    assert host.engine.answers.decided.stages == []
    beat(host, 55, after_s=4)
    assert host.engine.answers.decided.stages != []


def test_whoever_waits_for_that_is_told_how_many_there_are_and_when_the_first_may_be_taken() -> None:
    host = on_a_full_node(MINUTE)
    beat(host, 15)
    host.now_s += 5

    told = explained(host, "poor")

    (nearest,) = told.tries.nearest
    assert (told.tries.short, nearest.candidates, nearest.exempt, nearest.exempt_ms) == (1, 0, 2, 40_000)
    (cause,) = [one for one in told.causes if one.kind == "places_exempt"]
    assert cause.words == (
        "it starves, and 2 allocations on 1 node cannot be preempted yet: jobs there have run for less than their pool's "
        "preemption_exempt_time; the first may be preempted in 40 s"
    )
    assert cause.cure.startswith("wait until the jobs have run that long, or set a shorter preemption_exempt_time")
    assert "places_exempt" not in [one.kind for one in explained(host, "rich").causes]


def test_nobody_is_told_to_wait_for_that_who_got_a_place_or_needs_more_than_there_will_be() -> None:
    host = on_a_full_node(MINUTE)
    beat(host, 15)
    host.now_s += 46
    assert "places_exempt" not in [one.kind for one in explained(host, "poor").causes], "the time is over"

    host = on_a_full_node(MINUTE)
    beat(host, 15)
    host.engine.on_options(TreeOptions(pause_starts=True), host.now)
    beat(host, 16, after_s=1, total=cores(8, slots=8))
    assert [one.kind for one in explained(host, "poor").causes] == ["starts_paused"], "there is room"

    host = Host(an_operation("poor"), an_operation("late"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    host.next_beat()
    assert "places_exempt" not in [one.kind for one in explained(host, "poor").causes], "no such time is set"
