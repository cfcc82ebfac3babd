"""`headrace up --standby`: two of each service, of which one takes over when the other is stopped or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import psutil
import pytest

from tests.support.headrace_up import HEADRACE, Up

pytestmark = pytest.mark.long

#: Between two questions: without it they would take the processor from what they ask.
ASK_S = 0.2
ROLES = ["admission", "allocator.default", "fair_share.default", "integral.default"]


def processes(up: Up) -> list[dict[str, Any]]:
    """All processes of services, once each role has one that leads and one that stands by."""
    for _ in range(200):
        answer = msgspec.json.decode(up.run("service", "list", "--json", expect=None).stdout)
        found: list[dict[str, Any]] = answer["processes"]
        if not answer["missing"] and [one["role"] for one in found] == sorted(ROLES * 2):
            return found
        time.sleep(ASK_S)
    raise AssertionError(found)


def leaders(up: Up) -> dict[str, int]:
    """The processes that lead, by role."""
    answer = msgspec.json.decode(up.run("service", "list", "--json", expect=None).stdout)
    return {one["role"]: one["pid"] for one in answer["processes"] if one["leads"]}


def until_led_by_another(up: Up, role: str, pid: int) -> None:
    for _ in range(200):
        if leaders(up).get(role, pid) != pid:
            return
        time.sleep(ASK_S)
    raise AssertionError(f"nobody takes {role} over")


def runs_in_a_loop(up: Up, over: threading.Event, statuses: list[int]) -> None:
    while not over.is_set():
        command = [*HEADRACE, "run", "--", "true"]
        ran = subprocess.run(command, env=up.environment, cwd=up.state, capture_output=True, check=False)
        statuses.append(ran.returncode)


@pytest.mark.long
def test_a_loop_of_runs_notices_nothing_while_each_leader_is_asked_to_stop() -> None:
    over, statuses = threading.Event(), list[int]()
    with Up("--standby") as up:
        processes(up)
        loop = threading.Thread(target=runs_in_a_loop, args=(up, over, statuses))
        loop.start()
        try:
            for role, pid in leaders(up).items():
                os.kill(pid, signal.SIGTERM)
                until_led_by_another(up, role, pid)
            processes(up)
        finally:
            over.set()
            loop.join()

    assert statuses
    assert set(statuses) == {0}


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """For two tests, the second of which stops it."""
    with Up("--standby") as running:
        yield running


@pytest.mark.long
def test_a_frozen_leader_is_succeeded_and_finds_itself_deposed_when_it_wakes(up: Up) -> None:
    processes(up)
    for role, pid in leaders(up).items():
        frozen = psutil.Process(pid)
        os.kill(pid, signal.SIGSTOP)
        try:
            until_led_by_another(up, role, pid)
            operation = up.start_operation("--", "true")
            assert "completed" in up.run("op", "wait", operation).stderr
        finally:
            os.kill(pid, signal.SIGCONT)
        frozen.wait(30)
        logs = (up.state / "logs").glob(f"{role.partition('.')[0]}*.log")
        assert any('"event":"deposed"' in log.read_text() for log in logs), role
    processes(up)


@pytest.mark.long
def test_a_leader_that_is_stopped_or_killed_is_succeeded_and_no_start_fails(up: Up) -> None:
    terms = {one["role"]: one["term"] for one in processes(up) if one["leads"]}
    operations, killed = [], set[int]()
    for number in (signal.SIGTERM, signal.SIGKILL):
        for leader in [one for one in processes(up) if one["leads"]]:
            os.kill(leader["pid"], number)
            killed.add(leader["pid"])
            operations += [up.start_operation("--", "true") for _ in range(2)]

    after = processes(up)
    for operation in operations:
        assert "completed" in up.run("op", "wait", operation).stderr
    assert all(one["term"] > terms[one["role"]] + 1 for one in after if one["leads"])
    assert killed.isdisjoint(one["pid"] for one in after)
    assert up.stop() == 0
    assert up.processes() == []


def test_a_service_that_is_missing_is_told() -> None:
    with Up() as up:
        listed = up.run("service", "list").stdout
        assert [line.split()[0] for line in listed.splitlines()[1:]] == ROLES
        assert listed.count("leader") == 4
        allocator = next(one for one in up.processes() if one.role == "allocator")
        os.kill(allocator.pid, signal.SIGSTOP)
        try:
            missing = up.run("service", "list", expect=1).stdout
        finally:
            os.kill(allocator.pid, signal.SIGCONT)
        assert missing.splitlines()[-1].split() == ["allocator.default", "–", "missing", *"––––"]
