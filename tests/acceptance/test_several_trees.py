"""`headrace up --tree one --tree two`: several trees on one bus, and operations that run jobs in both."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

BOTH = ("--pool-tree", "one", "--pool-tree", "two")
#: A job keeps a lock of its own while it runs, tells its node and attempt, and fails where somebody has the lock.
JOB = (
    "exec 9>>lock.$HEADRACE_JOB_INDEX; flock -n 9 || exit 99; "
    'echo "$HEADRACE_JOB_INDEX $HEADRACE_ATTEMPT $HEADRACE_NODE" >>ran; sleep {}'
)


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """Each test has a pool of its own; the one that kills comes last."""
    with Up("--tree", "one", "--tree", "two", nodes=("alpha:cpu=2,memory=1G", "beta:cpu=2,memory=1G")) as running:
        yield running


def ran(folder: Path) -> list[tuple[int, str]]:
    """The index and the node of each run."""
    lines = [line.split() for line in (folder / "ran").read_text().splitlines()]
    return [(int(index), node) for index, _, node in lines]


def get(up: Up, operation: str) -> Any:
    return msgspec.json.decode(up.run("op", "get", operation, "--json").stdout)


def wait_until_it_runs_in_both(up: Up, operation: str) -> None:
    for _ in range(100):
        told = get(up, operation)
        assert told["operation"]["state"] in ("running", "pending"), told
        if all(each["places"] and each["places"]["running_jobs"] for each in told["trees"].values()):
            return
    raise AssertionError(told)


def test_one_operation_runs_jobs_in_both_trees_at_once_and_each_of_them_once(up: Up, tmp_path: Path) -> None:
    job = ("--jobs", "40", "--cwd", str(tmp_path), "--", "bash", "-c", JOB.format(0.3))
    operation = up.start_operation(*BOTH, "--pool", "ran-in-both", *job)

    wait_until_it_runs_in_both(up, operation)
    shown = up.run("op", "get", operation).stdout
    up.run("op", "wait", operation)

    assert sorted(index for index, _ in ran(tmp_path)) == list(range(40))
    assert {node for _, node in ran(tmp_path)} == {"alpha", "beta"}
    assert "in tree one" in shown
    assert "in tree two" in shown
    view = get(up, operation)["operation"]
    assert (view["state"], view["completed_jobs"], view["failed_jobs"]) == ("completed", 40, 0)


def test_an_operation_runs_in_one_tree_while_it_waits_in_the_other_and_pools_of_each_are_kept_apart(up: Up) -> None:
    up.environment["HEADRACE_TREE"] = "two"
    up.run("pool", "create", "apart", "max_running_operation_count=0")
    pools = up.run("pool", "list").stdout
    del up.environment["HEADRACE_TREE"]

    operation = up.start_operation(*BOTH, "--pool", "apart", "--", "sleep", "60")
    shown = up.run("op", "get", operation).stdout
    up.run("op", "abort", operation)
    up.run("op", "wait", operation, expect=None)

    assert " apart " in pools
    assert "in tree two" in shown
    assert "pool apart, waits at apart" in shown
    assert get(up, operation)["operation"]["state"] == "aborted"


@pytest.mark.long
def test_admission_and_an_allocator_are_killed_and_every_job_runs_once(up: Up, tmp_path: Path) -> None:
    job = ("--jobs", "30", "--cwd", str(tmp_path), "--", "bash", "-c", JOB.format(0.5))
    operation = up.start_operation(*BOTH, "--pool", "ran-once", *job)
    wait_until_it_runs_in_both(up, operation)

    for role in ("admission", "allocator"):
        for process in [one for one in up.processes() if one.role == role]:
            os.kill(process.pid, signal.SIGKILL)
    up.run("op", "wait", operation)

    assert sorted(index for index, _ in ran(tmp_path)) == list(range(30))
    view = get(up, operation)["operation"]
    assert (view["state"], view["completed_jobs"], view["failed_jobs"]) == ("completed", 30, 0)
