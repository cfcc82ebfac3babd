"""An idle pool comes back to a machine that is full: what the jobs do that make room for it, through all services."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

#: Counts up, and says from where it began.
_SAVES = """
saved=saved-$HEADRACE_JOB_INDEX
count=$(cat $saved 2>/dev/null || echo 0)
trap 'echo $count > $saved; exit 75' USR1
echo "from $count"
while [ ! -e enough ]; do sleep 0.02; count=$((count + 1)); done
"""
_IS_DONE = "trap 'exit 0' TERM; echo from 0; while :; do sleep 0.02; done"
_IS_DEAF = "trap '' TERM; echo from 0; while :; do sleep 0.02; done"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up() as running:
        for pool in ("research", "production"):
            running.run("pool", "create", pool)
        running.run("tree", "set", "default", "fair_share_starvation_timeout=500ms", "preemptive_scheduling_backoff=0")
        yield running


def research(up: Up, script: str, *options: str) -> str:
    """Two jobs that take the whole machine and would never end."""
    operation = up.start_operation("--pool", "research", "--jobs", "2", *options, "--", "sh", "-c", script)
    for index in range(2):
        up.wait_line(operation, f"{index}: from 0")
    return operation


def production_returns(up: Up) -> None:
    """One job is owed half of the machine, and runs to its end."""
    up.run("run", "--pool", "production", "--wait", "--", "true")


def view(up: Up, operation: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(up.run_until_answered("op", "get", operation, "--json").stdout)["operation"]
    return shown


def preemptions(up: Up, operation: str) -> list[Any]:
    """The records of its preempted jobs, as its history tells them."""
    lines = up.run_until_answered("op", "history", operation, "--json").stdout.splitlines()
    return [one["preemption"] for one in map(json.loads, lines) if one.get("preemption")]


def kill(up: Up, role: str) -> None:
    """Kills a process, which is started again."""
    victim = next(process for process in up.processes() if process.role == role)
    os.kill(victim.pid, signal.SIGKILL)
    up.wait_said(f"{role}.* ended .*SIGKILL.* restarting it")


def allocations(up: Up) -> int | None:
    """How many the allocator knows on the node, or None while it does not answer."""
    listed = up.run("node", "list", "--json", expect=None)
    return json.loads(listed.stdout)["nodes"][0]["allocations"] if listed.returncode == 0 else None


def test_a_job_saves_its_state_makes_room_and_goes_on_where_it_was(up: Up) -> None:
    operation = research(up, _SAVES, "--interruptible", "--interrupt-signal", "USR1")

    production_returns(up)
    (saved,) = up.state.glob("saved-*")
    count = int(saved.read_text())
    up.wait_line(operation, f"{saved.name.removeprefix('saved-')}: from {count}")
    (up.state / "enough").touch()
    up.run("op", "wait", operation)

    over = view(up, operation)
    assert count > 0
    assert (over["completed_jobs"], over["failed_jobs"], over["aborted_jobs"]) == (2, 0, 1)


@pytest.mark.long
def test_neither_a_killed_allocator_nor_a_killed_agent_forgets_that_a_job_makes_room(up: Up) -> None:
    slowly = "trap 'touch asked; until [ -e go ]; do sleep 0.02; done; exit 75' TERM; echo from 0; until [ -e enough ]; do sleep 0.02; done"
    for name in ("enough", "go"):
        (up.state / name).unlink(missing_ok=True)
    operation = research(up, slowly, "--interruptible", "--interruption-timeout", "10m")
    owed = up.start_operation("--pool", "production", "--", "true")
    while not (up.state / "asked").exists():
        time.sleep(0.02)
    kill(up, "agent")
    while (up.state / "logs" / "agent-alpha.log").read_text().count('"adopted"') < 2:
        time.sleep(0.02)
    kill(up, "allocator")
    # Both jobs of research, one of them on its way out, and the one that waits for its place.
    while allocations(up) != 3:
        time.sleep(0.1)
    (up.state / "go").touch()
    up.run("op", "wait", owed)
    (up.state / "enough").touch()
    up.run("op", "wait", operation)

    over = view(up, operation)
    assert (over["completed_jobs"], over["failed_jobs"], over["aborted_jobs"], over["lost_jobs"]) == (2, 0, 1, 0)
    (record,) = preemptions(up, operation)
    assert (record["reason"], record["beneficiary"], record["group"]) == ("preemption", owed, 2)
    before, after, fair = (record[key]["cpu"] for key in ("share_before", "share_after", "fair_share"))
    assert before > after >= record["threshold"] * fair > 0


@pytest.mark.long
def test_the_history_says_how_each_run_started_whatever_is_killed_before_it_ends_and_after(up: Up) -> None:
    for name in ("enough", "over"):
        (up.state / name).unlink(missing_ok=True)
    operation = research(up, "echo from 0; until [ -e enough ]; do sleep 0.02; done")
    owed = up.start_operation(
        "--pool", "production", "--", "sh", "-c", "echo on; until [ -e over ]; do sleep 0.02; done"
    )
    up.wait_line(owed, "on")

    def started() -> dict[str, Any] | None:
        """The one run of the operation that others made room for, and how it started."""
        runs = [one for one in ended_jobs(up, owed) if one["happened"] in ("allocation_started", "job_ended")]
        keys = ("happened", "stage", "share_before", "fair_share", "places_taken")
        return {key: runs[0][key] for key in keys} if runs else None

    running = started()
    assert running is not None
    assert (running["happened"], running["stage"]) == ("allocation_started", "preemptive_normal")
    assert (running["share_before"]["cpu"], running["fair_share"]["cpu"], running["places_taken"]) == (0.0, 0.5, 1)
    for role in ("agent", "allocator", "admission"):
        kill(up, role)
    deadline_s = time.monotonic() + 30
    while started() != running and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert started() == running, "of a run that goes on its node tells the new allocator"

    (up.state / "over").touch()
    up.run("op", "wait", owed)
    assert started() == running | {"happened": "job_ended"}
    kill(up, "allocator")
    kill(up, "admission")
    assert started() == running | {"happened": "job_ended"}
    words = (
        "; started by: normal preemptive stage, 1 allocation preempted for it; cpu 0% of the cluster before, owed 50%"
    )
    assert f"completed{words}" in up.run_until_answered("op", "history", owed).stdout
    (up.state / "enough").touch()
    up.run("op", "wait", operation)
    stages = [(one["stage"], one["runs_again"]) for one in ended_jobs(up, operation) if one["happened"] == "job_ended"]
    assert len(stages) == 3
    assert all(stage.startswith(("regular_", "preemptive_")) for stage, _ in stages)


@pytest.mark.long
def test_no_job_makes_room_before_it_has_run_for_its_exempt_time_whatever_is_killed(up: Up) -> None:
    (up.state / "enough").unlink(missing_ok=True)
    up.run("pool", "set", "research", "preemption_exempt_time=10m")
    operation = research(up, "echo from 0; until [ -e enough ]; do sleep 0.02; done")
    began_s = time.monotonic()
    owed = up.start_operation("--pool", "production", "--", "true")
    while "have run for less than their pool's preemption_exempt_time" not in up.run("op", "explain", owed).stdout:
        time.sleep(0.1)
    assert "research 10m" in up.run("pool", "explain", "production").stdout

    kill(up, "agent")
    kill(up, "allocator")
    ran_ms = (time.monotonic() - began_s) * 1000
    assert preemptions(up, operation) == []
    up.run("pool", "set", "research", "preemption_exempt_time=1s")
    up.run("op", "wait", owed)
    (up.state / "enough").touch()
    up.run("op", "wait", operation)
    up.run("pool", "set", "research", "preemption_exempt_time=")

    (record,) = preemptions(up, operation)
    assert (record["beneficiary"], record["exempt_time_ms"]) == (owed, 1_000)
    assert record["ran_ms"] >= max(ran_ms, 1_000), "counted from its beginning, by whoever came after"
    assert "preemption_exempt_time 1s; " in up.run("op", "history", operation).stdout


def test_a_job_that_was_done_anyway_counts_and_does_not_run_again(up: Up) -> None:
    operation = research(up, _IS_DONE, "--interruptible")

    production_returns(up)

    seen = view(up, operation)
    assert (seen["completed_jobs"], seen["open_jobs"], seen["aborted_jobs"]) == (1, 1, 0)
    up.run("op", "abort", operation)
    up.run("op", "wait", operation, expect=1)


def test_events_are_followed_as_they_happen_until_ctrl_c(up: Up) -> None:
    seen: list[dict[str, Any]] = []
    with up.begin("events", "--follow", "--json") as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        try:
            assert "following" in follower.stderr.readline()
            operation = research(up, _IS_DEAF, "--interruption-timeout", "400ms")
            production_returns(up)
            up.run("op", "abort", operation)
            while not seen or (seen[-1]["happened"], seen[-1].get("state")) != ("operation", "aborted"):
                seen.append(json.loads(follower.stdout.readline()))
            follower.send_signal(signal.SIGINT)
            assert (follower.wait(20), follower.stderr.read()) == (130, "")
        finally:
            follower.kill()

    assert "missed" not in {one["happened"] for one in seen}
    ours = [one for one in seen if one.get("operation") == operation]
    assert [one["cause"] for one in ours if one["happened"] == "operation"] == [
        "started",
        "aborted_by_user",
        "released",
    ]
    assert [one["record"]["reason"] for one in ours if one["happened"] == "allocation_preempted"] == ["preemption"]
    assert {one["happened"] for one in ours} >= {"allocation_started", "job_ended"}
    starts = [one for one in seen if one["happened"] == "allocation_started"]
    assert next(one["stage"] for one in starts if one["operation"] == operation) == "regular_medium_priority"
    (forced,) = [one for one in starts if one["places_taken"]]
    assert (forced["stage"], forced["places_taken"], forced["fair_share"]["cpu"]) == ("preemptive_normal", 1, 0.5)
    told = [(one["happened"], one["allocation"]) for one in ours if "allocation" in one]
    for allocation in {allocation for what, allocation in told if what == "job_ended"}:
        assert told.index(("allocation_started", allocation)) < told.index(("job_ended", allocation))
    (preempted,) = [allocation for what, allocation in told if what == "allocation_preempted"]
    assert told.index(("allocation_preempted", preempted)) < told.index(("job_ended", preempted))
    assert {one["status"] for one in seen if one.get("name") == "production"} >= {"starving"}


def test_a_job_that_ignores_the_signal_is_killed_in_time_and_runs_again(up: Up) -> None:
    operation = research(up, _IS_DEAF, "--interruption-timeout", "400ms")

    production_returns(up)

    seen = view(up, operation)
    assert (seen["completed_jobs"], seen["failed_jobs"], seen["aborted_jobs"]) == (0, 0, 1)
    told = up.run("op", "history", operation).stdout
    assert "it is retried; preempted for " in told
    assert "cpu 100% → 50% of the cluster, owed 50%; preemptible: above 1 × fair share" in told
    assert len(up.run("op", "history", operation, "--limit", "1").stdout.splitlines()) == 2
    counted = json.loads(up.run("pool", "get", "research", "--json").stdout)["preemptions"]
    assert [(one["reason"], one["group"]) for one in counted] == [("preemption", "preemptible")]
    assert "preempted" in up.run("pool", "get", "research").stdout
    figures = {
        line.split()[2]: line.split()[3] for line in up.run("service", "figures", "allocator").stdout.splitlines()
    }
    taken = str(counted[0]["count"])
    assert (figures["preempted_by_preemption"], figures["preempted_of_preemptible"]) == (taken, taken)
    up.run("op", "abort", operation)
    up.run("op", "wait", operation, expect=1)


def lost_work(up: Up, pool: str) -> list[Any]:
    """The lost work of a pool, once admission tells it. While admission starts, the command shows the rest without it."""
    while True:
        said = up.run_until_answered("pool", "volume", pool, "--since", "1h", "--json").stdout
        shown: list[Any] | None = json.loads(said)["lost_work"]
        if shown is not None:
            return shown


@pytest.mark.long
def test_the_work_that_preemption_cost_is_told_and_no_restart_forgets_it() -> None:
    with Up() as up:
        for pool in ("research", "production"):
            up.run("pool", "create", pool)
        up.run("tree", "set", "default", "fair_share_starvation_timeout=500ms", "preemptive_scheduling_backoff=0")
        operation = research(up, "echo from 0; sleep 1000")
        production_returns(up)
        (taken,) = [each for each in ended_jobs(up, operation) if each.get("preemption")]

        (lost,) = before = lost_work(up, "research")
        kill(up, "admission")

        ran_s = (taken["at_ms"] - taken["started_at_ms"]) / 1000
        assert (lost["reason"], lost["runs"], lost["work"]) == ("preemption", 1, pytest.approx(ran_s, abs=0.01))
        assert lost_work(up, "research") == before
        assert lost_work(up, "production") == []
        assert "in 1 run since" in up.run("pool", "volume", "research").stdout
        assert "lost work" in up.run("pool", "get", "research").stdout


def ended_jobs(up: Up, operation: str) -> list[Any]:
    return list(map(json.loads, up.run_until_answered("op", "history", operation, "--json").stdout.splitlines()))
