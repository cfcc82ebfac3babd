"""Who gives up how much for whom, through all services and with real jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.resources import EPS
from tests.support.headrace_up import Up

#: Says that it runs, and never ends by itself.
_STAYS = "echo up; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("one:cpu=4,memory=1G,tag=one", "two:cpu=4,memory=1G,tag=two")) as running:
        for pool in ("research", "production"):
            running.run("pool", "create", pool)
        running.run(
            "tree", "set", "default", "fair_share_starvation_timeout=500ms",
            "fair_share_aggressive_starvation_timeout=1s", "preemptive_scheduling_backoff=100ms",
        )  # fmt: skip
        yield running


@pytest.fixture(autouse=True)
def nothing_runs(up: Up) -> Iterator[None]:
    yield
    listed = json.loads(up.run("op", "list", "--json").stdout)["operations"]
    for operation in listed:
        up.run("op", "abort", operation["operation"], expect=None)
    for operation in listed:
        up.run("op", "wait", operation["operation"], expect=None)


def staying(up: Up, pool: str, jobs: int, cpu: int, node: str = "") -> str:
    """An operation all of whose jobs run until they are told to end."""
    pinned = ["--node-filter", node] if node else []
    words = ["--pool", pool, "--jobs", str(jobs), "--cpu", str(cpu), "--memory", "10M", *pinned]
    operation = up.start_operation(*words, "--", "sh", "-c", _STAYS)
    up.wait_line(operation, "up", times=jobs)
    return operation


def preemptions(up: Up, operation: str) -> list[dict[str, Any]]:
    """Records of the jobs that made room and have ended."""
    lines = up.run("op", "history", operation, "--json").stdout.splitlines()
    return [each["preemption"] for line in lines if (each := json.loads(line)).get("preemption")]


def until_preempted(up: Up, operation: str, count: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 60
    while len(found := preemptions(up, operation)) < count:
        assert time.monotonic() < deadline, found
    return found


def tried_in_vain(up: Up, operation: str) -> int:
    """Nodes on which something was to be taken for the operation, and could not."""
    (told,) = json.loads(up.run("op", "explain", operation, "--json").stdout)["trees"].values()
    return told["waiting"]["tries"]["short"] or 0


def test_a_pool_that_returns_gets_its_guarantee_and_nobody_gives_up_more(up: Up) -> None:
    up.run("pool", "set", "production", "strong_guarantee_resources={cpu: 2}")
    # Owed a share of what the borrower has, so that more could be taken from it; but it never starves, and fits nowhere.
    up.run("pool", "create", "patient", "fair_share_starvation_timeout=1h")
    borrower = staying(up, "research", 8, 1)
    up.start_operation("--pool", "patient", "--cpu", "4", "--memory", "10M", "--", "true")
    while fair_share_of_cpu(up, "patient") < 0.3:
        time.sleep(0.1)

    returning = staying(up, "production", 2, 1)

    found = until_preempted(up, borrower, 2)
    assert [each["reason"] for each in found] == ["preemption"] * 2
    assert {each["beneficiary"] for each in found} == {returning}
    assert all(each["share_after"]["cpu"] >= each["fair_share"]["cpu"] + 0.2 for each in found)
    kept = json.loads(up.run("op", "get", borrower, "--json").stdout)["operation"]
    assert (kept["aborted_jobs"], kept["failed_jobs"], kept["lost_jobs"]) == (2, 0, 0)


def fair_share_of_cpu(up: Up, pool: str) -> float:
    (told,) = json.loads(up.run("pool", "get", pool, "fair_share/total/cpu", "--json").stdout).values()
    return float(told)


@pytest.mark.long
def test_a_big_job_gets_onto_a_fragmented_node_by_aggressive_preemption_only(up: Up) -> None:
    small = [staying(up, "research", 2, 1, node) for node in ("one", "two")]
    big = up.start_operation("--pool", "production", "--cpu", "3", "--memory", "10M", "--", "sh", "-c", _STAYS)
    deadline = time.monotonic() + 60
    while tried_in_vain(up, big) < 2:
        assert time.monotonic() < deadline
    assert [preemptions(up, each) for each in small] == [[], []]

    up.run("tree", "set", "default", "enable_aggressive_starvation=true")
    up.wait_line(big, "up")

    deadline = time.monotonic() + 60
    while not (found := [record for each in small for record in preemptions(up, each)]):
        assert time.monotonic() < deadline
    (record,) = found
    assert (record["reason"], record["group"], record["beneficiary"]) == ("aggressive_preemption", 1, big)
    assert record["share_after"]["cpu"] >= 0.5 * record["fair_share"]["cpu"] - EPS
    up.run("tree", "set", "default", "enable_aggressive_starvation=false")


@pytest.mark.long
def test_a_limit_that_was_lowered_is_repaid(up: Up) -> None:
    operation = staying(up, "research", 4, 1)

    up.run("pool", "set", "research", "resource_limits={cpu: 2}", "--yes")

    found = until_preempted(up, operation, 2)
    assert [each["reason"] for each in found] == ["resource_limits_violated"] * 2
    assert {each["beneficiary"] for each in found} == {""}
    up.run("pool", "set", "research", "resource_limits=")
