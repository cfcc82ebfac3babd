"""Time limits through all services: on a healthy node, under a frozen agent, across restarts, and for whole operations.

The jobs would run for ten minutes. No command of a test waits for longer than its limit of 45 s, so that each test fails without the
time limit.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

import headrace
from headrace.wire.refusals import Refused
from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

_LONG = ("sh", "-c", "echo up; exec sleep 600")
#: Two seconds, with a second until the kill.
_LIMITED = ("--time-limit", "2s", "--interruption-timeout", "1s")
#: Long enough to freeze or to end a process before the limit is reached.
_LATER = ("--time-limit", "6s", "--interruption-timeout", "1s")


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up() as running:
        yield running


def view(up: Up, operation: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(up.run_until_answered("op", "get", operation, "--json").stdout)["operation"]
    return shown


def pid_of(up: Up, role: str) -> int:
    return min(each.pid for each in up.processes() if each.role.startswith(role))


def begun(up: Up, *options: str) -> tuple[str, int]:
    """An operation whose only job runs, and the process of the job."""
    operation = up.start_operation(*options, "--", *_LONG)
    up.wait_line(operation, "up")
    return operation, pid_of(up, "job")


def assert_timed_out(up: Up, operation: str, job: int) -> None:
    up.run_until_over(operation)
    over = view(up, operation)
    assert (over["state"], over["timed_out_jobs"], over["failed_jobs"], over["aborted_jobs"]) == ("failed", 1, 0, 0)
    assert over["reason"].startswith("1 of 1 job timed out, the time limit is ")
    assert not psutil.pid_exists(job)
    [row] = json.loads(up.run("op", "get", operation, "--jobs", "--json").stdout)["jobs"]
    assert row["result"] == "timed_out"


def test_a_job_is_gone_at_its_limit_and_its_operation_says_so(up: Up) -> None:
    operation, job = begun(up, *_LIMITED)
    assert_timed_out(up, operation, job)

    assert "timed out, signal 15: time limit of 2s reached" in up.run("op", "history", operation).stdout
    assert "1 of 1 job timed out" in up.run("op", "explain", operation).stdout
    shown = up.run("op", "get", operation, "--jobs").stdout
    assert "2s for each run of a job" in shown
    assert "job 0 attempt 1 on node alpha: time limit of 2s reached" in shown
    assert "job 0 timed out on node alpha: signal 15, reason above" in shown


def test_a_job_that_ignores_the_signal_is_killed_after_its_grace(up: Up) -> None:
    operation = up.start_operation(*_LIMITED, "--", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    up.wait_line(operation, "up")
    assert_timed_out(up, operation, pid_of(up, "job"))

    assert "signal 9" in up.run("op", "history", operation).stdout


def test_what_is_left_is_shown_while_a_job_runs(up: Up) -> None:
    limits = ("--time-limit", "2h", "--operation-time-limit", "1d")
    operation, _ = begun(up, *limits)

    shown = up.run("op", "get", operation, "--jobs").stdout
    assert re.search("2h for each run of a job; job 0 reaches it first, (2h|1h59m) left", shown)
    assert re.search("1d for the whole operation, from its first running slot; (1d|23h59m) left", shown)
    assert re.search("running, (2h|1h59m) left", shown)
    assert re.search("; (1d|23h59m) left", up.run("op", "explain", operation).stdout)
    up.run("op", "set", operation, "operation_time_limit=2d")
    assert re.search("; (2d|1d23h) left", up.run("op", "explain", operation).stdout)
    up.run("op", "set", operation, "operation_time_limit=none")
    assert "whole operation" not in up.run("op", "get", operation).stdout
    up.run("op", "abort", operation)


def test_an_interruptible_job_is_told_its_deadline_and_goes_on_in_its_next_run(up: Up) -> None:
    script = "trap 'cat $HEADRACE_DEADLINE > deadline; exit 75' TERM; echo up; [ -e deadline ] || while :; do sleep 0.05; done"
    operation = up.start_operation(*_LIMITED, "--interruptible", "--", "sh", "-c", script)
    up.run("op", "wait", operation)

    over = view(up, operation)
    assert (over["completed_jobs"], over["timed_out_jobs"], over["aborted_jobs"]) == (1, 0, 1)
    assert float((up.state / "deadline").read_text()) > 0
    assert "state saved for a retry; time limit of 2s reached" in up.run("op", "history", operation).stdout


async def test_a_limit_above_the_maximum_is_refused_as_it_was_given(up: Up) -> None:
    up.run("pool", "create", "short", "max_time_limit=1h")
    file = up.state / "work.yaml"
    file.write_text("command: ['true']\npool: short\ntime_limit: 2h\n")
    words = "2h cannot be used; expected at most 1h, max_time_limit of pool short in tree default"

    typed = up.run("run", "--pool", "short", "--time-limit", "2h", "--", "true", expect=4)
    assert f"--time-limit: {words}" in " ".join(typed.stderr.split())
    read = up.run("run", "--spec", str(file), expect=4)
    assert f"work.yaml:3: time_limit: {words}" in " ".join(read.stderr.split())
    async with headrace.connect(state=up.state) as client:
        with pytest.raises(Refused, match=f"^time_limit: {words}"):
            await client.run(["true"], pool="short", time_limit="2h")


async def test_the_client_sets_and_changes_time_limits(up: Up) -> None:
    async with headrace.connect(state=up.state) as client:
        slow = await client.run(["sleep", "600"], cpu=0.5, time_limit="1s", jobs=2)
        operation = await client.run(["sleep", "600"], cpu=0.5, operation_time_limit="1d")
        changed = await client.update(operation.id, operation_time_limit="1s")
        assert changed.spec.operation_time_limit_ms == 1_000

        timed_out, over = await slow.wait(), await operation.wait()

    assert (timed_out.timed_out_jobs, timed_out.given_up_jobs) == (2, 2)
    assert timed_out.reason.startswith("2 of 2 jobs timed out, the time limit is 1s")
    assert over.reason == "the time limit of the operation, 1s, is reached"


def test_under_a_frozen_agent_the_job_is_gone_all_the_same(up: Up) -> None:
    operation, job = begun(up, *_LATER)
    agent = pid_of(up, "agent")
    os.kill(agent, signal.SIGSTOP)
    try:
        assert psutil.pid_exists(job)
        while psutil.pid_exists(job):
            time.sleep(0.05)
        assert view(up, operation)["timed_out_jobs"] == 0  # only the agent could have reported it
    finally:
        os.kill(agent, signal.SIGCONT)

    assert_timed_out(up, operation, job)


def test_across_a_restart_of_the_agent_the_limit_stays_where_it_was(up: Up) -> None:
    operation, job = begun(up, *_LATER)
    before = pid_of(up, "agent")
    os.kill(before, signal.SIGKILL)

    assert_timed_out(up, operation, job)
    assert pid_of(up, "agent") != before


def test_an_operation_over_its_limit_fails_after_admission_was_killed(up: Up) -> None:
    operation, job = begun(up, "--operation-time-limit", "6s", "--interruption-timeout", "1s")
    os.kill(pid_of(up, "admission"), signal.SIGKILL)

    up.run_until_over(operation)
    over = view(up, operation)
    assert (over["state"], over["timed_out_jobs"], over["aborted_jobs"]) == ("failed", 0, 1)
    assert over["reason"] == "the time limit of the operation, 6s, is reached"
    assert not psutil.pid_exists(job)
    assert "failing (time limit)" in up.run("op", "history", operation).stdout


def test_pools_and_trees_have_defaults_and_maxima(up: Up) -> None:
    up.run("pool", "create", "batch", "max_time_limit=2h", "default_time_limit=2s")
    up.run("tree", "set", "default", "max_operation_time_limit=1d")
    refused = up.run("run", "--pool", "batch", "--time-limit", "3h", "--", "true", expect=4).stderr
    assert (
        "--time-limit: 3h cannot be used; expected at most 2h, max_time_limit of pool batch in tree default" in refused
    )
    refused = up.run("run", "--operation-time-limit", "2d", "--", "true", expect=4).stderr
    assert "at most 1d, max_operation_time_limit of tree default" in refused
    tried = up.run("run", "--pool", "batch", "--dry-run", "--", "true").stderr
    assert "the time limit of each run of a job would be 2s" in tried

    operation, job = begun(up, "--pool", "batch", "--interruption-timeout", "1s")

    assert_timed_out(up, operation, job)
    assert view(up, operation)["spec"]["operation_time_limit_ms"] == 86_400_000
