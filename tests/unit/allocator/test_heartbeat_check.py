"""Whole heartbeats that are decided plainly, too: each part of the quick way that errs is an alarm with a case to be replayed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headrace.wire.heartbeat import Orders
from headrace.wire.preemption import PreemptionReason
from headrace_allocator import decide, heartbeat_answer
from headrace_allocator.checks.choices import ChoiceCase
from headrace_allocator.checks.heartbeat_cases import HeartbeatCase
from headrace_allocator.checks.heartbeats import HeartbeatCheck
from headrace_allocator.checks.kept_cases import keep_case
from headrace_allocator.decision.view import Overlay
from headrace_allocator.decision.walk import RoomLeft
from headrace_allocator.effects import KeepCase
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.groups import Group
from headrace_allocator.preemption import stages
from headrace_allocator.preemption.victims import Preemption
from tests.support.allocating import Desk, an_operation, cores
from tests.support.choice_case import replay as replay_choice
from tests.support.heartbeat_case import replay
from tests.unit.allocator.test_engine import running
from tests.unit.allocator.test_preemption import FOUR, Host, a_share


def figures_of(desk: Desk) -> dict[str, object]:
    return {one.name: one.value for one in desk.engine.answers.check.figures()}


def cases_of(desk: Desk) -> list[ChoiceCase | HeartbeatCase]:
    """The cases that are to be kept, as the service hears of them."""
    effects = desk.engine.on_tick(desk.now).effects
    return [one.case for one in effects if isinstance(one, KeepCase)]


def a_host_to_take_from() -> Host:
    """`rich` has all of it, and `poor` starves for half."""
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    host.engine.answers.check = HeartbeatCheck(every=1)
    return host


def test_a_right_choice_of_victims_is_no_alarm() -> None:
    host = a_host_to_take_from()
    orders = host.next_beat()

    assert (len(orders.take_back), len(orders.start)) == (1, 1)
    assert figures_of(host)["heartbeats_checked"] == 1
    assert cases_of(host) == []


def the_oldest(overlay: Overlay, kept: list[Allocation]) -> Iterator[Allocation]:
    """Takes from the wrong end."""
    while kept and not overlay.room.dominates(overlay.room - overlay.room):
        victim = kept.pop(0)
        overlay.free(overlay.view.operations[victim.operation], victim)
        yield victim


def one_too_many(overlay: Overlay, kept: list[Allocation]) -> Iterator[Allocation]:
    for _ in range(2):
        victim = kept.pop()
        overlay.free(overlay.view.operations[victim.operation], victim)
        yield victim


@pytest.mark.parametrize("wrongly", [the_oldest, one_too_many])
def test_a_wrong_victim_is_an_alarm_with_a_case(
    wrongly: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = a_host_to_take_from()
    with monkeypatch.context() as fault:
        fault.setattr(stages, "victims_until_it_fits", wrongly)
        orders = host.next_beat()

    figures = figures_of(host)
    assert (figures["heartbeats_differing"], figures["choices_differing"]) == (1, 0)
    (kept,) = cases_of(host)
    path = keep_case(kept, tmp_path, 1)
    case = msgspec.json.decode(path.read_bytes(), type=HeartbeatCase)
    # The quick way holds: a check that errs would do harm otherwise.
    assert [one.allocation for one in case.quickly.taken] == [one.allocation for one in orders.take_back]
    assert [one.allocation for one in case.plainly.taken] == [host.starts[3].allocation]
    assert case.plainly.starts == case.quickly.starts
    assert [one.operation for one in case.plainly.starts] == ["poor"]

    # The fault is still there, or is mended.
    assert replay(case) is None
    with monkeypatch.context() as fault:
        fault.setattr(stages, "victims_until_it_fits", wrongly)
        again = replay(case)
    assert again is not None
    assert (again.quickly, again.plainly) == (case.quickly, case.plainly)


def test_a_case_of_a_heartbeat_can_be_replayed_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = a_host_to_take_from()
    monkeypatch.setattr(stages, "victims_until_it_fits", one_too_many)
    host.next_beat()
    path = keep_case(cases_of(host)[0], tmp_path, 1)

    module = "tests.support.heartbeat_case"
    ran = subprocess.run([sys.executable, "-m", module, str(path)], capture_output=True, text=True)

    assert path.name.startswith("heartbeat-")
    assert ran.returncode == 0, ran.stderr
    assert "now:  no difference" in ran.stdout


def test_what_goes_from_an_overcommitted_node_is_held_against_the_plain_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host()
    host.next_beat()
    host.engine.answers.check = HeartbeatCheck(every=1)

    def nobody(overlay: Overlay, groups: dict[Allocation, Group]) -> Iterator[Allocation]:
        return iter(())

    monkeypatch.setattr(decide, "victims_of_overcommit", nobody)
    for _ in range(4):
        assert host.next_beat(total=cores(3, slots=4), after_s=8).take_back == []
        host.refresh()

    case = cases_of(host)[-1]
    assert isinstance(case, HeartbeatCase)
    assert [one.reason for one in case.plainly.taken] == [PreemptionReason.RESOURCE_OVERCOMMIT]
    # There is less than no room on such a node, which no message says.
    again = replay(msgspec.json.decode(keep_case(case, tmp_path, 1).read_bytes(), type=HeartbeatCase))
    assert again is not None
    assert again.plainly == case.plainly


def test_whoever_is_asked_gracefully_without_reason_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    host = a_host_to_take_from()

    def all_of_them(overlay: Overlay) -> list[Preemption]:
        return [
            Preemption(one, PreemptionReason.GRACEFUL_PREEMPTION, Group.PREEMPTIBLE)
            for one in overlay.view.allocations[:1]
        ]

    monkeypatch.setattr(decide, "asked_gracefully", all_of_them)
    host.next_beat()

    assert figures_of(host)["heartbeats_differing"] == 1


def a_node_with_room() -> tuple[Desk, Orders]:
    """Another job fits on it, and for that its one allocation is no news."""
    desk = Desk({"n": cores(2, slots=2)})
    desk.beat("n")
    desk.start(an_operation("operation-1", jobs=1))
    orders, _ = desk.beat("n")
    for _ in range(2):
        desk.beat("n", allocations=[running(orders.start[0])])
    desk.start(an_operation("operation-1", jobs=1), an_operation("operation-2"))
    desk.engine.answers.check = HeartbeatCheck(every=1)
    return desk, orders


def test_the_quick_path_that_overlooks_a_job_is_an_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, first = a_node_with_room()
    with monkeypatch.context() as fault:
        fault.setattr(heartbeat_answer, "why_nothing_fits", lambda order, free: RoomLeft.NO_JOB_FITS)
        orders, _ = desk.beat("n", allocations=[running(first.start[0])])

    assert orders.start == []
    assert figures_of(desk)["heartbeats_differing"] == 1
    case = msgspec.json.decode(keep_case(cases_of(desk)[0], tmp_path, 1).read_bytes(), type=ChoiceCase)
    assert (case.chosen, case.expected) == (None, "operation-2")
    now = replay_choice(case)
    assert now.quickly == now.plainly == "operation-2"


def test_the_quick_path_that_overlooks_somebody_who_starves_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    host = a_host_to_take_from()
    with monkeypatch.context() as fault:
        fault.setattr(heartbeat_answer, "may_have_work", lambda *facts: False)
        assert host.next_beat().start == []

    (case,) = cases_of(host)
    assert isinstance(case, ChoiceCase)
    assert (case.chosen, case.expected) == (None, "poor")


def test_the_quick_path_that_overlooks_a_passed_limit_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would start, and some would go."""
    host = Host()
    host.next_beat()
    host.tell([a_share("rich", 2)], total=FOUR)
    host.engine.answers.check = HeartbeatCheck(every=1)
    monkeypatch.setattr(heartbeat_answer, "may_have_work", lambda *facts: False)
    host.next_beat(total=cores(3, slots=4))
    host.refresh()
    host.next_beat(total=cores(3, slots=4))

    cases = [one for one in cases_of(host) if isinstance(one, HeartbeatCase)]
    assert cases
    assert all((one.quickly.taken, len(one.plainly.taken)) == ([], 1) for one in cases)


