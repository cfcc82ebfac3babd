"""The tools of a soak: its places are in the code, and its witness sees what it is there to see."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.kill_points import KILL_POINTS, KillPoint

WITNESS = Path(__file__).parents[1] / "soak" / "witness.py"


@pytest.mark.parametrize("point", KILL_POINTS, ids=lambda point: point.key)
def test_every_kill_point_is_in_the_code(point: KillPoint) -> None:
    owner, _, function = point.function.partition(".")

    assert callable(getattr(getattr(importlib.import_module(point.module), owner), function))


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
