"""Two real agents of which one is broken: few jobs fail there, people see why, and a node that is in order again gets jobs."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import psutil
import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long


@pytest.fixture
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=2,memory=2G", "beta:cpu=2,memory=2G")) as up:
        yield up


def configure(up: Up, name: str, **settings: str | int) -> None:
    """Kill the agent of a node; it begins anew with these settings, over those that it had."""
    file = up.state / f"agent-{name}.toml"
    kept = [line for line in file.read_text().splitlines() if line.partition(" ")[0] not in settings]
    file.write_text("\n".join([*kept, *(f"{key} = {value!r}" for key, value in settings.items())]) + "\n")
    (pid,) = [
        found.pid
        for found in up.processes()
        if found.role == "agent" and str(file) in psutil.Process(found.pid).cmdline()
    ]
    log = up.state / "logs" / f"agent-{name}.log"
    starts = log.read_text().count('"agent started"')
    os.kill(pid, signal.SIGKILL)
    until(lambda: log.read_text().count('"agent started"') > starts)
    until(lambda: node(up, name)["heartbeat_age_ms"] < 500)


def node(up: Up, name: str) -> dict[str, Any]:
    nodes = msgspec.json.decode(up.run("node", "list", "--json").stdout)["nodes"]
    return next(one for one in nodes if one["node"] == name)


def until(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come true")


def failed_on(up: Up, operation: str) -> list[str]:
    """The nodes on which jobs of an operation failed, one entry for each failure."""
    lines = up.run("op", "history", operation, "--json").stdout.splitlines()
    happened = [msgspec.json.decode(line) for line in lines]
    return [one["node"] for one in happened if one.get("result") == "failed"]


def test_sixty_jobs_complete_beside_an_agent_whose_environment_is_broken(up: Up) -> None:
    """The PATH of the jobs on beta has no program. Three operations run after one."""
    configure(up, "beta", path="/nowhere")

    first = up.start_operation("--jobs", "60", "--", "sleep", "0.1")
    up.run("op", "wait", first)
    assert 1 <= len(failed_on(up, first)) <= 3
    assert set(failed_on(up, first)) == {"beta"}

    others = [up.start_operation("--jobs", "20", "--", "sleep", "0.1") for _ in range(3)]
    for operation in others:
        up.run("op", "wait", operation)
    assert sum(len(failed_on(up, operation)) for operation in others) <= 3
    held_back = node(up, "beta")["held_back"]
    assert re.search(r"failed there, of [2-4] operations \(", held_back)
    assert "`headrace node undrain beta` clears it" in held_back
    assert "gets single jobs" in up.run("node", "get", "beta").stdout

    configure(up, "beta", path=os.environ["PATH"])
    up.run("node", "undrain", "beta")
    until(lambda: node(up, "beta")["held_back"] == "")
    last = up.start_operation("--jobs", "4", "--", "sh", "-c", "sleep 0.5; echo $HEADRACE_NODE")
    up.run("op", "wait", last)
    assert failed_on(up, last) == []
    assert ": beta\n" in up.run("op", "logs", last).stdout


def test_a_health_command_drains_its_node_while_it_fails(up: Up) -> None:
    proof = up.state / "disk-is-there"
    command = f"test -e {proof} || {{ echo the disk is gone; exit 1; }}"
    configure(up, "beta", health_command=command, health_interval_ms=200)
    until(lambda: node(up, "beta")["state"] == "draining")
    assert node(up, "beta")["trouble"] == "health_command exited with status 1: the disk is gone"
    operation = up.start_operation("--jobs", "4", "--", "sh", "-c", "echo $HEADRACE_NODE")
    up.run("op", "wait", operation)
    assert up.run("op", "logs", operation).stdout == "".join(f"{job}: alpha\n" for job in range(4))

    up.run("node", "drain", "beta")
    proof.touch()
    until(lambda: node(up, "beta")["trouble"] == "")
    # A person's drain stays.
    assert node(up, "beta")["state"] == "drained"
    up.run("node", "undrain", "beta")
    until(lambda: node(up, "beta")["state"] == "online")
