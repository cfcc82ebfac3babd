"""Files of jobs: what they say after any damage."""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from pathlib import Path

import msgspec
import pytest

from headrace.ids import AllocationId
from headrace.wire.heartbeat import JobEnd, JobKey, JobResult
from headrace_agent.runner.files.kept_jobs import EarlierRunner, JobRecord, KeptJobs, Leftover, ProcessRecord, has_jobs
from headrace_agent.runner.host.files import LinuxFiles
from tests.unit.runner.builders import OPERATION, a_job
from tests.unit.runner.faulty_files import MortalFiles, PowerCut

HOST = LinuxFiles()
RECORD = JobRecord(a_job(), "alloc-1", "this boot")
PROCESS = ProcessRecord(100, 1_700_000_000_000)
NEXT = JobRecord(a_job(1), "alloc-1", "this boot")


def an_end(job: JobKey, exit_code: int = 3) -> JobEnd:
    return JobEnd(job.operation, job.index, job.attempt, AllocationId("alloc-1"), JobResult.FAILED, exit_code=exit_code)


def kept_jobs(folder: Path, host: LinuxFiles | None = None) -> KeptJobs:
    return KeptJobs(host or HOST, str(folder))


def found_in(folder: Path) -> EarlierRunner:
    """What the next runner reads."""
    return kept_jobs(folder).load()


def a_whole_life(kept: KeptJobs, job: JobRecord = RECORD) -> None:
    kept.write_job(job)
    kept.write_process(job.job, PROCESS)
    assert kept.write_end(an_end(job.job))


def test_each_record_is_read_back(tmp_path: Path) -> None:
    kept = kept_jobs(tmp_path)
    assert kept.load() == EarlierRunner()
    kept.write_job(RECORD)
    assert found_in(tmp_path).leftovers == [Leftover(RECORD, None)]
    kept.write_process(a_job(), PROCESS)
    assert found_in(tmp_path).leftovers == [Leftover(RECORD, PROCESS)]
    kept.write_end(an_end(a_job()))
    assert found_in(tmp_path) == EarlierRunner(ends=[an_end(a_job())])
    kept.forget(a_job())
    kept.close()
    assert list((tmp_path / "jobs").iterdir()) == []


def test_the_file_of_a_job_from_a_former_version_is_read(tmp_path: Path) -> None:
    kept = kept_jobs(tmp_path)
    kept.load()
    kept.write_job(RECORD)
    (path,) = (tmp_path / "jobs").iterdir()
    fields = {"type": "job", "job": RECORD.job, "allocation": RECORD.allocation, "boot": RECORD.boot}
    payload = msgspec.msgpack.encode(fields)
    path.write_bytes(b"".join(number.to_bytes(4, "big") for number in (len(payload), zlib.crc32(payload))) + payload)

    assert found_in(tmp_path).leftovers == [Leftover(RECORD, None)]


def test_a_file_goes_from_job_to_job_and_says_nothing_of_the_one_before(tmp_path: Path) -> None:
    kept = kept_jobs(tmp_path)
    kept.load()
    a_whole_life(kept)
    kept.forget(a_job())
    # As long as those before them, so that each stands where one of the other job stood.
    kept.write_job(NEXT)
    assert found_in(tmp_path) == EarlierRunner(leftovers=[Leftover(NEXT, None)])
    kept.write_process(a_job(1), PROCESS)
    assert found_in(tmp_path) == EarlierRunner(leftovers=[Leftover(NEXT, PROCESS)])
    kept.write_end(an_end(a_job(1)))
    assert found_in(tmp_path) == EarlierRunner(ends=[an_end(a_job(1))])
    assert [file.name for file in (tmp_path / "jobs").iterdir()] == ["1"]


def test_a_file_that_no_job_has_tells_of_none_and_goes_with_the_next_runner(tmp_path: Path) -> None:
    kept = kept_jobs(tmp_path)
    kept.load()
    a_whole_life(kept)
    assert has_jobs(HOST, str(tmp_path))
    kept.forget(a_job())

    assert not has_jobs(HOST, str(tmp_path))
    assert found_in(tmp_path) == EarlierRunner()
    assert list((tmp_path / "jobs").iterdir()) == []


def test_only_files_of_jobs_that_have_not_ended_are_open(tmp_path: Path) -> None:
    kept = kept_jobs(tmp_path)
    kept.load()
    before = len(os.listdir("/proc/self/fd"))
    kept.write_job(RECORD)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    kept.write_end(an_end(a_job()))
    assert len(os.listdir("/proc/self/fd")) == before
    kept.forget(a_job())
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("calls", range(5))
def test_wherever_the_runner_is_killed_the_file_says_something_true(tmp_path: Path, calls: int) -> None:
    found_in(tmp_path)
    with contextlib.suppress(PowerCut):
        a_whole_life(kept_jobs(tmp_path, MortalFiles(calls)))
    found = found_in(tmp_path)

    expected = [
        ([], []),  # nothing was begun
        ([], []),  # an empty file: the process was not started
        ([Leftover(RECORD, None)], []),
        ([Leftover(RECORD, PROCESS)], []),
        ([], [an_end(a_job())]),
    ][calls]
    assert (found.leftovers, found.ends) == expected


