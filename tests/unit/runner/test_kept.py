"""Files of jobs: what they say after any damage."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from headrace.ids import AllocationId
from headrace.wire.heartbeat import JobEnd, JobKey, JobResult
from headrace_agent.runner.files.kept_jobs import JobRecord, KeptJobs, Leftover, ProcessRecord
from headrace_agent.runner.host.files import LinuxFiles
from tests.unit.runner.builders import OPERATION, a_job
from tests.unit.runner.faulty_files import MortalFiles, PowerCut

HOST = LinuxFiles()
RECORD = JobRecord(a_job(), "alloc-1", "this boot")
PROCESS = ProcessRecord(100, 1_700_000_000_000)


def an_end(job: JobKey) -> JobEnd:
    return JobEnd(job.operation, job.index, job.attempt, AllocationId("alloc-1"), JobResult.FAILED, exit_code=3)


def kept_jobs(folder: Path, host: LinuxFiles | None = None) -> KeptJobs:
    return KeptJobs(host or HOST, str(folder))


def a_whole_life(kept: KeptJobs) -> None:
    kept.write_job(RECORD)
    kept.write_process(a_job(), PROCESS)
    assert kept.write_end(an_end(a_job()))


def test_each_record_is_read_back(tmp_path: Path) -> None:
    kept = kept_jobs(tmp_path)
    assert kept.load().leftovers == []
    kept.write_job(RECORD)
    assert kept.load().leftovers == [Leftover(RECORD, None)]
    kept.write_process(a_job(), PROCESS)
    assert kept.load().leftovers == [Leftover(RECORD, PROCESS)]
    kept.write_end(an_end(a_job()))
    assert kept.load().ends == [an_end(a_job())]
    assert kept.load().leftovers == []
    kept.forget(a_job())
    assert list((tmp_path / "jobs").iterdir()) == []


@pytest.mark.parametrize("calls", range(7))
def test_wherever_the_runner_is_killed_the_file_says_something_true(tmp_path: Path, calls: int) -> None:
    kept_jobs(tmp_path).load()
    with contextlib.suppress(PowerCut):
        a_whole_life(kept_jobs(tmp_path, MortalFiles(calls)))
    found = kept_jobs(tmp_path).load()

    expected = [
        ([], []),  # nothing was begun
        ([], []),  # an empty file: the process was not started
        ([Leftover(RECORD, None)], []),
        ([Leftover(RECORD, None)], []),
        ([Leftover(RECORD, PROCESS)], []),
        ([Leftover(RECORD, PROCESS)], []),
        ([], [an_end(a_job())]),
    ][calls]
    assert (found.leftovers, found.ends) == expected


@pytest.mark.parametrize("mask", [1, 2, 0x80, 0xFF])
def test_never_is_a_damaged_file_taken_for_something_else(tmp_path: Path, mask: int) -> None:
    """Every single byte of it, damaged alone."""
    kept_jobs(tmp_path).load()
    a_whole_life(kept_jobs(tmp_path))
    file = tmp_path / "jobs" / f"{OPERATION}.0.1"
    content = file.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= mask
        file.write_bytes(damaged)
        found = kept_jobs(tmp_path).load()

        assert found.ends == []
        assert found.leftovers in ([], [Leftover(RECORD, None)], [Leftover(RECORD, PROCESS)])
        assert len(found.leftovers) + len(found.spoiled) == 1


@pytest.mark.parametrize("size", [0, 3, 8, 40, 90, 120])
def test_a_file_that_was_cut_says_what_is_whole(tmp_path: Path, size: int) -> None:
    kept_jobs(tmp_path).load()
    a_whole_life(kept_jobs(tmp_path))
    file = tmp_path / "jobs" / f"{OPERATION}.0.1"
    file.write_bytes(file.read_bytes()[:size])
    found = kept_jobs(tmp_path).load()

    assert found.ends == []
    assert len(found.leftovers) + len(found.spoiled) == 1


def test_a_file_under_the_name_of_another_job_is_put_aside(tmp_path: Path) -> None:
    kept = kept_jobs(tmp_path)
    kept.load()
    a_whole_life(kept)
    (tmp_path / "jobs" / f"{OPERATION}.0.1").rename(tmp_path / "jobs" / f"{OPERATION}.1.1")

    assert kept.load().spoiled == [f"{OPERATION}.1.1"]
    assert (tmp_path / "spoiled" / f"{OPERATION}.1.1").exists()


def test_an_end_that_could_not_be_written_is_written_when_it_can_be(tmp_path: Path) -> None:
    kept = kept_jobs(tmp_path)
    kept.load()
    (tmp_path / "jobs").rename(tmp_path / "away")

    assert not kept.write_end(an_end(a_job()))
    assert kept.trouble == (
        f"1 ends of jobs are held in memory only: {tmp_path}/jobs/{OPERATION}.0.1: No such file or directory"
    )
    kept.retry()
    assert kept.unwritten == 1
    (tmp_path / "away").rename(tmp_path / "jobs")
    kept.retry()
    assert (kept.unwritten, kept.trouble) == (0, "")
    assert kept_jobs(tmp_path).load().ends == [an_end(a_job())]


def test_an_acknowledged_end_is_not_written_any_more(tmp_path: Path) -> None:
    kept = kept_jobs(tmp_path)
    kept.write_end(an_end(a_job()))
    kept.forget(a_job())

    assert kept.unwritten == 0
