"""The frame around every engine: effects in their order, figures, and one structure checked after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import anyio
import pytest

from headrace.common_wakeups import until_beat
from headrace.runtime.endpoints import Endpoints
from headrace.runtime.engine import Check, Figure, Histogram, Outcome, counter, run_checks
from headrace.runtime.role import Deposed, Deposition, Role
from headrace.runtime.shell import LoopPauses, Shell
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.support.clocks import HandClock


class TwoBoxes:
    """An engine of two structures."""

    def __init__(self) -> None:
        self.boxes = {"left": 0, "right": 0}

    def checks(self) -> Iterator[Check]:
        for name in list(self.boxes):
            yield lambda name=name: [f"{name} is {self.boxes[name]}"] if self.boxes[name] < 0 else []  # type: ignore[misc]

    def check(self) -> list[str]:
        return run_checks(self.checks())

    def figures(self) -> list[Figure]:
        return [counter("boxes", "boxes", len(self.boxes), "Boxes.")]


class ABus:
    """A connection with statistics."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts

    def statistics(self) -> dict[str, int]:
        return self.counts


def a_shell(engine: TwoBoxes, performed: list[str], more_checks: Sequence[Check] = ()) -> Shell[str]:
    bus: Any = ABus()
    clock = HandClock()
    endpoints = Endpoints(bus, clock, Deposition())
    return Shell("boxes", engine, clock, endpoints, perform=performed.append, more_checks=more_checks)


def test_effects_are_performed_in_their_order_and_the_answer_is_returned() -> None:
    performed: list[str] = []

    answer = a_shell(TwoBoxes(), performed).perform(Outcome(7, ["first", "second"]))

    assert answer == 7
    assert performed == ["first", "second"]


def test_each_look_checks_one_structure_and_all_come_round() -> None:
    engine = TwoBoxes()
    shell = a_shell(engine, [])
    engine.boxes["right"] = -1

    found = [shell.check_next() for _ in range(7)]

    assert found.count(["right is -1"]) == 2
    assert shell.broken_invariants == 2
    assert {each.name: each.value for each in shell.figures()}["broken_invariants"] == 2
    assert {each.name: each.value for each in shell.figures()}["boxes"] == 2


def test_the_service_own_checks_follow_those_of_the_engine() -> None:
    shell = a_shell(TwoBoxes(), [], more_checks=[lambda: ["the shelf leans"]])

    assert [shell.check_next() for _ in range(4)] == [[], [], [], ["the shelf leans"]]


async def test_whoever_deposes_the_process_ends_it() -> None:
    deposition = Deposition()
    role = Role("allocator.default", 3, deposition)
    assert not deposition.reason

    role.step_down("a node obeys term 4")
    role.step_down("something else")

    with pytest.raises(Deposed, match="a node obeys term 4"), anyio.fail_after(5):
        await deposition.watch()


def test_whoever_has_the_same_period_wakes_together_and_nobody_twice_for_one_beat() -> None:
    woken: list[tuple[str, float]] = []

    async def keep_waking(name: str, begins_s: float) -> None:
        await anyio.sleep(begins_s)
        while True:
            await until_beat(0.5)
            woken.append((name, round(anyio.current_time(), 6)))
            await anyio.sleep(0.02)

    async def world(loop: VirtualLoop) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_waking, "early", 0.01)
            tasks.start_soon(keep_waking, "late", 0.47)
            await anyio.sleep(1.6)
            tasks.cancel_scope.cancel()

    run_virtually(1, world)

    assert sorted(woken, key=lambda one: (one[1], one[0])) == [
        ("early", 0.5),
        ("early", 1.0),
        ("late", 1.0),
        ("early", 1.5),
        ("late", 1.5),
    ]


def test_a_loop_that_was_kept_shows_in_the_figures() -> None:
    pauses = LoopPauses()

    async def keep_looking() -> None:
        while True:
            await pauses.measure()

    async def world(loop: VirtualLoop) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_looking)
            await anyio.sleep(1.1)
            loop.pass_time(1.15)  # something computes and lets nobody else run
            await anyio.sleep(1.0)
            tasks.cancel_scope.cancel()

    run_virtually(1, world)

    longest, spread = pauses.figures()
    assert longest.value == pytest.approx(250.0)
    assert isinstance(spread.value, Histogram)
    assert sum(spread.value.counts) == 3
    assert spread.value.counts[spread.value.bounds.index(500.0)] == 1


def test_what_both_connections_dropped_is_counted_together() -> None:
    bus: Any = ABus(dropped=2, reconnects=1)
    users: Any = ABus(dropped=3)
    figures = {one.name: one.value for one in Endpoints(bus, HandClock(), Deposition(), users=users).figures()}
    assert (figures["dropped_messages"], figures["reconnects"]) == (5, 1)