@pytest.mark.parametrize("most", [1, 5, 8, 30])
@pytest.mark.parametrize("calls", range(1, 60))
def test_wherever_a_record_is_torn_a_file_that_had_a_job_before_says_something_true(
    tmp_path: Path, calls: int, most: int
) -> None:
    class Files(MortalFiles):
        def write_at(self, fd: int, data: bytes | memoryview, place: int) -> int:
            return super().write_at(fd, data[:most], place)

    files = Files(10_000)
    kept = kept_jobs(tmp_path, files)
    kept.load()
    a_whole_life(kept)
    kept.forget(a_job())
    files.calls_left = calls
    with contextlib.suppress(PowerCut):
        a_whole_life(kept, NEXT)
    found = found_in(tmp_path)

    assert (found.leftovers, found.ends) in [
        ([], []),
        ([Leftover(NEXT, None)], []),
        ([Leftover(NEXT, PROCESS)], []),
        ([], [an_end(a_job(1))]),
    ]


@pytest.mark.parametrize("mask", [1, 2, 0x80, 0xFF])
def test_never_is_a_damaged_file_taken_for_something_else(tmp_path: Path, mask: int) -> None:
    """Every single byte of it, damaged alone."""
    found_in(tmp_path)
    a_whole_life(kept_jobs(tmp_path))
    file = tmp_path / "jobs" / "1"
    content = file.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= mask
        file.write_bytes(damaged)
        found = found_in(tmp_path)

        assert found.ends == []
        assert found.leftovers in ([], [Leftover(RECORD, None)], [Leftover(RECORD, PROCESS)])
        assert len(found.leftovers) + len(found.spoiled) == 1


@pytest.mark.parametrize("size", [0, 3, 8, 40, 90, 120])
def test_a_file_that_was_cut_says_what_is_whole(tmp_path: Path, size: int) -> None:
    found_in(tmp_path)
    a_whole_life(kept_jobs(tmp_path))
    file = tmp_path / "jobs" / "1"
    file.write_bytes(file.read_bytes()[:size])
    found = found_in(tmp_path)

    assert found.ends == []
    assert len(found.leftovers) + len(found.spoiled) == 1


def test_a_file_of_an_older_version_is_read_and_gets_its_end(tmp_path: Path) -> None:
    """It has the name of its job, and checksums that do not depend on one another."""
    (tmp_path / "jobs").mkdir()
    payloads = [msgspec.msgpack.encode(record) for record in (RECORD, PROCESS)]
    records = [len(data).to_bytes(4, "big") + zlib.crc32(data).to_bytes(4, "big") + data for data in payloads]
    (tmp_path / "jobs" / f"{OPERATION}.0.1").write_bytes(b"".join(records))
    kept = kept_jobs(tmp_path)
    assert kept.load() == EarlierRunner(leftovers=[Leftover(RECORD, PROCESS)])
    kept.write_end(an_end(a_job()))
    assert found_in(tmp_path) == EarlierRunner(ends=[an_end(a_job())])
    kept.forget(a_job())
    a_whole_life(kept, NEXT)

    assert found_in(tmp_path) == EarlierRunner(ends=[an_end(a_job(1))])


def test_files_that_cannot_be_read_are_put_aside_under_names_that_no_other_gets(tmp_path: Path) -> None:
    for text in ("first", "second"):
        kept = kept_jobs(tmp_path)
        kept.load()
        kept.write_job(RECORD)
        [file] = (tmp_path / "jobs").iterdir()
        file.write_text(text)
        assert found_in(tmp_path).spoiled == [file.name]

    assert sorted(file.read_text() for file in (tmp_path / "spoiled").iterdir()) == ["first", "second"]


def test_an_end_that_could_not_be_written_is_written_when_it_can_be(tmp_path: Path) -> None:
    kept = kept_jobs(tmp_path)
    kept.load()
    (tmp_path / "jobs").rename(tmp_path / "away")

    assert not kept.write_end(an_end(a_job()))
    assert kept.trouble == f"1 ends of jobs are held in memory only: {tmp_path}/jobs/1: No such file or directory"
    kept.retry()
    assert kept.unwritten == 1
    (tmp_path / "away").rename(tmp_path / "jobs")
    kept.retry()
    assert (kept.unwritten, kept.trouble) == (0, "")
    assert found_in(tmp_path).ends == [an_end(a_job())]


def test_an_acknowledged_end_is_not_written_any_more(tmp_path: Path) -> None:
    kept = kept_jobs(tmp_path)
    kept.write_end(an_end(a_job()))
    kept.forget(a_job())

    assert kept.unwritten == 0


def test_an_end_is_not_written_where_the_disk_says_so_when_its_file_is_closed(tmp_path: Path) -> None:
    """As a disk across the network does. It costs neither the runner nor the end, and the file is not closed twice."""

    class Files(LinuxFiles):
        is_full = True

        def close(self, fd: int) -> None:
            super().close(fd)
            if self.is_full:
                raise OSError(errno.EDQUOT, "no room")

    files = Files()
    kept = kept_jobs(tmp_path, files)
    kept.load()
    kept.write_job(RECORD)
    assert not kept.write_end(an_end(a_job()))
    assert kept.trouble == f"1 ends of jobs are held in memory only: {tmp_path}/jobs/1: no room"
    files.is_full = False
    kept.retry()
    assert kept.unwritten == 0
    assert found_in(tmp_path) == EarlierRunner(ends=[an_end(a_job())])

    files.is_full = True
    kept.forget(a_job())
    assert found_in(tmp_path) == EarlierRunner()
    files.is_full = False
    kept.write_job(NEXT)
    assert found_in(tmp_path) == EarlierRunner(leftovers=[Leftover(NEXT, None)])
