"""The runner's words against the books: what is adopted, told again, lost."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest

from headrace.ids import AllocationId
from headrace.resources import Resources
from headrace.wire.heartbeat import AllocationState, Forget, JobKey, JobResult, JobSlot
from headrace_agent.allocations.allocation import TRANSITIONS, AllocationEvent
from headrace_agent.effects import LogRecord, Reconnect, SendToRunner, Trouble
from headrace_agent.runner.protocol import Interrupt, KeptJob, NodeLease, Run, Started
from tests.support.agent_desk import OPERATION, Desk, end_of, extend, job, kept, spec, start, take_back


def run_of(desk: Desk, key: JobKey) -> Run:
    return next(run for run in desk.told(Run) if run.job == key)


def test_the_table_of_an_allocation_leads_only_forwards() -> None:
    order = [AllocationState.WAITING, AllocationState.RUNNING, AllocationState.CLOSING, AllocationState.ENDED]
    for state, event in product(AllocationState, AllocationEvent):
        after = TRANSITIONS.get((state, event))

        assert after is None or order.index(after) >= order.index(state)
        if state is AllocationState.ENDED:
            assert after in (None, AllocationState.ENDED)
        if event is AllocationEvent.CLOSE:
            assert after is not None, "whatever the state, it can be taken back"
            assert after is not AllocationState.RUNNING


def test_how_long_a_job_has_run_is_told_by_the_clock_that_never_jumps() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    started = desk.started(job(0))
    desk.answer(next_ms=2_500)

    desk.advance(2_500)

    report = desk.report("a")
    assert report is not None
    assert report.job is not None
    assert (started.started_at_ms, 2_500) == (report.job.started_at_ms, report.job.ran_ms(desk.beat.boottime_ms))


def test_ended_jobs_and_their_time_are_counted_for_their_allocation() -> None:
    desk = Desk()
    desk.turn(start("a", [0, 1]))
    desk.started(job(0))
    desk.answer(next_ms=10_000)
    desk.advance(300)
    desk.ended(end_of(job(0)))

    report = desk.report("a")

    assert report is not None
    assert (report.jobs_ended, report.jobs_ended_ms) == (1, 300)


def test_an_end_that_is_told_twice_counts_once() -> None:
    desk = Desk()
    desk.turn(start("a", [0, 1, 2]))
    desk.ended(end_of(job(0)))

    desk.ended(end_of(job(0)))

    assert [job(0), job(1)] == desk.runs


def test_a_later_life_of_the_agent_adopts_what_the_runner_has() -> None:
    former = Desk()
    former.turn(start("a", [0, 1, 2], cpu=300), start("b", [9]))
    running = [kept(former, job(0)), kept(former, job(9))]

    desk = Desk(incarnation="life-2", picture=False)
    desk.picture(running, ended=[end_of(job(7), "c")])
    desk.advance(500)

    told = {found.id: found for found in desk.beat.allocations}
    assert {"a", "b"} == told.keys()
    assert (AllocationState.RUNNING, Resources(user_slots=1, cpu=300), []) == (
        told[AllocationId("a")].state,
        told[AllocationId("a")].resources,
        told[AllocationId("a")].unstarted,
    )
    assert [job(7)] == [end.key for end in desk.beat.ends]
    assert desk.runs == []


def test_adopted_jobs_hold_their_room_and_bring_the_spec_of_their_operation() -> None:
    former = Desk(cpu=200)
    former.turn(start("a", [0], cpu=200))
    desk = Desk(cpu=200, incarnation="life-2", picture=False)
    desk.picture([kept(former, job(0))])
    desk.enrolled()

    desk.turn(start("b", [1], with_spec=False))
    waiting = list(desk.runs)
    desk.ended(end_of(job(0)))

    assert waiting == []
    assert [job(1)] == desk.runs


def test_a_job_whose_note_cannot_be_read_is_adopted_by_what_the_runner_knows() -> None:
    former = Desk()
    former.turn(start("a", [0], cpu=150))
    run = run_of(former, job(0))
    strange = Run(run.job, run.allocation, run.argv, {}, "", 150, 7, note=b"\xff")
    desk = Desk(incarnation="life-2", picture=False)

    desk.picture([KeptJob(strange, Started(run.job, 5, 1, 1))])
    desk.advance(500)

    assert [Resources(user_slots=1, cpu=150, memory=7)] == [found.resources for found in desk.beat.allocations]


def adopted_without_note(*, runs_ahead: bool) -> Desk:
    """The job `a` of a former life, of whose command nothing is known any more."""
    former = Desk()
    former.turn(start("a", [0]))
    found = kept(former, job(0))
    strange = msgspec.structs.replace(found, run=msgspec.structs.replace(found.run, note=b"\xff"))
    desk = Desk(incarnation="life-2", picture=False)
    desk.picture([strange], runs_ahead=runs_ahead)
    desk.enrolled()
    return desk


@pytest.mark.parametrize("runs_ahead", [True, False])
def test_further_jobs_of_an_adopted_one_whose_note_cannot_be_read_are_given_back(runs_ahead: bool) -> None:
    """Nobody here knows their command. What runs goes on to its end."""
    desk = adopted_without_note(runs_ahead=runs_ahead)

    desk.turn(extend("a", [1, 2]))
    report = desk.report("a")
    assert report is not None
    assert (report.state, report.job is not None) == (AllocationState.CLOSING, True)
    assert [JobSlot(1), JobSlot(2)] == report.unstarted
    assert report.given_back_for == (
        "the agent does not know the command of its operation, because the note of its job cannot be read"
    )
    assert "given back" in desk.notes

    desk.ended(end_of(job(0)))
    desk.turn()
    report = desk.report("a")
    assert report is not None
    assert (report.state, report.unstarted) == (AllocationState.ENDED, [JobSlot(1), JobSlot(2)])
    assert (desk.runs, desk.ahead, desk.told(Interrupt)) == ([], [], [])


def test_an_adopted_job_whose_note_cannot_be_read_goes_on_with_others_once_their_command_came() -> None:
    desk = adopted_without_note(runs_ahead=True)

    desk.turn(start("b", [5]), extend("a", [1]))

    report = desk.report("a")
    assert report is not None
    assert (report.state, report.given_back_for) == (AllocationState.RUNNING, "")
    assert [job(1)] == desk.ahead


def test_a_job_that_the_runner_never_confirmed_is_told_again_to_the_same_runner() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))

    desk.do(desk.engine.on_trouble(Trouble.RUNNER_AWAY, "gone", desk.now()))
    desk.picture()

    assert [job(0), job(0)] == desk.runs


def test_a_job_that_another_runner_does_not_know_is_lost() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))

    desk.picture(pid=78)
    told = desk.turn()

    assert [job(0)] == desk.runs
    assert [(job(0), JobResult.LOST)] == [(end.key, end.result) for end in told.ends]


def test_a_confirmed_job_that_the_runner_does_not_know_any_more_is_lost() -> None:
    desk = Desk()
    desk.turn(start("a", [0, 1]))
    desk.started(job(0))

    desk.picture()

    assert [job(0), job(1)] == desk.runs
    assert [(job(0), JobResult.LOST)] == [(end.key, end.result) for end in desk.turn().ends]


def test_a_job_that_was_lost_and_runs_after_all_is_ended() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    running = kept(desk, job(0))
    desk.picture(pid=78)

    desk.picture([running], pid=79)

    assert [(job(0), 0)] == [(order.job, order.timeout_ms) for order in desk.told(Interrupt)]


def test_a_job_that_was_reported_lost_is_not_adopted_when_its_allocation_is_forgotten() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    running = kept(desk, job(0))
    desk.picture(pid=78)
    desk.turn()
    desk.turn(forget=Forget(allocations=[AllocationId("a")]))

    desk.picture([running], pid=79)

    assert [(order.job, order.timeout_ms) for order in desk.told(Interrupt)] == [(job(0), 0)]
    assert not desk.engine.held.by_id


def test_a_cap_on_logs_is_one_that_the_runner_can_read() -> None:
    desk = Desk()
    endless = msgspec.structs.replace(spec(), log_cap_bytes=2**63)

    desk.turn(start("a", [0], told=endless))

    assert [run.log_cap_bytes for run in desk.told(Run)] == [2**60]


def test_the_node_keeps_no_more_of_a_job_than_its_own_largest_cap() -> None:
    desk = Desk(largest_log_cap_bytes=1000)

    desk.turn(start("a", [0], told=msgspec.structs.replace(spec(), log_cap_bytes=1001)))
    desk.turn(
        start("b", [1], told=msgspec.structs.replace(spec("operation-2"), log_cap_bytes=999), operation="operation-2")
    )
    desk.turn(start("c", [2], told=spec("operation-3"), operation="operation-3"))

    assert [run.log_cap_bytes for run in desk.told(Run)] == [1000, 999, 0]


def test_an_interruption_that_the_runner_may_have_missed_is_told_again() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.started(job(0))
    desk.turn(take_back("a", timeout_ms=400))

    desk.picture([kept(desk, job(0))])

    assert [order.timeout_ms for order in desk.told(Interrupt)] == [400, 400]


def test_the_next_job_that_starts_by_a_picture_is_told_once() -> None:
    desk = Desk()
    desk.turn(start("a", [0, 1]))
    desk.started(job(0))

    desk.picture(ended=[end_of(job(0))])

    assert [job(0), job(1)] == desk.runs


def test_while_the_runner_is_away_its_jobs_stay_in_the_picture_and_starts_are_given_back() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.do(desk.engine.on_trouble(Trouble.RUNNER_AWAY, "the runner is gone", desk.now()))

    desk.turn()
    told = desk.turn(start("b", [1]))

    assert [(a.id, a.state) for a in told.allocations] == [("a", AllocationState.RUNNING), ("b", AllocationState.ENDED)]
    assert told.trouble == "the runner is gone"


def test_the_start_of_a_job_that_nobody_ordered_makes_the_agent_look_again() -> None:
    desk = Desk()

    desk.started(job(3))

    assert [Reconnect()] == desk.all(Reconnect)


def test_an_end_that_was_recorded_and_is_told_again_is_reported_again_until_it_is_forgotten() -> None:
    """The acknowledgement was lost on its way to the runner."""
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.ended(end_of(job(0)))
    desk.turn()
    desk.turn(forget=Forget(ends=[job(0)], allocations=[AllocationId("a")]))

    desk.picture(ended=[end_of(job(0))])
    desk.turn()
    told = desk.turn()

    assert [job(0)] == [end.key for end in told.ends]
    assert [job(0)] == desk.runs


def test_the_log_follows_an_operation_by_its_id() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.started(job(0))
    desk.ended(end_of(job(0)))

    notes = [note for note in desk.all(LogRecord) if note.fields.get("operation") == OPERATION]
    assert [note.event for note in notes] == [
        "allocation given",
        "starting job",
        "job started",
        "job ended",
        "allocation ended",
    ]
    assert all("allocation" in note.fields for note in notes)
    assert all({"index", "attempt"} <= note.fields.keys() for note in notes[1:4])


def test_a_new_runner_is_told_the_lease_before_any_job() -> None:
    desk = Desk()
    desk.turn(start("a", [0, 1]))
    [lease] = desk.told(NodeLease)
    before = len(desk.effects)

    desk.do(desk.engine.on_trouble(Trouble.RUNNER_AWAY, "killed", desk.now()))
    desk.picture(ended=[end_of(job(0), result=JobResult.LOST)], pid=78)

    told = [effect.message for effect in desk.effects[before:] if isinstance(effect, SendToRunner)]
    assert [lease, run_of(desk, job(1))] == told


def test_a_runner_whose_agent_has_no_lease_yet_is_told_none() -> None:
    desk = Desk()

    assert desk.told(NodeLease) == []
