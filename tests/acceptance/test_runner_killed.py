"""The runner itself is killed: what ran is ended, what ended is told, nothing else is touched."""

from __future__ import annotations

import os
import subprocess
import zlib
from pathlib import Path

import msgspec
import pytest

from headrace.wire.heartbeat import JobResult
from headrace.wire.start_stages import StartRecord, StartStage
from headrace_agent.runner.protocol import Acknowledge
from tests.unit.runner.builders import OPERATION, a_job, a_run
from tests.unit.runner.harness import ARunner, Signpost, gone, lives, runner, signpost

pytestmark = pytest.mark.long

__all__ = ["runner", "signpost"]


def test_jobs_of_a_killed_runner_are_ended_and_reported_lost(runner: ARunner, signpost: Signpost) -> None:
    agent = runner.start()
    script = f"trap '' TERM HUP\nsetsid sh -c 'echo $$ > {signpost.path}; exec sleep 1000' &\nsleep 1000"
    started = agent.run(0, "sh", "-c", script)
    daemon = int(signpost.line())
    runner.kill()
    assert lives(started.pid)
    [end] = runner.start().hello().ended

    assert (end.key, end.result, end.reason) == (a_job(0), JobResult.LOST, "the runner was killed")
    assert (end.allocation, end.started_at_ms) == ("alloc-1", started.started_at_ms)
    assert gone(started.pid)
    assert gone(daemon)


def test_the_end_of_a_job_of_a_killed_runner_says_how_its_allocation_started(runner: ARunner) -> None:
    start = StartRecord(StartStage.PREEMPTIVE_NORMAL, (0.25,) * 5, (0.5,) * 5, 1)
    runner.start().run(0, "sleep", "1000", start=start)
    runner.kill()

    [end] = runner.start().hello().ended

    assert (end.result, end.start) == (JobResult.LOST, start)


def test_a_lost_job_is_not_started_again_by_the_same_order(runner: ARunner, tmp_path: Path) -> None:
    agent = runner.start()
    order = a_run(0, "sh", "-c", f"echo x >> {tmp_path}/starts; exec sleep 1000")
    agent.run(0, *order.argv)
    runner.kill()
    agent = runner.start()
    agent.say(order)

    assert agent.end_of(0).result is JobResult.LOST


def test_ends_that_nobody_acknowledged_outlive_the_runner(runner: ARunner) -> None:
    agent = runner.start()
    ends = [agent.sh(index, f"exit {index}") for index in range(3)]
    agent.say(Acknowledge([a_job(1)]))
    agent.hello()
    runner.kill()

    assert runner.start().hello().ended == [ends[0], ends[2]]


def test_a_runner_that_is_told_its_folder_in_another_way_ends_what_the_former_left(
    runner: ARunner, tmp_path: Path
) -> None:
    started = runner.start().run(0, "sleep", "1000")
    runner.kill()
    (tmp_path / "link").symlink_to(runner.state)
    runner.state = tmp_path / "link"
    [end] = runner.start().hello().ended

    assert end.result is JobResult.LOST
    assert gone(started.pid)


@pytest.mark.parametrize(
    "marks",
    [
        {"HEADRACE_JOB": f"{OPERATION}.1.1"},
        {"HEADRACE_JOB": f"{OPERATION}.0.1", "HEADRACE_RUNNER": "/var/lib/headrace-of-others"},
    ],
)
def test_processes_that_are_not_of_its_jobs_are_left_alone(runner: ARunner, marks: dict[str, str]) -> None:
    """Another runner on this host has jobs of its own, which may be called as ours are: people name operations."""
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    environment = {**os.environ, **marks}
    bystander = subprocess.Popen(["sleep", "1000"], env=environment, start_new_session=True)
    try:
        runner.kill()
        runner.start()

        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_pid_that_was_given_to_somebody_else_is_left_alone(runner: ARunner) -> None:
    """The file names a living process, but that one carries no marker."""
    agent = runner.start()
    started = agent.run(0, "sleep", "1000")
    bystander = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        runner.kill()
        record = runner.state / "jobs" / "1"
        records = _records(record.read_bytes())
        records[1]["pid"] = bystander.pid
        record.write_bytes(_packed(records))
        [end] = runner.start().hello().ended

        assert end.result is JobResult.LOST
        assert gone(started.pid)  # by its marker
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_files_that_cannot_be_read_are_put_aside_and_said(runner: ARunner) -> None:
    agent = runner.start()
    good = agent.sh(0, "exit 5")
    for index in (1, 2, 3):
        agent.sh(index, "exit 0")
    runner.kill()
    jobs = runner.state / "jobs"
    for index, data in ((1, b""), (2, b"\0" * 3), (3, b"\xff" * 300)):
        (jobs / str(index + 1)).write_bytes(data)
    (jobs / "what is this").write_text("?")
    picture = runner.start().hello()

    assert picture.ended == [good]
    assert "4 files of jobs could not be read" in picture.trouble
    assert len(list((runner.state / "spoiled").iterdir())) == 4


def test_a_file_that_was_torn_while_it_was_written_counts_as_before(runner: ARunner) -> None:
    agent = runner.start()
    agent.sh(0, "exit 5")
    agent.run(1, "sleep", "1000")
    runner.kill()
    for index in (0, 1):
        record = runner.state / "jobs" / str(index + 1)
        record.write_bytes(record.read_bytes()[:-3])
    picture = runner.start().hello()

    assert [(end.key, end.result) for end in picture.ended] == [
        (a_job(0), JobResult.LOST),
        (a_job(1), JobResult.LOST),
    ]
    assert picture.trouble == ""


def test_scratch_folders_of_lost_jobs_are_removed(runner: ARunner, signpost: Signpost) -> None:
    agent = runner.start()
    agent.run(0, "sh", "-c", f"mkdir -p deep/deeper; touch deep/deeper/file; echo up > {signpost.path}; sleep 1000")
    assert signpost.line() == "up"
    runner.kill()
    agent = runner.start()
    agent.sh(1, "exit 0")
    agent.hello()

    [spare] = (runner.state / "scratch").iterdir()
    assert list(spare.iterdir()) == []
    assert list((runner.state / "trash").iterdir()) == []


def _records(data: bytes) -> list[dict[str, object]]:
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        found.append(msgspec.msgpack.decode(data[8 : 8 + size], type=dict[str, object]))
        data = data[8 + size :]
    return found


def _packed(records: list[dict[str, object]]) -> bytes:
    payloads = [msgspec.msgpack.encode(record) for record in records]
    # All checksums depend on the first.
    first = zlib.crc32(payloads[0])
    checksums = [first, *(zlib.crc32(payload, first) for payload in payloads[1:])]
    return b"".join(
        len(payload).to_bytes(4, "big") + checksum.to_bytes(4, "big") + payload
        for payload, checksum in zip(payloads, checksums, strict=True)
    )
