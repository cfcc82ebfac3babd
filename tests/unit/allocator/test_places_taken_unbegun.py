"""Places that are preempted before their job began: the log tells of them as of those whose job ran."""

from __future__ import annotations

import msgspec

from headrace.ids import AllocationId, OperationId
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobEnd, JobResult, JobSlot
from headrace.wire.ledger import ReportedEnd
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace_allocator.effects import Report
from tests.support.allocating import Desk, an_operation, cores
from tests.unit.allocator.test_preemption import FOUR, Host

#: Resources of the node since it shrank.
THREE = cores(3, slots=4)


def told(host: Desk, report: AllocationReport, others: list[AllocationReport]) -> list[JobEnd]:
    """The ends by preemption that the ledger is told when the node shows this beside others."""
    _, effects = host.beat("n", allocations=[*others, report], total=THREE)
    ends = [one.end for effect in effects if isinstance(effect, Report) for one in effect.ends]
    return [end for end in ends if end.preemption is not None]


def a_waiting_victim() -> tuple[Host, AllocationReport, PreemptionRecord]:
    """A host that is told to give up an allocation whose job had not begun, and how that ends."""
    host = Host()
    waiting = msgspec.structs.replace(
        host.picture()[3], state=AllocationState.WAITING, job=None, unstarted=list(host.starts[3].slots)
    )
    # Nothing starts on a node where something waits, but a node that shrank is repaired.
    host.next_beat(allocations=[*host.picture()[:3], waiting])
    host.next_beat(allocations=[*host.picture()[:3], waiting], total=THREE)
    taken = host.next_beat(allocations=[*host.picture()[:3], waiting], total=THREE, after_s=16).take_back
    record = taken[0].preemption
    assert [one.allocation for one in taken] == [host.starts[3].allocation]
    assert record is not None
    ended = msgspec.structs.replace(waiting, state=AllocationState.ENDED, preemption=record)
    return host, ended, record


def test_the_ledger_is_told_of_a_place_that_was_taken_before_its_job_began() -> None:
    host, ended, record = a_waiting_victim()

    (end,) = told(host, ended, host.picture()[:3])

    assert (end.index, end.attempt, end.result, end.started_at_ms) == (3, 1, JobResult.ABORTED, 0)
    assert (end.preemption, end.reason) == (record, "its allocation was preempted before it began")
    assert end.ended_at_ms == host.now.wall_ms
    assert end.start == host.starts[3].record is not None


def test_it_is_told_once_and_the_job_waits_for_the_ledger() -> None:
    host, ended, _ = a_waiting_victim()
    ready = host.operation("rich").slots.ready_count
    (end,) = told(host, ended, host.picture()[:3])

    assert told(host, ended, host.picture()[:3]) == []
    assert host.operation("rich").slots.ready_count == ready
    host.engine.on_recorded([ReportedEnd(host.node("n").record.node, end)], host.now)
    assert told(host, ended, host.picture()[:3]) == []


def test_an_allocator_that_did_not_order_it_tells_of_it_too() -> None:
    desk = Desk({"n": FOUR}, recovering=True)
    desk.start(an_operation("rich", term=4))
    record = PreemptionRecord(PreemptionReason.PREEMPTION, OperationId("poor"))
    report = AllocationReport(
        AllocationId("4-1"), OperationId("rich"), AllocationState.ENDED, cores(1), None, [JobSlot(2)], preemption=record
    )

    (end,) = told(desk, report, [])

    assert (end.index, end.result, end.preemption) == (2, JobResult.ABORTED, record)
    assert told(desk, report, []) == []


def test_jobs_behind_one_that_ran_are_ready_again_and_nothing_is_told_of_them() -> None:
    host, ended, _ = a_waiting_victim()
    ready = host.operation("rich").slots.ready_count

    assert told(host, msgspec.structs.replace(ended, jobs_ended=1), host.picture()[:3]) == []
    assert host.operation("rich").slots.ready_count == ready + 1
