"""Jobs that are ahead at the runner: it goes on without being asked, and what it may still start is nobody else's."""

from __future__ import annotations

from headrace.wire.heartbeat import AllocationState, JobResult, JobSlot
from headrace.wire.nodes import StopMode
from headrace_agent.effects import Reconnect
from headrace_agent.runner.protocol import Interrupt, KeptJob, Recall, Run, RunAhead, Started
from headrace_agent.starts_and_ends import MOST_AHEAD
from tests.support.agent_desk import Desk, end_of, extend, job, start, take_back


def ahead_desk(jobs: int = 3) -> Desk:
    """One allocation whose first job runs, at a runner that takes jobs ahead."""
    desk = Desk()
    desk.picture(runs_ahead=True)
    desk.turn(start("a", range(jobs)))
    desk.started(job(0))
    return desk


def runs_now(desk: Desk, index: int) -> KeptJob:
    """A job as the runner has it, whichever way it was told to start it."""
    orders = [*desk.told(Run), *(order.run for order in desk.told(RunAhead))]
    run = next(run for run in orders if run.job == job(index))
    return KeptJob(run, Started(job(index), 500, desk.now().wall_ms, desk.now_ns))


def slots_of(desk: Desk) -> list[int]:
    report = desk.report("a")
    assert report is not None
    return [slot.index for slot in report.unstarted]


def test_a_runner_that_does_not_say_that_it_takes_jobs_ahead_gets_none() -> None:
    desk = Desk()

    desk.turn(start("a", [0, 1, 2]))

    assert ([job(0)], []) == (desk.runs, desk.ahead)


