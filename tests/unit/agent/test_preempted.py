"""What an agent does with an allocation that is preempted, and what it remembers of it."""

from __future__ import annotations

import msgspec

from headrace.ids import AllocationId, OperationId
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, encode
from headrace.wire.heartbeat import MOST_RECORDS_PER_HEARTBEAT, AllocationState, Forget
from headrace.wire.preemption import InterruptSignal, PreemptionReason, PreemptionRecord
from headrace_agent.runner.effects import About, SendToAgent
from headrace_agent.runner.engine import RunnerEngine
from headrace_agent.runner.protocol import FullReport, Interrupt, NodeLease, Run
from tests.support.agent_desk import Desk, end_of, job, kept, spec, start, take_back
from tests.support.clocks import at

RECORD = PreemptionRecord(PreemptionReason.AGGRESSIVE_PREEMPTION, OperationId("wants-it"), False, 7, 3_000, 1, 0.5)
OTHER = PreemptionRecord(PreemptionReason.RESOURCE_OVERCOMMIT)


def test_the_record_of_a_preemption_is_told_until_the_allocation_is_forgotten() -> None:
    desk = Desk()
    desk.turn(start("a", [0, 1]), start("b", [2]))

    desk.turn(take_back("a", record=RECORD))
    closing = desk.report("a")
    desk.turn(take_back("a"))
    told_again = desk.report("a")
    desk.ended(end_of(job(0)))
    desk.turn()
    ended = desk.report("a")

    for report, state in ((closing, "closing"), (told_again, "closing"), (ended, "ended")):
        assert report is not None
        assert (report.state, report.preemption) == (state, RECORD)
    other = desk.report("b")
    assert other is not None
    assert other.preemption is None
    desk.turn(forget=Forget(allocations=[ended.id] if ended else []))
    assert desk.report("a") is None


def test_the_newest_record_is_told() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.turn(take_back("a", record=RECORD))

    desk.turn(take_back("a", record=OTHER))

    report = desk.report("a")
    assert report is not None
    assert report.preemption == OTHER


def test_a_waiting_allocation_that_is_preempted_ends_with_its_record() -> None:
    desk = Desk(cpu=100)
    desk.turn(start("a", [0]), start("b", [1]))

    desk.turn(take_back("b", record=RECORD))

    report = desk.report("b")
    assert report is not None
    assert (report.state, report.preemption) == (AllocationState.ENDED, RECORD)


def test_of_very_many_preempted_allocations_the_last_are_told_without_a_record_until_others_are_forgotten() -> None:
    desk, names = Desk(cpu=100), [f"a{number:03}" for number in range(MOST_RECORDS_PER_HEARTBEAT + 1)]
    desk.turn(*(start(name, [index]) for index, name in enumerate(names)))

    desk.turn(*(take_back(name, record=RECORD) for name in names))

    assert [one.preemption for one in desk.beat.allocations] == [*[RECORD] * MOST_RECORDS_PER_HEARTBEAT, None]
    desk.turn(forget=Forget(allocations=[AllocationId("a001")]))
    assert {one.preemption for one in desk.beat.allocations} == {RECORD}


def test_an_interrupted_job_of_a_former_life_is_closing_and_still_says_what_it_was_preempted_for() -> None:
    former = Desk()
    former.turn(start("a", [0]), start("b", [1]), start("c", [2]))
    former.turn(take_back("a", record=RECORD), take_back("b"))

    desk = Desk(incarnation="life-2", picture=False)
    desk.picture([kept(former, job(0)), kept(former, job(1)), kept(former, job(2))])
    desk.advance(500)

    told = [(report.id, report.state, report.preemption) for report in desk.beat.allocations]
    closing = AllocationState.CLOSING
    assert told == [("a", closing, RECORD), ("b", closing, None), ("c", AllocationState.RUNNING, None)]
    desk.ended(end_of(job(0)))
    assert (desk.engine.held.by_id[told[0][0]].state, desk.runs) == (AllocationState.ENDED, [])


