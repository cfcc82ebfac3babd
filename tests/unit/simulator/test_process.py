"""The process that simulates: what it prints and how it ends after a fault of an engine."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.ids import TreeName
from headrace.pools import Tree
from headrace.resources import Resources
from headrace.wire.simulation import NodesOf, Setup, SimulatedSetup, Simulation, SimulationTask
from headrace_simulator import __main__ as process
from headrace_simulator import side_by_side
from headrace_simulator.simulated_node import BrokenReplay
from headrace_simulator.simulation import Prepared, Tell, simulated

TASK = SimulationTask(
    "jobs.csv", [Setup("native", Tree(TreeName("default")))], nodes=[NodesOf(1, Resources(1, 100, 0, 2**30))]
)
SEVERAL = msgspec.structs.replace(
    TASK, setups=[Setup(name, Tree(TreeName("default")), is_fifo=name == "b") for name in "abc"], jobs_file="ended.csv"
)


def run(task: SimulationTask, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["simulator", "simulate"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(msgspec.msgpack.encode(task))))
    return process.main()


def test_a_fault_of_an_engine_is_printed_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.csv").write_text("submit,run\n0,10\n")
    monkeypatch.chdir(tmp_path)
    assert run(TASK, monkeypatch) == 0
    assert msgspec.json.decode(capfd.readouterr().out, type=Simulation).jobs == 1

    def breaks(*_: object) -> None:
        raise BrokenReplay("it does not add up")

    monkeypatch.setattr(side_by_side, "simulated", breaks)
    assert run(TASK, monkeypatch) == 1
    printed = capfd.readouterr()
    assert (printed.out, "it does not add up" in printed.err) == ("", True)


@pytest.fixture
def workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jobs.csv").write_text("submit,run,user\n" + "".join(f"{n},{n % 7},u{n % 3}\n" for n in range(20)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_configurations_give_the_same_side_by_side_as_in_turn(
    workload: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = []
    for cores in ({0}, {0, 1}, set(range(8))):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: cores)
        assert run(SEVERAL, monkeypatch) == 0
        printed = capfd.readouterr()
        found.append((printed.out, (workload / "ended.csv").read_text()))
        told = [int(line.split()[0]) for line in printed.err.splitlines()]
        assert told == sorted(told)
        assert told[-1] == 100

    assert found[0] == found[1] == found[2]
    answer = msgspec.json.decode(found[0][0], type=Simulation)
    assert [(each.name, each.cluster.completed) for each in answer.setups] == [("a", 20), ("b", 20), ("c", 20)]
    lines = found[0][1].splitlines()
    assert [line[0] for line in lines[1:]] == ["a"] * 20 + ["b"] * 20 + ["c"] * 20


def test_progress_is_told_while_a_configuration_still_waits_for_a_core(
    workload: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    def slowly(of: Prepared, number: int, tell: Tell, *rest: Any) -> SimulatedSetup:
        if number < 2:
            tell(1_000, 0.3 * (1 + number))
            time.sleep(1)
        return simulated(of, number, tell, *rest)

    monkeypatch.setattr(side_by_side, "simulated", slowly)
    assert run(SEVERAL, monkeypatch) == 0

    # 30 % and 60 % of two of three configurations; the one that is behind gives the name.
    assert re.search(r"^30 .* a$", capfd.readouterr().err, re.MULTILINE)


@pytest.mark.parametrize(
    ("fault", "seen"),
    [("an engine", "it does not add up"), ("the disk", "No space left"), ("a kill", "'b' ended with status -9")],
)
def test_a_fault_of_one_process_ends_all_and_leaves_no_file(
    fault: str, seen: str, workload: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    def breaks(of: Prepared, number: int, *rest: Any) -> SimulatedSetup:
        if number != 1:
            return simulated(of, number, *rest)
        if fault == "an engine":
            raise BrokenReplay("it does not add up")
        if fault == "the disk":
            raise OSError(28, "No space left on device")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    monkeypatch.setattr(side_by_side, "simulated", breaks)
    assert run(SEVERAL, monkeypatch) == (2 if fault == "the disk" else 1)
    printed = capfd.readouterr()
    assert seen in (printed.out if fault == "the disk" else printed.err)
    assert [path.name for path in workload.iterdir()] == ["jobs.csv"]