def test_the_runner_has_the_next_jobs_and_gets_more_before_it_has_none() -> None:
    desk = ahead_desk(20)
    given = len(desk.ahead)

    for index in range(MOST_AHEAD // 2):
        desk.ended(end_of(job(index)), followed_by=job(index + 1))

    assert given == MOST_AHEAD
    assert [job(index) for index in range(1, 1 + MOST_AHEAD + MOST_AHEAD // 2)] == desk.ahead
    assert [job(0)] == desk.runs


def test_a_job_that_the_runner_went_on_with_is_told_as_the_job_of_its_allocation() -> None:
    desk = ahead_desk()

    desk.ended(end_of(job(0)), followed_by=job(1))
    desk.started(job(1))
    beat = desk.turn()

    report = desk.report()
    assert report is not None
    assert report.job is not None
    assert (report.job.index, slots_of(desk)) == (1, [2])
    assert [job(0)] == [end.key for end in beat.ends]


def test_slots_that_come_later_are_told_ahead_at_once() -> None:
    desk = ahead_desk(2)

    desk.turn(extend("a", [7, 8]))

    assert [job(1), job(7), job(8)] == desk.ahead


def test_nothing_is_given_back_before_the_runner_says_that_it_will_not_start_it() -> None:
    desk = ahead_desk()

    desk.turn(take_back("a"))
    before = desk.report()
    desk.recalled()
    desk.turn()

    after = desk.report()
    assert before is not None
    assert after is not None
    assert (before.state, after.state) == (AllocationState.RUNNING, AllocationState.CLOSING)
    assert [JobSlot(1), JobSlot(2)] == after.unstarted
    assert [job(0)] == [order.job for order in desk.told(Interrupt)]


def test_an_allocation_that_is_told_to_close_twice_is_recalled_once_and_the_shorter_time_holds() -> None:
    desk = ahead_desk()

    desk.turn(take_back("a", timeout_ms=3_000))
    desk.turn(take_back("a", timeout_ms=1_000))
    desk.turn(take_back("a", timeout_ms=1_000))
    desk.recalled()

    assert len(desk.told(Recall)) == 1
    assert [order.timeout_ms for order in desk.told(Interrupt)] == [3_000, 1_000]


def test_a_job_that_began_while_its_allocation_was_recalled_is_the_one_that_is_interrupted() -> None:
    desk = ahead_desk()
    desk.turn(take_back("a"))

    desk.ended(end_of(job(0)), followed_by=job(1))
    desk.recalled()
    desk.turn()

    assert [job(1)] == [order.job for order in desk.told(Interrupt)]
    assert slots_of(desk) == [2]


def test_an_allocation_whose_job_ended_while_it_was_recalled_is_over() -> None:
    desk = ahead_desk()
    desk.turn(take_back("a"))

    desk.ended(end_of(job(0)))
    desk.recalled()
    desk.turn()

    report = desk.report()
    assert report is not None
    assert (report.state, slots_of(desk)) == (AllocationState.ENDED, [1, 2])
    assert not desk.told(Interrupt)


def test_the_runner_that_lost_what_was_ahead_is_asked_to_start_the_next_job_and_gets_the_rest_again() -> None:
    desk = ahead_desk()

    desk.ended(end_of(job(0)))

    assert [job(0), job(1)] == desk.runs
    assert [job(1), job(2), job(2)] == desk.ahead


def test_what_began_and_ended_while_nobody_listened_is_caught_up_with() -> None:
    desk = ahead_desk(5)

    desk.picture([runs_now(desk, 2)], [end_of(job(0)), end_of(job(1))], runs_ahead=True)
    beat = desk.turn()

    report = desk.report()
    assert report is not None
    assert report.job is not None
    assert (report.job.index, slots_of(desk)) == (2, [3, 4])
    assert {job(0), job(1)} == {end.key for end in beat.ends}
    assert [job(0)] == desk.runs
    assert [job(3), job(4)] == desk.ahead[-2:]


def test_what_ended_while_nobody_listened_is_not_started_again() -> None:
    desk = ahead_desk()

    desk.picture(ended=[end_of(job(1)), end_of(job(0))], runs_ahead=True)

    assert [job(0), job(2)] == desk.runs


def test_a_recall_that_was_lost_with_the_connection_is_as_good_as_answered() -> None:
    desk = ahead_desk()
    desk.turn(take_back("a"))

    desk.picture([runs_now(desk, 0)], runs_ahead=True)
    desk.turn()

    report = desk.report()
    assert report is not None
    assert AllocationState.CLOSING is report.state
    assert [job(0)] == [order.job for order in desk.told(Interrupt)]


def test_a_runner_that_goes_on_with_what_nobody_gave_it_is_looked_at_anew() -> None:
    desk = ahead_desk()

    desk.ended(end_of(job(0), result=JobResult.FAILED), followed_by=job(9))

    assert [Reconnect()] == desk.all(Reconnect)
    assert [job(0)] == desk.runs


def test_a_job_that_was_told_to_be_over_is_not_followed() -> None:
    desk = ahead_desk()
    desk.ended(end_of(job(1)))

    desk.ended(end_of(job(0)), followed_by=job(1))
    desk.turn()

    assert [Reconnect()] == desk.all(Reconnect)
    assert slots_of(desk) == [2]


def test_an_agent_that_leaves_its_jobs_running_first_gives_back_what_they_will_not_be_followed_by() -> None:
    desk = ahead_desk()
    desk.do(desk.engine.on_stop(StopMode.LEAVE, desk.now()))
    desk.turn()

    waits = not desk.left
    desk.recalled()
    report = desk.turn().allocations[0]
    desk.answer()

    assert waits
    assert (AllocationState.CLOSING, [JobSlot(1), JobSlot(2)]) == (report.state, report.unstarted)
    assert desk.left
    assert not desk.told(Interrupt)


def test_an_agent_that_leaves_does_not_wait_for_a_frozen_runner() -> None:
    desk = ahead_desk()
    desk.do(desk.engine.on_stop(StopMode.LEAVE, desk.now()))

    for _ in range(10):
        if not desk.left:
            desk.answer() if desk.engine.pulse.in_flight else desk.advance(1_000)

    assert desk.left
