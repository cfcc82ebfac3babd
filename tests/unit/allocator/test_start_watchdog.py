"""The watchdog over starts: it bites when jobs fit, nothing holds them and none starts, and at nothing else."""

from __future__ import annotations

import pytest

from headrace.wire.explanations import Cause
from headrace_allocator.effects import Alarm
from tests.support.allocating import Desk, a_share, an_operation, cores
from tests.unit.allocator.test_explain_waiting import explained
from tests.unit.allocator.test_preemption import FOUR


def a_desk(*, jobs: int = 10) -> Desk:
    """A node with room for four jobs that was heard at 100 s, and an operation that came right after."""
    desk = Desk({"n": FOUR})
    desk.beat("n")
    desk.start(an_operation("a", jobs))
    desk.tell([a_share("a", 1.0)])
    return desk


def alarms(desk: Desk, until_s: int) -> list[Alarm]:
    """Of a tick each second until then."""
    found: list[Alarm] = []
    while desk.now_s < until_s:
        desk.now_s += 1
        found += [one for one in desk.tick(desk.now_s) if isinstance(one, Alarm)]
    return found


def cause_of(desk: Desk) -> Cause:
    (cause,) = explained(desk, "a").causes
    return cause


def test_a_node_with_room_that_is_not_heard_in_time_is_the_reason() -> None:
    desk = a_desk()
    assert explained(desk, "a").causes == []

    desk.now_s += 16

    assert cause_of(desk).kind == "room_unheard"
    assert (
        cause_of(desk).words
        == "1 node has free resources for a job, but heartbeats are overdue: the last came from n 16 s ago"
    )


def test_jobs_that_fit_and_of_which_none_starts_are_an_alarm_once() -> None:
    desk = a_desk()

    assert alarms(desk, until_s=131) == []
    assert desk.engine.watchdog.trouble == ""
    (alarm,) = alarms(desk, until_s=150)
    assert alarm.about == {"operation": "a"}
    assert "jobs of a fit into free resources" in desk.engine.watchdog.trouble


def test_a_start_ends_it() -> None:
    desk = a_desk()
    alarms(desk, until_s=140)

    orders, _ = desk.beat("n")
    assert orders.start
    alarms(desk, until_s=141)

    assert desk.engine.watchdog.trouble == ""


@pytest.mark.parametrize("jobs", [4, 10])
def test_neither_an_operation_that_has_all_nor_one_that_waits_for_room_is_stuck(jobs: int) -> None:
    desk = a_desk(jobs=jobs)
    desk.beat("n")

    assert alarms(desk, until_s=155) == []


def test_many_operations_are_looked_at_in_turn() -> None:
    desk = Desk({"n": FOUR})
    desk.beat("n")
    names = [f"op-{number:02}" for number in range(12)]
    desk.start(*map(an_operation, names))
    desk.tell([a_share(name, 0.05) for name in names])

    stuck = {str(alarm.about["operation"]) for alarm in alarms(desk, until_s=155)}

    assert stuck == set(names)


def test_an_operation_of_which_a_job_starts_now_and_then_is_not_stuck() -> None:
    nodes = [f"n{number}" for number in range(4)]
    desk = Desk(dict.fromkeys(nodes, cores(1)))
    for node in nodes:
        desk.beat(node)
    desk.start(an_operation("a"))
    desk.tell([a_share("a", 1.0)])

    for node in nodes[:3]:
        assert alarms(desk, until_s=int(desk.now_s) + 20) == []
        orders, _ = desk.beat(node)
        assert orders.start
