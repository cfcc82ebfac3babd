"""Jobs with GPU devices of their own, on a host whose four devices exist in the settings only."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace_cli.up import process_marks
from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

#: A job that holds a lock for each of its devices, which the kernel releases at its end, however it ends.
_JOB = """
import fcntl, os, random, sys, time
names = os.environ["HEADRACE_GPUS"].split(",")
locks = [open(f"gpu-{name}.lock", "a") for name in names]
try:
    for lock in locks:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    open("clash", "a").write(f"{names}\\n")
with open("starts", "a") as starts:
    starts.write(" ".join([str(len(names)), *(os.environ[f"{name}_VISIBLE_DEVICES"] for name in ("CUDA", "ROCR"))]) + "\\n")
time.sleep(random.uniform(0.1, float(sys.argv[1])))
"""


@pytest.fixture
def up() -> Iterator[Up]:
    running = Up(nodes=("alpha:cpu=8,memory=4G,gpu=4",))
    with running:
        yield running


def devices(up: Up) -> dict[str, int | None]:
    """The index of the job that has each device of the node."""
    node = json.loads(up.run("node", "get", "alpha", "--json").stdout)
    return {gpu["name"]: gpu["index"] for gpu in node["gpus"]}


def places(up: Up, operation: str) -> list[Any]:
    answer = json.loads(up.run("op", "get", operation, "--jobs", "--json").stdout)
    found: list[Any] = answer["places"]["running"]
    return found


def run_jobs(up: Up, folder: Path, gpus: int, jobs: int, longest_s: float) -> str:
    command = (sys.executable, "-c", _JOB, str(longest_s))
    words = ("-c", "0.1", "-m", "64M", "--gpu", str(gpus), "--jobs", str(jobs), "--cwd", str(folder))
    return up.start_operation(*words, "--", *command)


def check(folder: Path, asked: dict[int, int]) -> None:
    """No two jobs had one device at a time, every run had as many as asked for, and all were used. `asked` counts jobs by GPUs."""
    assert not (folder / "clash").exists(), (folder / "clash").read_text()
    runs = [line.split() for line in (folder / "starts").read_text().splitlines()]
    for gpus, jobs in asked.items():
        assert sum(count == str(gpus) for count, _, _ in runs) >= jobs
    for count, cuda, rocr in runs:
        assert cuda == rocr
        assert len(set(cuda.split(","))) == int(count)
    assert {name for _, cuda, _ in runs for name in cuda.split(",")} == {"0", "1", "2", "3"}


def test_people_see_the_devices_and_a_job_sees_its_own(up: Up, tmp_path: Path) -> None:
    script = 'echo "cuda [$CUDA_VISIBLE_DEVICES] rocr [$ROCR_VISIBLE_DEVICES] own [$HEADRACE_GPUS]"; until [ -e go ]; do sleep 0.1; done'
    words = ("-c", "0.1", "--cwd", str(tmp_path))
    holding = up.start_operation(*words, "--gpu", "2", "--", "sh", "-c", script)
    without = up.start_operation(*words, "--", "sh", "-c", script)
    up.wait_line(holding, "cuda [0,1] rocr [0,1] own [0,1]")
    up.wait_line(without, "cuda [] rocr [] own []")

    while devices(up) != {"0": 0, "1": 0, "2": None, "3": None}:
        time.sleep(0.1)
    assert [place["gpus"] for place in places(up, holding)] == [["0", "1"]]
    assert [place["gpus"] for place in places(up, without)] == [[]]
    lines = [" ".join(line.split()) for line in up.run("node", "get", "alpha").stdout.splitlines()]
    assert f"gpu 1 job 0 of {holding}" in lines
    assert "gpu 2 free" in lines
    assert "0,1" in up.run("op", "get", holding, "--jobs").stdout

    large = up.start_operation(*words, "--gpu", "5", "--", "true")
    assert "gpu 5 (the most any node has is 4)" in " ".join(up.run("op", "explain", large).stdout.split())
    up.run("op", "abort", large)
    (tmp_path / "go").touch()
    up.run("op", "wait", holding)
    up.run("op", "wait", without)


@pytest.mark.long
def test_devices_of_running_jobs_are_disjoint_while_agent_and_runner_are_killed(up: Up, tmp_path: Path) -> None:
    operations = [run_jobs(up, tmp_path, 1, 12, 2.0), run_jobs(up, tmp_path, 2, 3, 2.0)]
    chance = random.Random(1)
    for role in ("agent", "runner", "agent", "agent", "runner", "agent"):
        time.sleep(chance.uniform(0.3, 1.5))
        process_marks.kill(up.state, frozenset({role}))
    for operation in operations:
        up.run("op", "wait", operation)

    check(tmp_path, {1: 12, 2: 3})
