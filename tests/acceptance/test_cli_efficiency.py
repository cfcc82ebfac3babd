"""What jobs used: measured by the runner, kept by admission, and shown for each run, for each job and for the operation."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from headrace_cli.exit_statuses import Exit
from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

MIB = 1024**2
CPU_S = 1.2
#: Has 150 MiB, and computes for at least this long.
WORK = f"import time\nkept = bytearray(b'x' * (150 * {MIB}))\nwhile time.process_time() < {CPU_S}: pass\n"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=2,memory=4G",)) as running:
        running.run("run", "--id", "known-work", "-c", "1", "-m", "2G", "-w", "--", "python3", "-c", WORK)
        fails = ("sh", "-c", "[ $HEADRACE_JOB_INDEX != 1 ]")
        fewest = ("--max-failed-job-count", "1", "-c", "0.5", "-m", "64M")
        running.run("run", "--id", "one-fails", "-n", "3", *fewest, "-w", "--", *fails, expect=None)
        yield running


def answer(up: Up, *words: str) -> Any:
    return json.loads(up.run(*words, "--json").stdout)


def is_measured(used: dict[str, Any]) -> bool:
    cpu_ms, peak_bytes = int(used["cpu_ms"]), int(used["max_rss_bytes"])
    return CPU_S * 1000 <= cpu_ms < 60_000 and 150 * MIB <= peak_bytes < 600 * MIB


def test_a_run_tells_its_start_end_cpu_time_and_memory(up: Up) -> None:
    (job,) = answer(up, "op", "get", "known-work", "--jobs")["jobs"]
    history = map(json.loads, up.run("op", "history", "known-work", "--json").stdout.splitlines())
    (end,) = (each for each in history if each["happened"] == "job_ended")

    assert is_measured(job)
    assert is_measured(end)
    assert (job["started_at_ms"], job["ended_at_ms"]) == (end["started_at_ms"], end["at_ms"])
    head, row = up.run("op", "get", "known-work", "--jobs").stdout.splitlines()[-2:]
    assert head.split()[-4:] == ["cpu", "time", "peak", "memory"]
    assert row.endswith(" MiB")


def test_efficiency_names_the_option_to_type(up: Up) -> None:
    told = answer(up, "op", "efficiency", "known-work")

    assert (told["operation"], told["state"]) == ("known-work", "completed")
    assert told["asked"]["memory"] == 2048 * MIB
    assert is_measured(told["used"]["completed"])
    assert told["used"]["completed"]["runs"] == 1
    assert told["max_rss_bytes"] == told["used"]["completed"]["max_rss_bytes"]
    assert 0 < told["mean_cores"] < 1.5
    (memory,) = (each for each in told["suggestions"] if each.startswith("--memory "))
    page = up.run("op", "efficiency", "known-work").stdout
    assert "asked for 2 GiB, used at most" in page
    assert f"headrace run {memory}" in page
    up.run("run", *memory.split(), "-w", "--", "true")


def test_jobs_are_chosen_by_result_index_and_number(up: Up) -> None:
    failed = answer(up, "op", "get", "one-fails", "--jobs", "--failed")["jobs"]
    one = answer(up, "op", "get", "one-fails", "--jobs", "--job", "2")["jobs"]
    some = up.run("op", "get", "one-fails", "--jobs", "--limit", "2")

    assert [(job["slot"]["index"], job["result"], job["exit_code"]) for job in failed] == [(1, "failed", 1)]
    assert [job["slot"]["index"] for job in one] == [2]
    assert "only the first 2 are shown" in some.stderr
    assert "from 0 to 2" in up.run("op", "get", "one-fails", "--jobs", "--job", "3", expect=Exit.USAGE).stderr


def test_operations_are_listed_by_what_they_left_unused(up: Up) -> None:
    by_memory = answer(up, "op", "list", "--sort", "unused-memory")["operations"]

    assert by_memory[0]["operation"] == "known-work"
    assert "GiB-hours" in up.run("op", "list", "--sort", "unused-cpu").stdout
    assert "unused-cpu, unused-memory" in up.run("op", "list", "--sort", "waste", expect=Exit.USAGE).stderr


def test_operations_are_listed_from_the_oldest_on(up: Up) -> None:
    newest = [each["operation"] for each in answer(up, "op", "list")["operations"]]
    oldest = [each["operation"] for each in answer(up, "op", "list", "--sort", "oldest")["operations"]]
    assert len(newest) > 1
    assert oldest == newest[::-1]

    first = up.run("op", "list", "--sort", "oldest", "--limit", "1")
    assert oldest[0] in first.stdout
    assert "unused" not in first.stdout
    assert "only the oldest 1 are shown" in first.stderr


def test_operations_are_listed_by_the_node_of_their_jobs() -> None:
    with Up(nodes=("alpha:cpu=1", "beta:cpu=1")) as two:
        places = {}
        for name in ("first", "second"):
            two.run("run", "--id", name, "--", "sleep", "600")
            while not (running := answer(two, "op", "get", name)["places"]["running"]):
                pass
            places[running[0]["node"]] = name

        for node in ("alpha", "beta"):
            listed = answer(two, "op", "list", "--node", node)["operations"]
            assert [each["operation"] for each in listed] == [places[node]]
        assert answer(two, "op", "list", "--node", "alpha", "--in-state", "completed")["operations"] == []
        assert "did you mean alpha?" in two.run("op", "list", "--node", "alph", expect=Exit.REFUSED).stderr


def test_sums_outlive_admission(up: Up) -> None:
    before = answer(up, "op", "efficiency", "known-work")["used"]
    (admission,) = (process for process in up.processes() if process.role == "admission")
    os.kill(admission.pid, signal.SIGKILL)

    after = up.run_until_answered("op", "efficiency", "known-work", "--json")

    assert json.loads(after.stdout)["used"] == before
