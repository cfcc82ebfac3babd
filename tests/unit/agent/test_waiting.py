"""Allocations that wait on their node for room, and for how long."""

from __future__ import annotations

from headrace.wire.heartbeat import AllocationState, JobSlot
from tests.support.agent_desk import Desk, end_of, job, start, take_back


def test_an_allocation_that_waited_as_long_as_it_may_is_given_back_at_once_with_the_reason() -> None:
    desk = Desk(cpu=100)
    desk.turn(start("a", [0]))
    desk.answer(take_back("a"), start("b", [1, 2], waiting_ms=2_500), next_ms=60_000)

    desk.advance(2_499)
    before = desk.beat
    desk.advance(1)

    assert desk.beat.seq == before.seq + 1, "told at once, not with the next period"
    report = desk.report("b")
    assert report is not None
    assert (report.state, report.unstarted) == (AllocationState.ENDED, [JobSlot(1), JobSlot(2)])
    assert report.given_back_for == "its waiting time for free resources of this host is over"
    desk.ended(end_of(job(0)))
    assert desk.runs == [job(0)]


def test_an_allocation_that_got_its_room_in_time_runs_as_long_as_it_likes() -> None:
    desk = Desk(cpu=100)
    desk.turn(start("a", [0]), start("b", [1], waiting_ms=1_500))
    desk.ended(end_of(job(0)))

    desk.advance(2_000)
    desk.answer()

    report = desk.report("b")
    assert report is not None
    assert (report.state, report.given_back_for) == (AllocationState.RUNNING, "")


def test_one_that_waited_too_long_lets_a_smaller_one_behind_it_start() -> None:
    desk = Desk(cpu=300)
    desk.answer(start("a", [0], cpu=200), start("wide", [1], cpu=200, waiting_ms=500), start("slim", [2], cpu=100))
    assert desk.runs == [job(0)]

    desk.advance(500)

    assert desk.runs == [job(0), job(2)]


def test_without_a_limit_it_waits_until_there_is_room() -> None:
    desk = Desk(cpu=100)
    desk.turn(start("a", [0]), start("b", [1]))

    desk.advance(10_000)
    desk.ended(end_of(job(0)))

    assert desk.runs == [job(0), job(1)]


def test_an_allocation_that_this_host_cannot_run_says_why_it_is_given_back() -> None:
    desk = Desk(cpu=100)

    desk.turn(start("a", [0], cpu=200))

    report = desk.report("a")
    assert report is not None
    assert report.given_back_for == "it needs more resources than this host has"