def test_an_adopted_job_is_not_asked_again_by_the_same_order_and_earlier_by_an_earlier_one() -> None:
    former = Desk()
    former.turn(start("a", [0]))
    former.turn(take_back("a", 3_000, RECORD))
    desk = Desk(incarnation="life-2", picture=False)
    desk.picture([kept(former, job(0))])
    desk.enrolled()

    desk.turn(take_back("a", 3_000, RECORD))
    same = list(desk.told(Interrupt))
    desk.turn(take_back("a", 400, RECORD))

    assert same == []
    assert [(order.job, order.timeout_ms) for order in desk.told(Interrupt)] == [(job(0), 400)]


def test_a_job_that_closes_already_says_after_a_restart_what_it_was_preempted_for() -> None:
    """It was interrupted for another reason before, with an earlier deadline, which stays."""
    former = Desk()
    former.turn(start("a", [0]))
    former.turn(take_back("a", 400))
    former.turn(take_back("a", 3_000, RECORD))
    former.turn(take_back("a", 3_000, RECORD))
    told = former.told(Interrupt)
    assert [order.timeout_ms for order in told] == [400, 400]

    runner = RunnerEngine()
    runner.on_lease(NodeLease(2**62), at(0))
    runner.on_run(former.told(Run)[0], at(0))
    runner.on_started(job(0), 500, at(0))
    for order in told:
        runner.on_interrupt(order, at(0.1))
    (picture,) = runner.on_hello(About("none", "", 77), at(0.2)).effects
    assert isinstance(picture, SendToAgent)
    assert isinstance(picture.message, FullReport)

    desk = Desk(incarnation="life-2", picture=False)
    desk.picture(picture.message.running)
    desk.advance(500)

    assert [(one.state, one.preemption) for one in desk.beat.allocations] == [(AllocationState.CLOSING, RECORD)]
    (kept_job,) = picture.message.running
    assert kept_job.interrupted is not None
    assert kept_job.interrupted.timeout_ms == 300


def test_a_note_that_cannot_be_read_costs_the_record_only() -> None:
    former = Desk()
    former.turn(start("a", [0]))
    former.turn(take_back("a", record=RECORD))
    running = kept(former, job(0))
    assert running.interrupted is not None
    strange = msgspec.structs.replace(running.interrupted, note=b"\xff")

    desk = Desk(incarnation="life-2", picture=False)
    desk.picture([msgspec.structs.replace(running, interrupted=strange)])
    desk.advance(500)

    assert [(one.state, one.preemption) for one in desk.beat.allocations] == [(AllocationState.CLOSING, None)]


def test_the_runner_learns_whether_a_job_understands_its_signal_and_which() -> None:
    desk = Desk()
    told = msgspec.structs.replace(spec(), interruptible=True, interrupt_signal=InterruptSignal.SIGUSR2)

    desk.turn(start("a", [0], told=told), start("b", [1], operation="operation-2"))

    runs = [(run.interruptible, run.interrupt_signal) for run in desk.told(Run)]
    assert runs == [(True, InterruptSignal.SIGUSR2), (False, InterruptSignal.SIGTERM)]


def test_the_runner_learns_the_time_limit_of_a_job_and_the_time_until_its_kill() -> None:
    desk = Desk()
    told = msgspec.structs.replace(spec(timeout_ms=3_000), time_limit_ms=7_000)

    desk.turn(start("a", [0], told=told), start("b", [1], operation="operation-2"))

    assert [run.time_limit_ms for run in desk.told(Run)] == [7_000, None]
    assert desk.told(Run)[0].interruption_timeout_ms == 3_000


def test_however_many_are_preempted_at_once_the_heartbeat_stays_a_message() -> None:
    desk = Desk(cpu=1_000_000)
    names = [f"{number:036}" for number in range(1_300)]
    for first in range(0, len(names), 500):
        desk.turn(*(start(name, [int(name)], cpu=1) for name in names[first : first + 500]))
    longest = msgspec.structs.replace(RECORD, beneficiary=OperationId("b" * 64), fair_share=(0.1,) * 5)

    told = desk.turn(*(take_back(name, record=longest) for name in names))

    assert len(encode(told)) <= LARGEST_MESSAGE_BYTES
    assert sum(report.preemption is not None for report in told.allocations) >= 100
    assert len(told.allocations) == len(names)
