"""A tree that only observes preemption: what would be taken is shown, the jobs stay, and switched on it is taken."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.support.headrace_up import Up


@pytest.mark.long
def test_what_would_be_taken_is_shown_until_it_is_switched_on_and_taken() -> None:
    with Up() as up:
        up.run("tree", "set", "default", "preemption=observe", "fair_share_starvation_timeout=500ms")
        up.run("tree", "set", "default", "preemptive_scheduling_backoff=0")
        until_told = ("sh", "-c", "echo up; until [ -e go ]; do sleep 0.1; done")
        stays = up.start_operation("--pool", "full", "--jobs", "2", "--", *until_told)
        for index in range(2):
            up.wait_line(stays, f"{index}: up")
        assert "nothing would have been so far" in up.run("pool", "get", "full").stdout
        waits = up.start_operation("--pool", "idle", "--", "true")

        found = would_take(up, waits)

        (record,) = found
        assert (record["operation"], record["pool"], record["node"]) == (stays, "full", "alpha")
        assert (record["record"]["observed"], record["record"]["beneficiary"]) == (True, waits)
        assert "would preempt 1" in up.run("pool", "starving").stdout
        shown = up.run("pool", "get", "full").stdout
        assert f"an allocation of {stays} on alpha" in shown
        assert f"for {waits}, which starves" in shown
        assert json.loads(up.run("pool", "get", "full", "--json").stdout)["observed_preemptions"] == found
        assert "0 of 2 done, 2 running" in up.run("op", "get", stays).stdout

        up.run("tree", "set", "default", "preemption=on")
        up.run("op", "wait", waits)
        (up.state / "go").touch()
        up.run("op", "wait", stays)


def would_take(up: Up, operation: str) -> list[Any]:
    """What the operation would have taken, as soon as that is recorded."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        starving = json.loads(up.run("pool", "starving", "--json").stdout)["starving"]
        found: list[Any] = next((each["would_take"] for each in starving if each["name"] == operation), [])
        if found:
            return found
    raise AssertionError("nothing was recorded")
