"""`headrace node drain`, `undrain` and `remove`."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec
import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long


def await_conditions(up: Up, **expected: str) -> None:
    """The allocator hears of a change a moment after it is recorded."""
    found: dict[str, str] = {}
    for _ in range(200):
        nodes = msgspec.json.decode(up.run("node", "list", "--json").stdout)["nodes"]
        found = {node["node"]: node["state"] for node in nodes}
        if found == expected:
            return
        time.sleep(0.1)
    raise AssertionError(found)


def test_a_node_is_drained_and_undrained_and_one_that_is_gone_is_removed() -> None:
    with Up(nodes=("alpha:cpu=1", "beta:cpu=1")) as up:
        up.environment["HEADRACE_ALLOCATOR_NODE_HEARTBEAT_TIMEOUT_MS"] = "2000"
        assert "no new jobs start" in up.run("node", "drain", "alpha").stdout
        await_conditions(up, alpha="drained", beta="online")
        operation = up.start_operation("--jobs", "4", "--", "sh", "-c", "echo $HEADRACE_NODE")
        up.run("op", "wait", operation)
        assert up.run("op", "logs", operation).stdout == "".join(f"{job}: beta\n" for job in range(4))
        refused = up.run("node", "remove", "beta", expect=4)
        assert (
            "node beta is online; expected a node that has been silent for 60 s, or a drained node without jobs"
            in refused.stderr
        )
        assert (
            "no tree 'defualt'; did you mean default?" in up.run("node", "list", "--tree", "defualt", expect=4).stderr
        )
        assert "there is no node 'gamma'" in up.run("node", "drain", "gamma", expect=4).stderr
        up.stop()
        up.nodes = ("beta:cpu=1",)
        up.start()

        await_conditions(up, alpha="unheard", beta="online")
        while up.run("node", "remove", "alpha", expect=None).returncode:
            time.sleep(0.2)  # it is not silent for long enough yet
        await_conditions(up, beta="online")
        up.run("node", "drain", "beta")
        await_conditions(up, beta="drained")
        up.run("node", "undrain", "beta")
        await_conditions(up, beta="online")


def test_a_drain_with_times_and_a_reason_ends_jobs_and_ends_itself() -> None:
    with Up(nodes=("alpha:cpu=1", "beta:cpu=1", "gamma:cpu=1")) as up:
        words = ("node", "drain", "beta", "gamma", "--at", "2999-01-01T06:00", "--reason", "move to the other room")
        said = up.run(*words).stdout.splitlines()
        assert [line.partition(": ")[0] for line in said] == ["node beta", "node gamma"]
        assert "from 2999-01-01 06:00:00 on no new jobs start on it" in said[0]
        until_true(up, lambda: "drained from 2999-01-01 06:00:00, move to the other room" in listed(up))

        operation = up.start_operation("--jobs", "3", "--", "sh", "-c", "echo $HEADRACE_NODE; exec sleep 600")
        until_true(up, lambda: running_on(up, operation) == ["alpha", "beta", "gamma"])
        up.run("node", "drain", "beta", "--until", "25s", "--abort-after", "0", "--reason", "new disk")
        until_true(up, lambda: running_on(up, operation) == ["alpha", "gamma"])
        shown = " ".join(up.run("node", "get", "beta").stdout.split())
        assert re.search(r"drain until [-0-9: ]+, jobs end at [-0-9: ]+, new disk, ordered by \S+ at ", shown), shown
        until_true(up, lambda: "1 more node takes no jobs now: beta is drained (new disk)" in explained(up, operation))
        assert "node drained" in up.run("op", "history", operation).stdout

        up.run("node", "undrain", "gamma")
        until_true(up, lambda: running_on(up, operation) == ["alpha", "beta", "gamma"])
        assert "drain" not in listed(up)
        assert " sessions " in up.run("service", "figures", "agent").stdout
        drained = up.run("node", "drain", "gamma").stdout
        assert drained == "node gamma: no new jobs start on it; 1 running job: headrace node get gamma\n"

        refused = up.run("node", "drain", "beta", "nobody", "--until", "2001-01-01T00:00", expect=4).stderr
        assert "a time in the future" in refused
        assert "there is no node 'nobody'" in refused


def running_on(up: Up, operation: str) -> list[str]:
    places = msgspec.json.decode(up.run("op", "get", operation, "--json").stdout)["places"]
    return sorted(place[2] if isinstance(place, list) else place["node"] for place in places["running"])


def explained(up: Up, operation: str) -> str:
    return " ".join(up.run("op", "explain", operation).stdout.split())


def listed(up: Up) -> str:
    return up.run("node", "list", "--wide").stdout


def until_true(up: Up, is_so: Callable[[], bool]) -> None:
    """Look again and again; a minute is more than anything here takes."""
    until_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until_s, listed(up)


@pytest.mark.long
def test_an_agent_with_another_state_folder_does_not_take_the_place_of_one_that_runs_jobs() -> None:
    """It knows nothing of them: believed, it would have them run a second time."""
    up = Up(nodes=("alpha:cpu=1",))
    # As on a host of its own.
    up.environment["HEADRACE_AGENT_MACHINE"] = ""
    with up:
        operation = up.start_operation("--", "sh", "-c", "echo up; until [ -e go ]; do sleep 0.1; done")
        up.wait_line(operation, "up")
        settings = (up.state / "agent-alpha.toml").read_text()
        assert settings.count("agents/alpha") == 1
        other = up.state / "other.toml"
        other.write_text(settings.replace("agents/alpha", "agents/other"))
        command = [sys.executable, "-m", "headrace_agent", "--config", str(other)]
        with subprocess.Popen(command, env=up.environment, stderr=subprocess.PIPE, text=True) as second:
            try:
                assert second.stderr is not None
                refused = next(line for line in second.stderr if '"refused"' in line)
            finally:
                second.terminate()
        (up.state / "go").touch()

        assert re.search(
            "node alpha is on .*, state folder [0-9a-f]{8}, heard .* s ago, and may run jobs there", refused
        )
        assert "completed" in up.run("op", "wait", operation).stderr
        view = msgspec.json.decode(up.run("op", "get", operation, "--json").stdout)["operation"]
        assert (view["lost_jobs"], view["aborted_jobs"]) == (0, 0)
