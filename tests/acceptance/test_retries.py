"""Jobs that fail are tried again after a back-off that people can see, and that outlives the services."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.support.headrace_up import Up

_LIMIT_S = 45.0


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=1,memory=1G",)) as running:
        yield running


def view(up: Up, operation: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(up.run("op", "get", operation, "--json").stdout)
    return shown["operation"]  # type: ignore[no-any-return]


def wait_until_it_pauses(up: Up, operation: str) -> None:
    deadline_s = time.monotonic() + _LIMIT_S
    while not view(up, operation)["pausing_jobs"]:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.mark.long
def test_without_a_choice_the_first_pause_is_short(up: Up) -> None:
    operation = up.start_operation("--", "sh", "-c", "[ $HEADRACE_ATTEMPT = 3 ]")
    up.run("op", "wait", operation)

    happened = map(json.loads, up.run("op", "history", operation, "--json").stdout.splitlines())
    ends = [each for each in happened if each["happened"] == "job_ended"]
    gaps = [after["started_at_ms"] - before["at_ms"] for before, after in pairwise(ends)]
    assert [end["result"] for end in ends] == ["failed", "failed", "completed"]
    assert gaps[0] >= 500
    assert gaps[1] >= 1_000


@pytest.mark.long
def test_the_next_attempt_is_told_and_comes_when_it_is_due_even_after_a_restart_of_everything(up: Up) -> None:
    fails = ("--", "sh", "-c", "echo $HEADRACE_ATTEMPT >> runs; exit 1")
    long = up.start_operation("--retry-backoff", "1h", "--longest-retry-backoff", "1h", *fails)
    wait_until_it_pauses(up, long)
    begun = up.start_operation("--retry-backoff", "12s", "--max-failed-job-count", "2", *fails)
    wait_until_it_pauses(up, begun)

    shown = up.run("op", "get", long).stdout
    assert "to be retried  1 failed job, in 59m" in shown
    assert "0 running, 0 pending" in shown
    assert "to be retried: 1 failed job, in 59m" in up.run("op", "explain", long).stdout
    assert "failed, to be retried" in up.run("op", "get", long, "--jobs").stdout
    due = view(up, begun)["next_retry_at_ms"]

    up.stop()
    up.start()

    assert view(up, begun)["next_retry_at_ms"] in (due, 0)
    assert f"\n{begun} failed: 0 of 1 jobs" in "\n" + up.run("op", "wait", begun, expect=1).stderr
    jobs = json.loads(up.run("op", "get", begun, "--jobs", "--json").stdout)["jobs"]
    assert jobs[0]["slot"]["attempt"] == 2
    assert view(up, long)["pausing_jobs"] == 1
    assert (up.state / "runs").read_text().splitlines() == ["1", "1", "2"]
