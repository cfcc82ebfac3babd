"""What the agent's checks find when its state is broken, and what its figures count."""

from __future__ import annotations

from headrace.ids import AllocationId
from headrace.resources import Resources
from headrace.wire.heartbeat import AllocationState
from headrace_agent.runner.protocol import Pong
from tests.support.agent_desk import Desk, job, start


def a_busy_desk() -> Desk:
    """One allocation runs with a slot to come, another has no room."""
    desk = Desk(cpu=100)
    desk.answer(start("a", [0, 1]), start("b", [2]))
    desk.started(job(0))
    return desk


def test_a_broken_invariant_is_told_in_words() -> None:
    desk = a_busy_desk()
    held = desk.engine.held
    held.by_id[AllocationId("a")].state = AllocationState.WAITING
    held.by_id[AllocationId("b")].resources = Resources(user_slots=1, cpu=200)
    held.specs.clear()

    [first, *_] = broken = desk.engine.check()

    assert first.startswith("allocation a (waiting, Job(")
    assert first.endswith("it holds resources without a job, or has a job without resources")
    assert any("it waits but is not listed" in words for words in broken)


def test_a_lost_job_and_a_lost_booking_are_found() -> None:
    desk = a_busy_desk()
    desk.engine.held.by_job.clear()
    desk.engine.held.by_id[AllocationId("a")].resources = Resources(user_slots=1, cpu=50)
    desk.engine.held.by_id[AllocationId("a")].unstarted = ()

    broken = "; ".join(desk.engine.check())

    assert "its job is not found" in broken
    assert "are booked" in broken
    assert "slots are booked, but allocations have 1" in broken


def test_a_report_that_is_kept_and_is_not_true_any_more_is_found() -> None:
    desk = a_busy_desk()
    a, b = desk.engine.held.by_id.values()
    a._report = b.report()

    assert [words.partition("): ")[2] for words in desk.engine.check()] == ["its report is out of date"]


def test_heartbeats_out_of_order_are_found() -> None:
    desk = a_busy_desk()
    desk.engine.pulse.applied = desk.engine.pulse.seq + 1

    assert len(desk.engine.check()) == 1


def test_each_structure_has_its_own_check() -> None:
    assert [check() for check in a_busy_desk().engine.checks()] == [[], []]


def test_figures_count_what_the_node_has() -> None:
    told = {figure.name: figure.value for figure in a_busy_desk().engine.figures()}

    assert (told["allocations_running"], told["allocations_waiting"]) == (1, 1)
    assert (told["jobs"], told["unstarted_slots"], told["unrecorded_ends"]) == (1, 2, 0)
    assert (told["heartbeats"], told["sessions"]) == (1, 0)


def test_the_figure_of_sessions_is_what_the_runner_said_last() -> None:
    desk = a_busy_desk()

    desk.engine.on_runner(Pong(3), desk.now())

    assert {figure.name: figure.value for figure in desk.engine.figures()}["sessions"] == 3
