"""How an agent stops: what becomes of its jobs, and when it may go."""

from __future__ import annotations

from headrace.wire.heartbeat import AllocationState, Forget, HeartbeatReason, JobResult, JobSlot, NodeState
from headrace.wire.nodes import StopMode
from headrace_agent.effects import Leave, SendToRunner, Trouble
from headrace_agent.runner.protocol import EndAll, Interrupt
from tests.support.agent_desk import Desk, end_of, job, kept, spec, start


def stop(desk: Desk, mode: StopMode) -> None:
    desk.do(desk.engine.on_stop(mode, desk.now()))


def busy() -> Desk:
    """Two jobs run, one with slots behind it; a third waits; a heartbeat is in flight."""
    desk = Desk(cpu=200)
    desk.turn(start("a", [0, 1]), start("b", [2], operation="operation-2", told=spec("operation-2", timeout_ms=60_000)))
    desk.turn(start("c", [3]))
    return desk


def test_an_interrupting_stop_ends_all_jobs_within_their_own_timeout_or_the_agents() -> None:
    desk = busy()

    stop(desk, StopMode.INTERRUPT)

    assert {job(0): 5_000, job(2, "operation-2"): 8_000} == {
        order.job: order.timeout_ms for order in desk.told(Interrupt)
    }


def test_a_stopping_agent_says_so_at_once_and_gives_back_what_it_did_not_start() -> None:
    desk = busy()

    stop(desk, StopMode.INTERRUPT)
    desk.answer(next_ms=1_000)
    desk.advance(20)

    assert (desk.beat.state, desk.beat.reason) == (NodeState.STOPPING, HeartbeatReason.STOPPING)
    assert {
        "a": (AllocationState.CLOSING, [JobSlot(1)]),
        "b": (AllocationState.CLOSING, []),
        "c": (AllocationState.ENDED, [JobSlot(3)]),
    } == {found.id: (found.state, found.unstarted) for found in desk.beat.allocations}


def test_a_stopping_agent_starts_nothing_that_it_is_given() -> None:
    desk = busy()
    before = list(desk.runs)
    stop(desk, StopMode.INTERRUPT)

    desk.turn(start("d", [4]))

    assert before == desk.runs
    report = desk.report("d")
    assert report is not None
    assert (AllocationState.ENDED, [JobSlot(4)]) == (report.state, report.unstarted)


def test_an_interrupting_stop_is_over_when_the_last_end_is_recorded() -> None:
    desk = busy()
    stop(desk, StopMode.INTERRUPT)
    ends = [end_of(job(0), result=JobResult.ABORTED), end_of(job(2, "operation-2"), "b", JobResult.ABORTED)]
    for end in ends:
        desk.ended(end)
    desk.turn()
    unrecorded = desk.left

    desk.answer(forget=Forget(ends=[end.key for end in ends]))

    assert not unrecorded
    assert [Leave(with_runner=True)] == desk.all(Leave)
    assert [order.timeout_ms for order in desk.told(EndAll)] == [0]


def test_an_interrupting_stop_ends_after_its_time_whatever_is_missing() -> None:
    desk = busy()
    stop(desk, StopMode.INTERRUPT)

    desk.advance(10_999)
    before = desk.left
    desk.advance(1)

    assert not before
    assert desk.left


def test_an_idle_agent_stops_after_one_last_heartbeat_answered_or_not() -> None:
    for answered in (True, False):
        desk = Desk()
        desk.turn()
        stop(desk, StopMode.INTERRUPT)
        desk.answer()
        desk.next_beat()
        told = desk.beat
        if answered:
            desk.answer()
        else:
            desk.lose()

        assert told.state == NodeState.STOPPING
        assert desk.left


def test_an_agent_that_lost_the_allocator_tries_again_soon_while_it_stops() -> None:
    desk = busy()
    for _ in range(8):
        desk.lose()
        desk.next_beat()
    stop(desk, StopMode.INTERRUPT)
    desk.ended(end_of(job(0)))

    desk.lose()
    before = len(desk.beats)
    desk.advance(500)

    assert before + 1 == len(desk.beats)


