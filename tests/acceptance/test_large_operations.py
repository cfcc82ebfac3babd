"""Operations of thousands of jobs through what goes wrong meanwhile. They take minutes."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import msgspec
import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

#: Far above what any of these takes on a busy machine.
_LIMIT_S = 600.0
#: The longest words that are kept of a job, and a failure. All of it is built into the shell: nothing else is started.
FAILS = ("sh", "-c", "printf '%02000d' 0 >&2; exit 1")
#: Ends with 99 if another process runs the same job.
ONCE = (
    "sh",
    "-c",
    'exec 9>>"$HEADRACE_JOB_INDEX.lock"; flock -n 9 || exit 99; sleep 0.05; echo ended >>"$HEADRACE_JOB_INDEX.story"',
)


def wait_for(up: Up, operation: str) -> str:
    """What `op wait` says in the end."""
    with up.begin("op", "wait", operation) as waiting:
        return waiting.communicate(timeout=_LIMIT_S)[1]


def view(up: Up, operation: str) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.json.decode(up.run("op", "get", operation, "--json").stdout)
    return shown["operation"]  # type: ignore[no-any-return]


def wait_until_ended(up: Up, operation: str, jobs: int) -> None:
    with_end = ("completed_jobs", "failed_jobs")
    deadline_s = time.monotonic() + _LIMIT_S
    while sum(view(up, operation)[count] for count in with_end) < jobs:
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


def service_pids(up: Up) -> dict[str, int]:
    return {each.role: each.pid for each in up.processes() if each.role not in ("job", "runner", "agent")}


def test_an_operation_whose_every_job_fails_with_long_words_ends_in_order_and_disturbs_nobody() -> None:
    """Some 120 such ends in one event once stopped the whole system for good; here admission is frozen while they pile up."""
    with Up(nodes=("alpha:cpu=12,memory=4G",)) as up:
        before = service_pids(up)
        failing = up.start_operation(
            "--pool",
            "many",
            "--jobs",
            "5000",
            "--cpu",
            "0.5",
            "--max-failed-job-count",
            "5000",
            "--retry-backoff",
            "0",
            "--",
            *FAILS,
        )
        wait_until_ended(up, failing, 300)
        os.kill(before["admission"], signal.SIGSTOP)
        time.sleep(3)
        os.kill(before["admission"], signal.SIGCONT)

        other = up.start_operation("--pool", "other", "--jobs", "20", "--cpu", "0.5", "--", "true")
        assert "completed" in wait_for(up, other)

        assert "failed" in wait_for(up, failing)
        ended = view(up, failing)
        assert (ended["state"], ended["completed_jobs"]) == ("failed", 0)
        assert ended["failed_jobs"] >= 5_000
        assert service_pids(up) == before


def test_an_operation_of_a_thousand_jobs_outlives_stops_and_kills_of_everything() -> None:
    with Up(nodes=("alpha:cpu=4,memory=4G",)) as up:
        operation = up.start_operation("--jobs", "1000", "--", *ONCE)
        wait_until_ended(up, operation, 100)
        assert up.stop() == 0
        up.start()
        wait_until_ended(up, operation, 300)
        up.stop(signal.SIGKILL)
        up.start()
        wait_until_ended(up, operation, 500)
        for process in up.processes():
            if process.role in ("nats-server", "admission", "allocator"):
                os.kill(process.pid, signal.SIGKILL)
        up.wait_said("nats-server.* ended .*SIGKILL.* restarting it")

        assert "completed" in wait_for(up, operation)

        shown = view(up, operation)
        assert (shown["completed_jobs"], shown["failed_jobs"]) == (1_000, 0)
        stories = [path for path in up.state.iterdir() if path.suffix == ".story"]
        assert len(stories) == 1_000
