"""`headrace pool starving`, and what a pool and an operation that starve say of it."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.support.headrace_up import Up


def test_a_pool_whose_jobs_get_no_place_is_listed_with_the_operation_that_may_preempt() -> None:
    with Up(nodes=("alpha:cpu=1,memory=1G",)) as up:
        up.run("tree", "set", "default", "preemption=off", "fair_share_starvation_timeout=1s")
        assert "nothing starves" in up.run("pool", "starving").stderr
        assert json.loads(up.run("pool", "starving", "--json").stdout) == []
        runs = up.start_operation("--pool", "full", "--", "sh", "-c", "echo up; until [ -e go ]; do sleep 0.1; done")
        up.wait_line(runs, "up")
        waits = up.start_operation("--pool", "idle", "--", "true")
        deadline = time.monotonic() + 60
        found: list[Any] = []
        while len(found) < 2:
            assert time.monotonic() < deadline, found
            found = json.loads(up.run("pool", "starving", "--json").stdout)

        assert {each["name"]: each["may_preempt"] for each in found} == {"idle": {}, waits: {waits: "normal"}}
        table = up.run("pool", "starving").stdout
        assert waits in table
        assert "fair share" in table
        pool = up.run("pool", "get", "idle").stdout
        assert "below fair share   for " in pool
        assert "for its fair share" in pool
        assert up.run("pool", "get", "idle", "starvation_reason").stdout == "fair_share\n"
        assert "in the normal stage: it starves itself" in up.run("op", "get", waits).stdout
        (up.state / "go").touch()
        up.run("op", "wait", waits)
