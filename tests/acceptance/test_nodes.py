"""`headrace node drain`, `undrain` and `remove`."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import msgspec
import pytest

from tests.support.headrace_up import Up


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
