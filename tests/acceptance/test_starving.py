"""`headrace pool starving`, and what a pool and an operation that starve say of it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.support.headrace_up import Up


@pytest.mark.long
def test_a_pool_whose_jobs_get_no_place_is_listed_with_the_operation_that_may_preempt() -> None:
    with Up(nodes=("alpha:cpu=1,memory=1G",)) as up:
        up.run("tree", "set", "default", "preemption=off", "fair_share_starvation_timeout=1s")
        assert "nothing starves" in up.run("pool", "starving").stderr
        assert json.loads(up.run("pool", "starving", "--json").stdout) == {"starving": []}
        runs = up.start_operation("--pool", "full", "--", "sh", "-c", "echo up; until [ -e go ]; do sleep 0.1; done")
        up.wait_line(runs, "up")
        waits = up.start_operation("--pool", "idle", "--", "true")
        deadline = time.monotonic() + 60
        found: list[Any] = []
        while len(found) < 2:
            time.sleep(0.2)
            assert time.monotonic() < deadline, found
            found = json.loads(up.run("pool", "starving", "--json").stdout)["starving"]

        assert {each["name"]: each["may_preempt"] for each in found} == {"idle": {}, waits: {waits: "normal"}}
        table = up.run("pool", "starving").stdout
        assert waits in table
        assert "fair share" in table
        pool = up.run("pool", "get", "idle").stdout
        assert "below fair share   for " in pool
        assert "for its fair share" in pool
        assert up.run("pool", "get", "idle", "starvation_reason").stdout == "fair_share\n"
        assert "in the normal stage: it starves itself" in up.run("op", "get", waits).stdout
        explained = up.run("op", "explain", waits).stdout
        assert "that it is owed: satisfaction 0.00" in explained
        assert "nothing is preempted in pools that do not allow it: <Root> (off)" in explained
        assert "no node has free resources for a job of cpu 1" in explained
        assert "→ wait until jobs on a node end, or are preempted while it starves" in explained
        assert "1 could run its job if they were empty, 0 have free resources for it now" in explained
        (told,) = json.loads(up.run("op", "explain", waits, "--json").stdout)["trees"].values()
        assert [cause["kind"] for cause in told["waiting"]["causes"]] == ["places_kept", "no_room_on_any_node"]
        assert f"headrace op explain {waits}" in up.run("op", "get", waits).stdout
        assert f"did you mean {waits}?" in up.run("op", "explain", f"{waits[:-1]}-0", expect=4).stderr
        (up.state / "go").touch()
        up.run("op", "wait", waits)
