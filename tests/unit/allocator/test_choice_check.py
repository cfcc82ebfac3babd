"""The check of the quick choice in production: what is wrong is kept as a case, which can be replayed; what is right never is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from headrace.resources import Resources
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.checks import choices, heartbeats, kept_cases
from headrace_allocator.checks.choices import ChoiceCase
from headrace_allocator.checks.heartbeats import HeartbeatCheck
from headrace_allocator.checks.kept_cases import keep_case
from headrace_allocator.decide import DueSteps, decide
from headrace_allocator.decision.placing import start_regularly
from headrace_allocator.decision.plain_loop import next_in_line_plainly
from headrace_allocator.decision.view import Overlay
from headrace_allocator.effects import KeepCase
from headrace_allocator.facts.operations import Operation
from tests.support.allocating import Desk, an_operation, cores
from tests.support.choice_case import replay
from tests.support.random_orders import RandomTree
from tests.unit.allocator.test_engine import running


def figures_of(check: HeartbeatCheck) -> list[float]:
    """Heartbeats that were checked, those that differed, and the same of choices."""
    return [float(str(figure.value)) for figure in check.figures()]


def due_to_start() -> DueSteps:
    return DueSteps(preempt=False)


def checked(check: HeartbeatCheck, tree: RandomTree, node: str = "n") -> None:
    """Decides once, and nothing is carried out."""
    check.begin()
    overlay = tree.overlay(node)
    check.compare(overlay.view, due_to_start(), decide(overlay, due_to_start(), check.choose))


@pytest.mark.parametrize("looks", [1, 30, 10_000])
def test_what_is_right_is_never_told_however_few_are_looked_at(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "_LOOKS", looks)
    monkeypatch.setattr(choices, "_LOOKS_FOR_NOBODY", looks)
    monkeypatch.setattr(choices, "_LEAST_SAMPLE", 1)
    check = HeartbeatCheck(every=1)
    for seed in range(60):
        tree = RandomTree(Random(seed))
        for node in tree.nodes:
            checked(check, tree, node)

    heartbeats, differing, made_again, wrong = figures_of(check)
    assert (heartbeats, made_again > 100) == (120, True)
    assert (differing, wrong, check.take_cases()) == (0, 0, [])


def test_the_plain_loop_looks_at_no_more_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many places a heartbeat gives out, of however many operations."""
    looks: list[int] = []

    def counted(*args: Any, among: Collection[Operation] | None = None) -> Operation | None:
        looks.append(len(among) if among is not None else 1_000_000)
        return next_in_line_plainly(*args, among=among)

    monkeypatch.setattr(choices, "next_in_line_plainly", counted)
    monkeypatch.setattr(choices, "_LOOKS", 300)
    monkeypatch.setattr(choices, "_LOOKS_FOR_NOBODY", 100)
    desk = Desk({"n": cores(20, slots=20)})
    desk.beat("n")
    desk.start(*[an_operation(f"o{number}", jobs=9) for number in range(1_000)])
    desk.engine.answers.check = HeartbeatCheck(every=1)

    assert len(desk.beat("n")[0].start) == 20
    assert len(looks) == 20
    assert 200 < sum(looks) <= 320


def test_only_one_heartbeat_of_very_many_is_checked() -> None:
    tree = RandomTree(Random(1))
    check = HeartbeatCheck(every=5)
    for _ in range(14):
        checked(check, tree)
    assert figures_of(check)[:2] == [2, 0]


def test_heartbeats_with_nothing_to_decide_have_a_turn_of_their_own() -> None:
    """They are most of all, and would leave no turn to others."""
    desk = Desk({"n": cores(1)})
    desk.beat("n")
    desk.start(an_operation("o", jobs=9))
    check = desk.engine.answers.check = HeartbeatCheck(every=4)
    (start,) = desk.beat("n")[0].start
    for _ in range(6):
        desk.beat("n", allocations=[running(start)])

    # The start, and what the node showed first, are news. Of those with none the fourth is checked.
    assert figures_of(check)[:2] == [1, 0]
    desk.nodes["n"] = cores(2, slots=2)
    for _ in range(2):
        desk.beat("n", allocations=[running(start)])
        desk.refresh()
    assert figures_of(check)[:2] == [2, 0]


def test_a_choice_by_places_that_are_to_be_found_anew_is_not_told_as_wrong() -> None:
    """The room of the tree changed, and the shares of it mean something else."""
    made_again = 0.0
    for seed in (2, 180, 344, *range(10, 40)):
        tree = RandomTree(Random(seed))
        tree.beat("n")
        tree.refresh()
        tree.change_shares()
        tree.nodes = {"n": tree.nodes["n"], "m": Resources(8, 4_000, 0, 2**30)}
        tree.engine.answers.check = check = HeartbeatCheck(every=1)
        for node in ("m", "n"):
            tree.beat(node)
        assert figures_of(check) == [0, 0, 0, 0]
        tree.refresh()
        tree.beat("n")
        made_again += figures_of(check)[2]
        assert check.take_cases() == []
    assert made_again > 30


def wrongly(overlay: Overlay, room: object, priority: PreemptionPriority | None = None) -> Operation | None:
    """Nobody, whoever could have it."""
    return None


def first_choice(overlay: Overlay) -> Operation | None:
    """The operation that one of the first two choices of a heartbeat would be, were nobody chosen before."""
    choices: list[Operation | None] = []

    def note(overlay: Overlay, room: Resources, priority: PreemptionPriority | None = None) -> Operation | None:
        choices.append(next_in_line_plainly(overlay, room, priority))
        return None

    start_regularly(overlay, note)
    return next((one for one in choices[:2] if one is not None), None)


def test_a_wrong_choice_becomes_a_case_that_can_be_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = 0
    for seed in range(30):
        tree = RandomTree(Random(seed))
        expected = first_choice(tree.overlay("n"))
        if expected is None:
            continue
        tree.engine.answers.check = HeartbeatCheck(every=1)
        with monkeypatch.context() as fault:
            fault.setattr(heartbeats, "next_in_line", wrongly)
            tree.beat("n")
        (keep,) = [one for one in tree.tick(tree.now_s) if isinstance(one, KeepCase)]
        case = msgspec.json.decode(keep_case(keep.case, tmp_path, seed).read_bytes(), type=ChoiceCase)

        assert (case.chosen, case.expected) == (None, expected.id)
        now = replay(case)
        assert now.quickly == now.plainly == expected.id
        replayed += 1
    assert replayed > 10
    assert [one for one in tree.tick(tree.now_s) if isinstance(one, KeepCase)] == []

    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.choice_case", str(sorted(tmp_path.iterdir())[0])],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "then: quickly None" in ran.stdout


def test_the_oldest_cases_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_cases, "_MOST_KEPT", 2)
    tree = RandomTree(Random(0))
    check = HeartbeatCheck(every=1)
    monkeypatch.setattr(heartbeats, "next_in_line", wrongly)
    checked(check, tree)
    (case,) = check.take_cases()
    paths = [keep_case(case, tmp_path, at_ms) for at_ms in (1, 2, 3)]

    assert sorted(tmp_path.iterdir()) == paths[1:]
    assert keep_case(case, tmp_path, 3) not in paths, "a heartbeat may have two"
