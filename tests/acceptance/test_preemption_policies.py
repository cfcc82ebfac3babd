"""Three tenants of weight 1, 2 and 1, with real jobs, of whom the third comes later: each policy brings everybody to its share."""

from __future__ import annotations

import json
import time

import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

_STAYS = "echo up; while :; do sleep 0.2; done"
TENANTS = {"one": 1, "two": 2, "three": 1}


def places(up: Up, pools: dict[str, int]) -> dict[str, int]:
    """Places that each pool has."""
    return {pool: int(up.run("pool", "get", pool, "usage/user_slots").stdout) for pool in pools}


def until(up: Up, expected: dict[str, int]) -> None:
    deadline = time.monotonic() + 60
    while (found := places(up, expected)) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


@pytest.mark.parametrize(
    "policy",
    [pytest.param("ytsaurus", marks=pytest.mark.long), "yarn", pytest.param("yarn_legacy", marks=pytest.mark.long)],
)
def test_tenants_come_to_their_shares(policy: str) -> None:
    with Up(nodes=("alpha:cpu=12,memory=12G",)) as up:
        for pool, weight in TENANTS.items():
            up.run("pool", "create", pool, f"weight={weight}")
        told = up.run("tree", "set", "default", f"preemption_policy={policy}", "fair_share_starvation_timeout=500ms",
            "fair_share_starvation_tolerance=1", "yarn={enabled: true, wait_before_kill: 1s, legacy_interval: 1s}")  # fmt: skip
        assert "until yarn/enabled is true" not in told.stdout + told.stderr
        work = ("--jobs", "12", "--cpu", "1", "--memory", "1G", "--", "sh", "-c", _STAYS)
        first = {pool: up.start_operation("--pool", pool, *work) for pool in ("one", "two")}
        until(up, {"one": 4, "two": 8})

        third = up.start_operation("--pool", "three", *work)

        until(up, {"one": 3, "two": 6, "three": 3})
        lines = up.run("op", "history", first["two"], "--json").stdout.splitlines()
        records = [each["preemption"] for line in lines if (each := json.loads(line)).get("preemption")]
        assert len(records) == 2
        for record in records:
            assert record["reason"] == ("pool_shortage" if policy == "yarn_legacy" else "preemption")
            assert record["beneficiary"] == ("" if policy == "yarn_legacy" else third)
        assert {record["timeout_ms"] for record in records} == {1_000 if policy == "yarn" else 10_000}
