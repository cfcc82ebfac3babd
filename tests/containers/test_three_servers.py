"""Profile `ha`: three servers and two of each service. One server and two leaders die while an operation runs, and all complete."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.containers.stack import SERVICES, Stack, agent, run, running_stack
from tests.containers.test_stack import operation_at_work


@pytest.fixture(scope="module")
def three() -> Iterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="hr-") as folder, running_stack(Path(folder), is_ha=True) as running:
        yield running


@pytest.fixture(scope="module")
def host_of_three(three: Stack) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hr-") as folder:
        place = Path(folder)
        with agent(three, three.token("outside", "--tag", "outside"), place / "state", HEADRACE_AGENT_CPU="1"):
            yield place


def told(stack: Stack) -> dict[str, Any]:
    """What `service list` says. It exits with 1 while a role has no leader."""
    command = [sys.executable, "-m", "headrace_cli", "service", "list", "--json"]
    return dict(json.loads(subprocess.run(command, env=stack.environment, capture_output=True, check=False).stdout))


def whole(stack: Stack) -> dict[str, Any]:
    """What `service list` says once two of each service answer and have agreed on who leads, or what it says after a minute.

    All are healthy before, and the servers agree on who leads the log meanwhile.
    """
    deadline_s = time.monotonic() + 60
    while True:
        now = told(stack)
        if (len(now["processes"]) == 2 * len(SERVICES) and not now["missing"]) or time.monotonic() > deadline_s:
            return now
        time.sleep(0.5)


def leaders(stack: Stack) -> dict[str, str]:
    """The container of the process that leads each role."""
    views = told(stack)["processes"]
    leads = {view["role"].partition(".")[0]: view["instance"] for view in views if view["leads"]}
    return {role: stack.container(instance.replace("-", "_")) for role, instance in leads.items()}


def test_all_servers_have_everything_and_somebody_stands_by_for_each_service(three: Stack) -> None:
    now = whole(three)
    roles = [view["role"].partition(".")[0] for view in now["processes"]]

    assert now["missing"] == []
    assert sorted(roles) == sorted([*SERVICES, *SERVICES])


def test_operations_outlive_a_server_and_the_leaders_of_services(three: Stack, host_of_three: Path) -> None:
    # The first address that everybody has.
    server = three.container("nats")
    whole(three)
    with operation_at_work(three, host_of_three):
        before = leaders(three)
        run(["docker", "kill", server, before["admission"], before["allocator"]])
        three.headrace("run", "--id", "started-without-them", "--", "true")
    three.headrace("op", "wait", "started-without-them")
    now = leaders(three)

    assert {role for role in SERVICES if now[role] != before[role]} >= {"admission", "allocator"}
    assert not json.loads(run(["docker", "inspect", server]))[0]["State"]["Running"]
