"""The check of the quick choice in production: what is wrong is kept as a case, which can be replayed; what is right never is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec
import pytest

from headrace.resources import Resources
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.checks import choices, kept_cases
from headrace_allocator.checks.choices import ChoiceCase, ChoiceCheck
from headrace_allocator.checks.kept_cases import keep_case
from headrace_allocator.decision.placing import place, start_regularly
from headrace_allocator.decision.plain_loop import next_in_line_plainly
from headrace_allocator.decision.view import Overlay
from headrace_allocator.effects import KeepCase
from headrace_allocator.facts.operations import Operation
from tests.support.choice_case import replay
from tests.support.random_orders import RandomTree


def figures_of(check: ChoiceCheck) -> list[float]:
    return [float(str(figure.value)) for figure in check.figures()]


@pytest.mark.parametrize("sample", [1, 3, 1_000])
def test_what_is_right_is_never_told_however_few_are_looked_at(sample: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "_SAMPLE", sample)
    check = ChoiceCheck(every=1)
    for seed in range(60):
        tree = RandomTree(Random(seed))
        for node in tree.nodes:
            check.begin()
            place(tree.overlay(node), choose=check.choose)

    checked, differing = figures_of(check)
    assert checked > 100
    assert (differing, check.take_cases()) == (0, [])


def test_only_one_heartbeat_of_very_many_is_checked() -> None:
    tree = RandomTree(Random(1))
    check = ChoiceCheck(every=5)
    for _ in range(14):
        check.begin()
        place(tree.overlay("n"), most=1, choose=check.choose)
    assert figures_of(check) == [2, 0]


def test_a_check_that_falls_on_a_heartbeat_with_nothing_to_choose_is_made_on_the_next_one() -> None:
    tree = RandomTree(Random(1))
    check = ChoiceCheck(every=5)
    for heartbeat in range(14):
        check.begin()
        if heartbeat in (3, 6, 13):
            place(tree.overlay("n"), most=1, choose=check.choose)
    assert figures_of(check) == [2, 0]


def test_a_choice_by_places_that_are_to_be_found_anew_is_not_told_as_wrong() -> None:
    """The room of the tree changed, and the shares of it mean something else."""
    checked = 0.0
    for seed in (2, 180, 344, *range(10, 40)):
        tree = RandomTree(Random(seed))
        tree.beat("n")
        tree.refresh()
        tree.change_shares()
        tree.nodes = {"n": tree.nodes["n"], "m": Resources(8, 4_000, 0, 2**30)}
        tree.engine.answers.check = check = ChoiceCheck(every=1)
        for node in ("m", "n"):
            tree.beat(node)
        assert figures_of(check) == [0, 0]
        tree.refresh()
        tree.beat("n")
        checked += figures_of(check)[0]
        assert check.take_cases() == []
    assert checked > 30


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
        tree.engine.answers.check = ChoiceCheck(every=1)
        with monkeypatch.context() as fault:
            fault.setattr(choices, "next_in_line", wrongly)
            tree.beat("n")
        (keep,) = [one for one in tree.tick(tree.now_s) if isinstance(one, KeepCase)][:1]
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
    check = ChoiceCheck(every=1)
    check.begin()
    monkeypatch.setattr(choices, "next_in_line", wrongly)
    place(tree.overlay("n"), choose=check.choose)
    (case,) = check.take_cases()
    paths = [keep_case(case, tmp_path, at_ms) for at_ms in (1, 2, 3)]

    assert sorted(tmp_path.iterdir()) == paths[1:]
    assert keep_case(case, tmp_path, 3) not in paths, "a heartbeat may have two"
