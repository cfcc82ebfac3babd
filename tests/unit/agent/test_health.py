"""The health command: which of its runs fail, with which words, and what the agent tells of a failure."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import anyio
import psutil
import pytest

from headrace.wire.heartbeat import AllocationState, NodeState
from headrace.wire.nodes import StopMode
from headrace_agent.effects import Trouble
from headrace_agent.host.health import HealthCommand
from tests.support.agent_desk import Desk, job, start

ENVIRONMENT = {"PATH": os.environ["PATH"], "GREETING": "hello"}
SECOND_MS = 1_000


async def fails(command: str, timeout_ms: int = 20 * SECOND_MS) -> str:
    return await HealthCommand(command, timeout_ms, ENVIRONMENT).failure()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("true", ""),
        ('test "$GREETING" = hello', ""),
        ("echo all is well", ""),
        ("exit 3", "health_command exited with status 3"),
        ("echo no disk; echo none >&2; exit 1", "health_command exited with status 1: no disk\nnone"),
        ("kill -9 $$", "health_command was ended by signal 9"),
        ("/nowhere/check", "health_command exited with status 127: "),
    ],
)
async def test_a_run_fails_unless_it_exits_with_0(command: str, words: str) -> None:
    failure = await fails(command)
    assert failure.startswith(words)
    assert bool(failure) is bool(words)


async def test_only_the_end_of_a_long_output_is_repeated() -> None:
    failure = await fails("seq 1000000; exit 1")
    assert failure.endswith("\n999999\n1000000")
    assert len(failure) < 600


async def test_a_run_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    failure = await fails(f"sleep 1000 & echo $! > {pids}; echo begun; wait", 500)
    assert failure == "health_command did not end within 500ms: begun"
    child = int(pids.read_text())
    for _ in range(200):
        if not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
            return
        await anyio.sleep(0.02)
    raise AssertionError("the child of the command still runs")


async def test_a_child_that_keeps_the_output_open_does_not_count_as_a_late_command() -> None:
    began = time.monotonic()
    assert await fails("sleep 1000 & exit 0") == ""
    assert time.monotonic() - began < 15


async def test_a_command_that_cannot_be_started_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert await fails("true") == "health_command cannot be started: Resource temporarily unavailable"


async def test_a_run_that_cannot_be_killed_fails_and_the_next_one_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(group: int, number: int) -> None:
        kill(group, 0)
        raise PermissionError

    runs = tmp_path / "runs"
    command = HealthCommand(f"echo $$ >> {runs}; test -e {tmp_path}/well || exec sleep 1000", 300, ENVIRONMENT)
    kill = os.killpg
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", refuse)
        assert await command.failure() == "health_command did not end within 300ms"
        pid = int(runs.read_text())
        assert (
            f"health_command (pid {pid}) did not end within 300ms and was killed, but its process still exists"
            == await command.failure()
        )
    assert runs.read_text() == f"{pid}\n"

    (tmp_path / "well").touch()
    os.killpg(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid)], timeout=20)
    assert await command.failure() == ""
    assert len(runs.read_text().split()) == 2


# --- the agent ----------------------------------------------------------------------------------------------------


def state(desk: Desk) -> NodeState:
    return desk.beat.state


def tell(desk: Desk, words: str) -> None:
    desk.do(desk.engine.on_trouble(Trouble.HEALTH, words, desk.now()))


def test_a_failing_health_command_drains_the_node_until_it_succeeds() -> None:
    desk = Desk(cpu=200)
    desk.turn(start("a", [0]))
    desk.started(job(0))
    tell(desk, "health_command exited with status 1: no disk")
    desk.turn(start("b", [1]))

    assert (desk.beat.state, desk.beat.trouble) == (NodeState.DRAINING, "health_command exited with status 1: no disk")
    states = {str(found.id): found.state for found in desk.beat.allocations}
    assert states["a"] is AllocationState.RUNNING
    assert states.get("b") in (AllocationState.ENDED, None)

    tell(desk, "")
    desk.turn()
    assert (desk.beat.state, desk.beat.trouble) == (NodeState.OPEN, "")


def test_other_trouble_does_not_drain_and_a_stop_outranks_a_failing_command() -> None:
    desk = Desk(cpu=200)
    desk.turn()
    desk.do(desk.engine.on_trouble(Trouble.LOGS, "disk full", desk.now()))
    desk.turn()
    assert state(desk) is NodeState.OPEN
    tell(desk, "health_command exited with status 1")
    desk.do(desk.engine.on_stop(StopMode.INTERRUPT, desk.now()))
    desk.turn()
    assert state(desk) is NodeState.STOPPING
