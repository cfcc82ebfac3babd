"""The tools of a soak: its places are in the code, and its witness sees what it is there to see."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.__main__ import Tally
from tests.soak.kill_points import KILL_POINTS, KillPoint
from tests.soak.rounds import Hit

WITNESS = Path(__file__).parents[1] / "soak" / "witness.py"


@pytest.mark.parametrize("point", KILL_POINTS, ids=lambda point: point.key)
def test_every_kill_point_is_in_the_code(point: KillPoint) -> None:
    owner, _, function = point.function.partition(".")

    assert callable(getattr(getattr(importlib.import_module(point.module), owner), function))


def test_every_process_of_the_product_has_kill_points() -> None:
    services = {"admission", "allocator", "fair_share", "integral"}

    assert {point.role for point in KILL_POINTS} == services | {"agent", "runner"}


def test_a_tally_says_how_often_each_place_was_hit_and_which_never() -> None:
    tally = Tally()
    for words, was_hit in (
        ("agent: enrolled (kill)", True),
        ("agent: enrolled (freeze)", False),
        ("up killed", False),
    ):
        tally.add(Hit(words, was_hit, operations=1, jobs=3, ran_again=1))

    assert tally.lines() == ["   1 of   2  agent: enrolled", "   0 of   1  up killed"]
    assert tally.missed == ["up killed"]
    assert (tally.jobs, tally.ran_again) == (9, 3)


def test_no_two_kill_points_have_one_name() -> None:
    assert len({point.key for point in KILL_POINTS}) == len(KILL_POINTS)


def test_the_witness_tells_when_a_job_runs_twice(tmp_path: Path) -> None:
    def witness(attempt: int, seconds: float) -> subprocess.Popen[str]:
        environment = {**os.environ, "HEADRACE_JOB": f"operation.0.{attempt}"}
        command = [sys.executable, "-SE", "-u", str(WITNESS), str(tmp_path), str(seconds)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    with witness(1, 1000) as first:
        while not (tmp_path / "operation.0").exists() or not (tmp_path / "operation.0").read_text():
            pass
        with witness(2, 0) as second:
            assert second.wait() == 99
        first.kill()
    with witness(3, 0) as third:
        assert third.wait() == 0

    assert (tmp_path / "twice").read_text() == "operation.0 attempt 2\n"
    assert (tmp_path / "operation.0").read_text() == "began 1\nbegan 3\nended 3\n"
