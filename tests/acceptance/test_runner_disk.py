"""Folders that cannot be written, disks that are full, logs that outgrow their room."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from headrace.wire.heartbeat import JobResult
from headrace_agent.job_logs.reader import read_log
from headrace_agent.runner.files.log_folders import SPARE
from headrace_agent.runner.protocol import EndAll, Interrupt
from tests.unit.runner.builders import OPERATION, a_job, a_run
from tests.unit.runner.harness import ARunner, Signpost, gone, runner, signpost

pytestmark = pytest.mark.long

__all__ = ["runner", "signpost"]

KIB = 1024


def limit_file_size(runner: ARunner, size_bytes: int) -> None:
    """From now on the runner can make no file larger than that: EFBIG, as near to a full disk as one gets without root."""
    resource.prlimit(runner.pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


def test_a_logs_folder_that_cannot_be_made_is_the_fault_of_the_host_and_harms_not_the_runner(
    runner: ARunner, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    agent = runner.start("--logs", f"{tmp_path}/file/logs")
    end = agent.sh(0, "echo x")

    assert end.result is JobResult.ABORTED
    assert end.reason == f"not started: the log {tmp_path}/file/logs/{OPERATION} cannot be written: Not a directory"
    assert "Not a directory" in agent.hello().trouble
    (tmp_path / "file").unlink()
    (tmp_path / "file").mkdir()
    assert agent.sh(1, "echo x").result is JobResult.COMPLETED


def test_a_logs_folder_that_goes_away_fails_the_job_that_writes_and_no_other(
    runner: ARunner, signpost: Signpost
) -> None:
    agent = runner.start()
    agent.run(1, "sleep", "1000")
    agent.run(0, "sh", "-c", f"read x < {signpost.path}; echo x; sleep 1000")
    (runner.logs / OPERATION).rmdir()
    (runner.logs / OPERATION).write_text("in the way")
    signpost.path.write_text("go\n")
    end = agent.end_of(0)

    assert end.result is JobResult.FAILED
    assert end.reason == f"the log {runner.logs}/{OPERATION}/0.1.stdout cannot be written: Not a directory"
    assert [kept.run.job for kept in agent.hello().running] == [a_job(1)]


def test_a_folder_that_somebody_removed_is_made_again(runner: ARunner, signpost: Signpost) -> None:
    agent = runner.start()
    agent.run(0, "sh", "-c", f"read x < {signpost.path}; echo x")
    (runner.logs / OPERATION).rmdir()
    signpost.path.write_text("go\n")

    assert agent.end_of(0).result is JobResult.COMPLETED
    assert runner.log(0) == b"x\n"


def test_a_full_disk_ends_the_job_that_writes_and_the_others_run_on(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(1, "sleep", "1000")
    limit_file_size(runner, 100 * KIB)
    agent.say(a_run(0, "sh", "-c", "cat /dev/zero; sleep 1000"))
    end = agent.end_of(0)

    assert (end.result, end.signal) == (JobResult.FAILED, 15)
    assert end.reason == f"the log {runner.logs}/{OPERATION}/0.1.stdout cannot be written: File too large"
    assert agent.sh(2, "echo x").result is JobResult.COMPLETED
    assert [kept.run.job for kept in agent.hello().running] == [a_job(1)]


def test_output_that_could_not_be_kept_fails_a_job_even_if_it_ended_well(runner: ARunner, signpost: Signpost) -> None:
    agent = runner.start()
    started = agent.run(0, "sh", "-c", f"read x < {signpost.path}; head -c 20000 /dev/zero; exit 0")
    limit_file_size(runner, 10 * KIB)
    os.kill(runner.pid, signal.SIGSTOP)  # so that the output is still in the pipe when the job has ended
    signpost.path.write_text("go\n")
    assert gone(started.pid)
    os.kill(runner.pid, signal.SIGCONT)
    end = agent.end_of(0)

    assert (end.result, end.exit_code) == (JobResult.FAILED, 0)
    assert "File too large" in end.reason


def test_a_job_that_cannot_be_recorded_is_not_started(runner: ARunner) -> None:
    agent = runner.start()
    limit_file_size(runner, 0)
    end = agent.sh(0, "echo x")

    assert end.result is JobResult.ABORTED
    assert end.reason == f"not started: {runner.state}/jobs/1 cannot be written: File too large"


def test_a_job_for_which_no_descriptor_is_left_has_not_failed(runner: ARunner) -> None:
    agent = runner.start()
    _, hard = resource.prlimit(runner.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(runner.pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{runner.pid}/fd")), hard))
    end = agent.sh(0, "echo x")

    assert (end.result, end.exit_code) == (JobResult.ABORTED, None)
    assert "Too many open files" in end.reason
    resource.prlimit(runner.pid, resource.RLIMIT_NOFILE, (hard, hard))
    assert agent.sh(1, "echo x").result is JobResult.COMPLETED


def test_an_end_that_cannot_be_written_is_told_at_once_and_written_later(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    limit_file_size(runner, 0)
    agent.say(Interrupt(a_job(), 0, "preempted"))
    end = agent.end_of(0)
    assert "1 ends of jobs are held in memory only" in agent.hello().trouble
    assert "File too large" in agent.hello().trouble

    limit_file_size(runner, resource.RLIM_INFINITY)
    while agent.hello().trouble:
        pass  # it tries every second
    runner.kill()
    assert runner.start().hello().ended == [end]


def test_a_full_disk_does_not_keep_the_runner_from_going(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    limit_file_size(runner, 0)
    agent.say(EndAll(0, "stop"))

    assert agent.end_of(0).result is JobResult.ABORTED
    assert runner.wait() == 0
    assert runner.start().hello().ended[0].result is JobResult.LOST  # nothing else is known of it any more


def test_of_long_output_the_newest_is_kept_and_never_more_than_the_cap(runner: ARunner) -> None:
    agent = runner.start()
    lines = 50_000
    agent.sh(0, f"seq -w {lines}", log_cap_bytes=128 * KIB)
    whole = "".join(f"{number:05}\n" for number in range(1, lines + 1)).encode()
    files = list((runner.logs / OPERATION).glob("0.1.stdout*"))
    chunk = read_log(str(runner.logs), a_job(), "stdout", 0, 10**6)

    assert sum(file.stat().st_size for file in files if file.suffix != ".at") <= 128 * KIB
    assert len(chunk.data) >= 64 * KIB
    assert chunk.data == whole[chunk.next_offset - len(chunk.data) :]
    assert (chunk.size, chunk.next_offset) == (len(whole), len(whole))


def test_when_logs_take_too_much_room_those_of_operations_at_rest_go_and_no_others(runner: ARunner) -> None:
    agent = runner.start("--logs-total-bytes", "150000")
    write = ["sh", "-c", "head -c 50000 /dev/zero; exec sleep 1000"]
    agent.say(a_run(0, *write, job=a_job(0, operation="op-in-use")))
    for index, operation in enumerate(["op-oldest", "op-middle", "op-newest"], start=1):
        agent.say(a_run(index, "sh", "-c", "head -c 50000 /dev/zero", job=a_job(index, operation=operation)))
        agent.end_of_job(a_job(index, operation=operation))
    agent.hello()

    assert sorted(folder.name for folder in runner.logs.glob("op-*")) == ["op-in-use", "op-middle", "op-newest"]
    assert runner.events("logs removed")[0]["operation"] == "op-oldest"


def test_logs_of_a_former_runner_count_too(runner: ARunner) -> None:
    agent = runner.start()
    agent.sh(0, "head -c 50000 /dev/zero")
    agent.say(EndAll(0, "stop"))
    runner.wait()
    agent = runner.start("--logs-total-bytes", "10000")
    agent.hello()

    assert [folder.name for folder in runner.logs.iterdir()] == [SPARE]


def test_without_a_cgroup_a_process_is_refused_more_memory_than_its_job_has(runner: ARunner) -> None:
    agent = runner.start("--memory-headroom-bytes", str(32 << 20))
    agent.say(a_run(0, sys.executable, "-c", "bytearray(512 << 20)", memory_bytes=64 << 20))
    agent.say(a_run(1, sys.executable, "-c", "bytearray(32 << 20)", memory_bytes=64 << 20))

    refused = agent.end_of(0)
    assert refused.result is JobResult.FAILED
    assert "MemoryError" in refused.stderr_tail
    assert agent.end_of(1).result is JobResult.COMPLETED


def test_without_a_cgroup_a_program_of_many_threads_fits_into_little_memory(runner: ARunner) -> None:
    """Stacks count with their full size, so there is headroom."""
    script = "import threading as t\nb = t.Barrier(17)\n[t.Thread(target=b.wait).start() for _ in range(16)]\nb.wait()"
    agent = runner.start()
    agent.say(a_run(0, sys.executable, "-c", script, memory_bytes=32 << 20))

    assert agent.end_of(0).result is JobResult.COMPLETED


def test_at_rest_a_folder_for_the_logs_of_the_next_operation_is_there(runner: ARunner) -> None:
    agent = runner.start()
    agent.sh(0, "echo words")
    agent.hello()
    spare = (runner.logs / SPARE).stat()
    other = a_job(1, operation="op-other")
    agent.say(a_run(1, "sh", "-c", "echo words", job=other))
    agent.end_of_job(other)

    assert (runner.logs / "op-other").stat().st_ino == spare.st_ino
