"""The process that simulates: what it prints and how it ends after a fault of an engine."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from headrace.ids import TreeName
from headrace.pools import Tree
from headrace.resources import Resources
from headrace.wire.simulation import NodesOf, Setup, Simulation, SimulationTask
from headrace_simulator import __main__ as process
from headrace_simulator.simulated_node import BrokenReplay

TASK = SimulationTask(
    "jobs.csv", [Setup("native", Tree(TreeName("default")))], nodes=[NodesOf(1, Resources(1, 100, 0, 2**30))]
)


def run(task: SimulationTask, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["simulator", "simulate"])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(msgspec.msgpack.encode(task))))
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

    monkeypatch.setattr(process, "simulated", breaks)
    assert run(TASK, monkeypatch) == 1
    printed = capfd.readouterr()
    assert (printed.out, "it does not add up" in printed.err) == ("", True)
