"""The watchdog over starts: it bites when jobs fit, nothing holds them and none starts, and at nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headrace.wire.explanations import Cause
from headrace_allocator import start_watchdog
from headrace_allocator.effects import Alarm
from headrace_allocator.explain import waiting
from headrace_allocator.facts.allocations import Allocation, waits_for_room
from tests.support.allocating import Desk, a_share, an_operation, cores
from tests.support.clocks import at
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


def late_nodes(count: int, *names: str) -> Desk:
    """Nodes with room for a job each that were heard at 100 s, and operations that came 20 s later."""
    desk = Desk({f"n{number}": cores(1) for number in range(count)})
    for node in desk.nodes:
        desk.beat(node)
    desk.now_s += 20
    desk.start(*map(an_operation, names))
    desk.tell([a_share(name, 0.1) for name in names])
    return desk


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of nodes that were examined, as its only item."""
    examined = [0]

    def counting(allocations: Iterable[Allocation]) -> bool:
        examined[0] += 1
        return waits_for_room(allocations)

    monkeypatch.setattr(waiting, "waits_for_room", counting)
    return examined


def test_a_tick_examines_a_bounded_number_of_nodes_and_later_ticks_the_others(
    looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_watchdog, "_MOST_STEPS", 30)
    monkeypatch.setattr(waiting, "_EXAMINED_AT_ONCE", 2)
    desk = late_nodes(100, "a", "b")
    most, stuck = 0, set()
    for _ in range(90):
        desk.now_s += 1
        before = looks[0]
        stuck |= {str(one.about["operation"]) for one in desk.tick(desk.now_s) if isinstance(one, Alarm)}
        most = max(most, looks[0] - before)
        # All nodes stay late, and none goes offline.
        for node in desk.facts.nodes.values():
            desk.facts.last_heard.note(node, at(desk.now_s - 20))

    assert 40 < most <= 2 * 30
    assert stuck == {"a", "b"}


def test_an_operation_that_ends_while_it_is_examined_is_examined_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_watchdog, "_MOST_STEPS", 20)
    monkeypatch.setattr(waiting, "_EXAMINED_AT_ONCE", 1)
    desk = late_nodes(100, "a", "b")
    desk.tick(desk.now_s)
    assert desk.engine.watchdog._examination is not None
    desk.start(an_operation("c"))
    desk.tell([a_share("c", 0.1)])

    watched: set[str] = set()
    for _ in range(30):
        desk.tick(desk.now_s)
        watched |= desk.engine.watchdog._watched.keys()

    assert watched == {"c"}


def test_a_node_that_makes_room_behind_many_late_nodes_is_found_by_a_later_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start_watchdog, "_MOST_STEPS", 20)
    monkeypatch.setattr(waiting, "_EXAMINED_AT_ONCE", 1)
    desk = late_nodes(50, "a")
    last = list(desk.facts.nodes.values())[-1]
    monkeypatch.setattr(waiting, "waits_for_room", lambda allocations: list(allocations) == ["makes room"])
    assert last.record.node == "n49"
    last.allocations["a-1"] = "makes room"  # type: ignore[index, assignment]

    for _ in range(20):
        desk.tick(desk.now_s)

    assert desk.engine.watchdog._watched == {}
