"""Preemption is watched: it waits while shares are old, and a job that loses its place again and again is an alarm."""

from __future__ import annotations

import msgspec

from headrace.ids import AllocationId, OperationId
from headrace.wire.heartbeat import JobEnd, JobKey, JobResult
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace_allocator.effects import Alarm
from headrace_allocator.preemption.audit.alarms import PreemptionAlarms
from tests.support.allocating import Desk, an_operation, drawn_before
from tests.support.clocks import at
from tests.unit.allocator.test_preemption import FOUR, Host, a_share, rich, used


def a_host_with_old_shares(age_s: float) -> Host:
    """`poor` starves, and fair_share has told nothing since."""
    host = Host(an_operation("poor"))
    host.facts.timing = msgspec.structs.replace(host.facts.timing, shares_count_for_s=10.0)
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    host.now_s += age_s
    return host


def test_nobody_loses_a_place_by_old_shares() -> None:
    orders = a_host_with_old_shares(10.1).next_beat(after_s=0)
    assert (orders.start, orders.take_back) == ([], [])

    assert len(a_host_with_old_shares(10.0).next_beat(after_s=0).take_back) == 1


def test_a_word_of_fair_share_with_nothing_new_keeps_shares_young() -> None:
    host = a_host_with_old_shares(10.1)
    host.tell([], total=FOUR)
    assert len(host.next_beat(after_s=0).take_back) == 1


def test_free_room_is_given_out_by_old_shares() -> None:
    host = a_host_with_old_shares(10.1)
    orders = host.next_beat(after_s=0, allocations=host.picture()[:3])
    assert [start.operation for start in orders.start] == ["poor"]


def test_old_shares_are_told_once_and_to_those_who_ask() -> None:
    host = a_host_with_old_shares(9.0)
    assert alarms_of(host, 0.0) == []
    assert alarms_of(host, 1.1) == ["fair_share publishes no shares: nothing is preempted"]
    assert alarms_of(host, 1.0) == []
    assert host.reasons("poor")[0] == (
        "fair_share has published no shares for 11 s; nothing is preempted until it publishes shares again"
    )
    host.tell([], total=FOUR)
    assert alarms_of(host, 1.0) == []
    assert len(alarms_of(host, 10.1)) == 1


def alarms_of(host: Host, after_s: float) -> list[str]:
    host.now_s += after_s
    return [one.what for one in host.tick(host.now_s) if isinstance(one, Alarm)]


def test_a_job_that_is_preempted_three_times_an_hour_is_an_alarm() -> None:
    alarms, job = PreemptionAlarms(), JobKey(OperationId("o"), 7, 1)
    other = JobKey(OperationId("o"), 8, 1)

    assert alarms.on_preempted([job, other], at(0)) == []
    assert alarms.on_preempted([msgspec.structs.replace(job, attempt=2)], at(1_800)) == []
    told = alarms.on_preempted([msgspec.structs.replace(job, attempt=3)], at(3_600))
    assert [(one.about["operation"], one.about["index"], one.about["times"]) for one in told] == [("o", 7, 3)]
    assert (alarms.repeated, alarms.alarmed) == (2, 1)
    # The first of them is more than an hour ago: the fourth is the third of its hour.
    assert len(alarms.on_preempted([job], at(3_601))) == 1
    assert alarms.on_preempted([job], at(9_000)) == []


def test_a_job_counts_as_preempted_once_it_ended_by_that() -> None:
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    victim = host.next_beat().take_back[0].allocation
    assert host.engine.alarms.figures()[0].value == 0

    slot = host.starts[3].slots[0]
    end = JobEnd(OperationId("rich"), slot.index, slot.attempt, AllocationId(victim), JobResult.ABORTED)
    host.engine.alarms.on_preempted([end.key], host.now)
    gone = [one for one in host.picture() if one.id != victim]
    host.next_beat(after_s=1, allocations=gone, ends=[end])
    host.next_beat(after_s=1, allocations=gone, ends=[end])

    assert host.engine.alarms.repeated == 1
    assert used(host, "rich") == 3


def test_an_operation_is_told_how_often_its_jobs_were_preempted_within_the_hour() -> None:
    alarms, job = PreemptionAlarms(), JobKey(OperationId("a"), 3, 1)
    alarms.on_preempted([job, JobKey(OperationId("b"), 3, 1)], at(0))
    alarms.on_preempted([job, JobKey(OperationId("a"), 4, 1)], at(10))

    assert alarms.of(OperationId("a"), at(20)) == {3: 2, 4: 1}
    assert alarms.of(OperationId("a"), at(3_605)) == {3: 1, 4: 1}
    assert alarms.of(OperationId("a"), at(3_611)) == {}
    assert alarms.of(OperationId("c"), at(0)) == {}


def test_what_a_former_allocator_preempted_counts_when_its_end_tells_so() -> None:
    host = Desk({"n": FOUR}, recovering=True)
    host.start(drawn_before(rich()), an_operation("poor"))
    record = PreemptionRecord(PreemptionReason.PREEMPTION, OperationId("poor"))
    end = JobEnd(OperationId("rich"), 7, 1, AllocationId("f-1"), JobResult.ABORTED, preemption=record)
    done = msgspec.structs.replace(end, index=8, result=JobResult.COMPLETED)
    lost = msgspec.structs.replace(end, index=9, preemption=None)
    host.beat("n", ends=[end, done, lost])
    host.beat("n", ends=[end, done, lost])

    assert host.engine.alarms.of(OperationId("rich"), host.now) == {7: 1}
