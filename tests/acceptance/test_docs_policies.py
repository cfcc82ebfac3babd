"""The recipe of docs/why/policies.md for a pool that must be served fast, typed as it stands there, under each policy."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from headrace.pools import PreemptionPolicy
from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

PAGE = Path(__file__).parents[2] / "docs" / "why" / "policies.md"
SHORT = (
    *("allocation_preemption_timeout=1s", "preemptive_scheduling_backoff=200ms"),
    *("yarn/wait_before_kill=1s", "yarn/legacy_interval=1s"),
)
#: Of an operation that starves beside a pool that returns nothing.
EXPLAINED = {
    PreemptionPolicy.YTSAURUS: "nothing is preempted in pools that do not allow it: serving (off)",
    PreemptionPolicy.YARN: "under the tree's YARN policy it is due cpu ",
    PreemptionPolicy.YARN_LEGACY: "under yarn_legacy, allocations are preempted for starving pools",
}


def until(up: Up, expected: dict[str, int]) -> None:
    """Waits until pools have so many places."""
    deadline = time.monotonic() + 60
    found: dict[str, int] = {}
    while found != expected:
        assert time.monotonic() < deadline, found
        found = {pool: int(up.run("pool", "get", pool, "usage/user_slots").stdout) for pool in expected}


def made_room(up: Up, operation: str) -> int:
    """How many of its jobs made room for others."""
    lines = up.run("op", "history", operation, "--json").stdout.splitlines()
    return sum(bool(json.loads(line).get("preemption")) for line in lines)


@pytest.mark.parametrize(
    "policy",
    [
        PreemptionPolicy.YTSAURUS,
        pytest.param(PreemptionPolicy.YARN, marks=pytest.mark.long),
        pytest.param(PreemptionPolicy.YARN_LEGACY, marks=pytest.mark.long),
    ],
)
@pytest.mark.long
def test_a_pool_that_must_be_served_fast_gets_its_share_and_returns_nothing(policy: PreemptionPolicy) -> None:
    with Up(nodes=("alpha:cpu=12,memory=12G",)) as up:

        def wait(line: str) -> None:
            if line.startswith("tree set"):
                up.run("tree", "set", "default", f"preemption_policy={policy}", *SHORT)
            if "--id nightly-work" in line:
                until(up, {"batch": 12})

        typed(up, PAGE, wait)
        until(up, {"batch": 9, "serving": 3})

        # While the others are idle it has all that its limit allows, and keeps that when they return.
        up.run("op", "abort", "nightly-work")
        until(up, {"batch": 0, "serving": 6})
        up.run("pool", "set", "batch", "fair_share_starvation_timeout=100ms", "fair_share_starvation_tolerance=1")
        up.run("run", "--pool", "batch", "--id", "back-again", "--jobs", "12", "--", "sleep", "600")
        deadline = time.monotonic() + 60
        while "batch" not in (starving := up.run("pool", "starving").stdout):
            assert time.monotonic() < deadline, starving
        until(up, {"batch": 6, "serving": 6})
        assert EXPLAINED[policy] in up.run("op", "explain", "back-again").stdout
        assert [made_room(up, operation) for operation in ("nightly-work", "requests")] == [3, 0]