def test_a_waiting_stop_lets_jobs_end_and_starts_no_next_one() -> None:
    desk = busy()

    stop(desk, StopMode.WAIT)
    desk.turn()
    draining = desk.beat
    desk.ended(end_of(job(0)))
    desk.advance(3_600_000)

    assert desk.told(Interrupt) == []
    assert draining.state == NodeState.DRAINING
    assert [job(0), job(2, "operation-2")] == desk.runs
    assert not desk.left


def test_a_waiting_stop_is_over_when_the_last_job_is_and_its_end_is_recorded_or_nobody_records_it() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    stop(desk, StopMode.WAIT)
    desk.turn()
    desk.ended(end_of(job(0)))
    desk.lose()

    desk.advance(10_000)
    before = desk.left
    desk.advance(1_000)

    assert not before
    assert desk.left


def test_a_leaving_stop_touches_no_job_and_ends_after_one_last_heartbeat() -> None:
    desk = busy()

    stop(desk, StopMode.LEAVE)
    desk.turn()
    last = desk.beat
    desk.answer()

    assert last.state == NodeState.DRAINING
    assert {"a": [JobSlot(1)], "b": [], "c": [JobSlot(3)]} == {a.id: a.unstarted for a in last.allocations}
    assert desk.told(Interrupt) == []
    assert desk.told(EndAll) == []
    assert [Leave(with_runner=False)] == desk.all(Leave)


def test_a_kill_waits_for_nothing() -> None:
    desk = busy()

    stop(desk, StopMode.KILL)

    assert [EndAll(0, "the agent of this host stopped")] == desk.told(EndAll)
    assert desk.left


def test_a_runner_that_was_away_at_the_kill_is_told_with_its_picture_and_nothing_else() -> None:
    desk = busy()
    desk.do(desk.engine.on_trouble(Trouble.RUNNER_AWAY, "the connection broke", desk.now()))
    stop(desk, StopMode.KILL)
    before = len(desk.effects)

    desk.picture([kept(desk, job(0))])

    assert [SendToRunner(EndAll(0, "the agent of this host stopped"))] == desk.effects[before:]


def test_a_runner_that_was_away_when_time_was_up_is_told_with_its_picture() -> None:
    desk = busy()
    stop(desk, StopMode.INTERRUPT)
    desk.do(desk.engine.on_trouble(Trouble.RUNNER_AWAY, "the connection broke", desk.now()))
    desk.advance(60_000)
    before = len(desk.effects)

    desk.picture([kept(desk, job(0))])

    assert [SendToRunner(EndAll(0, "the agent of this host stopped"))] == desk.effects[before:]


def test_a_runner_that_is_left_running_is_told_nothing_with_its_picture() -> None:
    desk = busy()
    stop(desk, StopMode.LEAVE)
    desk.turn()
    desk.answer()
    before = len(desk.effects)

    desk.picture([kept(desk, job(0))])

    assert desk.left
    assert desk.effects[before:] == []


def test_a_more_urgent_wish_follows_a_gentler_one_and_not_the_other_way() -> None:
    desk = busy()
    stop(desk, StopMode.WAIT)
    stop(desk, StopMode.INTERRUPT)
    interrupted = len(desk.told(Interrupt))

    stop(desk, StopMode.WAIT)
    desk.turn()

    assert interrupted == 2
    assert desk.beat.state == NodeState.STOPPING
    assert len(desk.told(Interrupt)) == 2


def test_jobs_that_a_stopping_agent_adopts_are_interrupted_too() -> None:
    former = Desk()
    former.turn(start("a", [0]))
    desk = Desk(incarnation="life-2", picture=False)
    stop(desk, StopMode.INTERRUPT)
    waited_for = desk.left
    desk.picture([kept(former, job(0))])

    assert not waited_for
    assert [(job(0), 5_000)] == [(order.job, order.timeout_ms) for order in desk.told(Interrupt)]


def test_after_it_left_the_agent_does_nothing() -> None:
    desk = busy()
    stop(desk, StopMode.KILL)
    beats, runs = list(desk.beats), list(desk.runs)

    desk.answer(start("z", [50]))
    desk.advance(60_000)

    assert desk.engine.due_ns() is None
    assert (beats, runs, 1) == (desk.beats, desk.runs, len(desk.all(Leave)))
