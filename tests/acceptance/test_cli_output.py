"""Output of jobs before a person's eyes: as it comes, with marks where some is gone, of each run, and where a job failed."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator

import pytest

from tests.support.headrace_up import Up

_MANY_BYTES = 40_000_000
#: Much more than a follower takes in the time that it takes to write it.
_FLOOD = f"""
for _ in range({_MANY_BYTES // 1_000_000}):
    print(("y" * 99 + chr(10)) * 10_000, end="")
print("the end")
"""


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=4,memory=2G",)) as running:
        yield running


def finished(up: Up, *words: str) -> str:
    """An operation that was started and is over."""
    operation = up.start_operation(*words)
    up.run("op", "wait", operation)
    return operation


def test_a_followed_operation_prints_what_its_jobs_write_as_they_write_it(up: Up) -> None:
    script = "echo one; until [ -e two ]; do sleep 0.05; done; echo two; echo bad >&2; exit 3"
    with up.begin("run", "--follow", "--max-failed-job-count", "1", "--", "sh", "-c", script) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "one\n"
        (up.state / "two").touch()
        out, err = follower.communicate()

    assert out == "two\n"
    assert "\nbad\n" in err
    assert "failed: 0 of 1 jobs completed, 1 run failed" in err
    assert "exit code 3" in err
    assert follower.wait() == 1


def test_of_several_jobs_each_line_begins_with_its_job(up: Up) -> None:
    done = up.run("run", "-f", "--jobs", "3", "--cpu", "1", "--", "sh", "-c", "echo I am $HEADRACE_JOB_INDEX")

    assert sorted(done.stdout.splitlines()) == ["0: I am 0", "1: I am 1", "2: I am 2"]


def test_a_followed_operation_ends_with_its_view_as_json(up: Up) -> None:
    done = up.run("run", "-f", "--json", "--", "sh", "-c", "echo out; echo err >&2")

    *lines, last = done.stdout.split("\n{\n")
    said = [json.loads(line) for line in "\n{\n".join(lines).splitlines()]
    assert {(line["stream"], line["text"]) for line in said} == {("stdout", "out"), ("stderr", "err")}
    assert json.loads("{" + last)["state"] == "completed"


def test_ctrl_c_ends_the_following_and_not_the_operation(up: Up) -> None:
    script = "echo here; until [ -e followed ]; do sleep 0.05; done"
    follower = up.begin("run", "--id", "followed-1", "--follow", "--", "sh", "-c", script)
    assert follower.stdout is not None
    assert follower.stdout.readline() == "here\n"

    follower.send_signal(signal.SIGINT)

    assert "headrace op abort followed-1" in follower.communicate()[1]
    assert follower.wait() == 130
    (up.state / "followed").touch()
    assert "completed" in up.run("op", "wait", "followed-1").stderr


def test_what_went_above_the_cap_is_told_where_it_is_missing(up: Up) -> None:
    operation = finished(up, "--log-cap", "128K", "--", "sh", "-c", "seq -w 100000")

    first, *lines = up.run("op", "logs", operation).stdout.splitlines()

    assert re.fullmatch(
        r"\[[0-9.]+ KiB are missing here: above the log cap, the oldest output of a job is dropped\]", first
    )
    assert lines[-1] == "100000"
    kept = json.loads(up.run("op", "logs", operation, "--json").stdout.splitlines()[0])
    shown = sum(len(line) + 1 for line in lines)
    assert kept["missing_bytes"] + shown == 7 * 100_000
    assert 64 * 1024 <= shown <= 128 * 1024


@pytest.mark.long
def test_a_cap_that_is_large_enough_keeps_all(up: Up) -> None:
    operation = finished(up, "--log-cap", "100M", "--", "python", "-c", _FLOOD)

    assert len(up.run("op", "logs", operation).stdout) == _MANY_BYTES + len("the end\n")


def test_of_a_job_that_writes_fast_a_follower_leaves_most_out_and_says_how_much(up: Up) -> None:
    done = up.run("run", "--follow", "--log-cap", "200M", "--", "python", "-c", _FLOOD)

    left_out = re.findall(
        r"^\[([0-9.]+) MiB are left out here: the job writes faster than this command reads\]$", done.stdout, re.M
    )
    assert left_out
    assert done.stdout.endswith("\nthe end\n")
    shown = len(re.sub(r"^\[.*\]\n", "", done.stdout, flags=re.M))
    assert shown + sum(map(float, left_out)) * 2**20 == pytest.approx(_MANY_BYTES, rel=0.01)


def test_each_run_of_a_job_has_its_own_output_and_without_a_choice_it_is_the_last(up: Up) -> None:
    script = "echo run $HEADRACE_ATTEMPT; exit 1"
    operation = up.start_operation("--max-failed-job-count", "3", "--", "sh", "-c", script)
    up.run("op", "wait", operation, expect=1)

    assert up.run("op", "logs", operation).stdout == "run 3\n"
    assert [up.run("op", "logs", operation, "--attempt", str(n)).stdout for n in (1, 2, 3)] == [
        "run 1\n",
        "run 2\n",
        "run 3\n",
    ]
    jobs = json.loads(up.run("op", "get", operation, "--jobs", "--json").stdout)
    assert [(job["slot"], job["result"]) for job in jobs["jobs"]] == [({"index": 0, "attempt": 3}, "failed")]
    assert jobs["operation"]["failed_jobs"] == 3
    assert "at most 3, the newest of job 0" in up.run("op", "logs", operation, "--attempt", "4", expect=4).stderr
    assert "--attempt" in up.run("op", "logs", operation, "--attempt", "0", expect=2).stderr


def test_of_several_jobs_an_attempt_is_asked_for_with_its_job(up: Up) -> None:
    operation = finished(up, "--jobs", "2", "--", "sh", "-c", "echo $HEADRACE_JOB_INDEX")

    assert up.run("op", "logs", operation, "--attempt", "1", "--job", "1").stdout == "1\n"
    assert "Name a job as well, from 0 to 1" in up.run("op", "logs", operation, "--attempt", "1", expect=2).stderr


def test_whoever_waits_is_shown_the_end_of_both_outputs_of_a_job_that_failed(up: Up) -> None:
    script = "seq 1 50; echo to stderr >&2; exit 1"
    done = up.run("run", "--wait", "--max-failed-job-count", "1", "--", "sh", "-c", script, expect=1)

    assert "the end of its stdout:\n  41\n" in done.stderr
    assert "  50\n" in done.stderr
    assert "  40\n" not in done.stderr
    assert "  to stderr\n" in done.stderr
    assert "all of its output" not in done.stderr