def test_a_quiet_heartbeat_that_is_right_is_checked_and_no_alarm() -> None:
    desk = Desk({"n": cores(1)})
    desk.beat("n")
    desk.start(an_operation("operation-1", jobs=9))
    orders, _ = desk.beat("n")
    for _ in range(2):
        desk.beat("n", allocations=[running(orders.start[0])])
    desk.engine.answers.check = HeartbeatCheck(every=1)
    answers = [desk.beat("n", allocations=[running(orders.start[0])])[0] for _ in range(3)]

    assert figures_of(desk)["heartbeats_checked"] == 3
    assert (cases_of(desk), [one.start for one in answers]) == ([], [[], [], []])


def test_the_check_changes_nothing() -> None:
    """Neither the orders nor the sums, though the whole decision is made twice."""
    checked, unchecked = a_host_to_take_from(), a_host_to_take_from()
    unchecked.engine.answers.check = HeartbeatCheck()
    orders, plain_orders = checked.next_beat(), unchecked.next_beat()

    assert [msgspec.to_builtins(one) for one in orders.take_back] == [
        msgspec.to_builtins(one) for one in plain_orders.take_back
    ]
    assert orders.start == plain_orders.start
    assert checked.node("n").used == unchecked.node("n").used
    assert checked.engine.check() == []
    assert (figures_of(checked)["heartbeats_checked"], figures_of(unchecked)["heartbeats_checked"]) == (1, 0)
