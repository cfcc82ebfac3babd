"""The files of a simulation: a file of jobs is complete or absent, and a file that cannot be read is named."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from headrace.errors import BadInput
from headrace.ids import PoolName
from headrace.resources import Resources
from headrace.wire.simulation import SimulationTask
from headrace_simulator.submissions import Submission
from headrace_simulator.workload_files import JobLines, JobsFile, read_files

JOB = Submission(
    "a,1", PoolName("research"), "ann", 10_500, 1_000, 1, Resources(), is_gang=False, limit_ms=0, failed=False
)
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\n"


def test_a_file_of_jobs_appears_when_it_is_complete(tmp_path: Path) -> None:
    path, lines = tmp_path / "jobs.csv", io.StringIO()
    JobLines(lines, has_dates=True).add("native", JOB, 0, 20_500)
    lines.seek(0)
    with JobsFile(path) as jobs:
        jobs.copy(lines)
        assert not path.exists()

    assert path.read_text().splitlines() == [
        "configuration,job,pool,user,submitted,started,ended",
        'native,"a,1",research,ann,10.5,,20.5',
    ]


@pytest.mark.parametrize(("error", "seen"), [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(28, "full"), BadInput)])
def test_nothing_stays_after_an_error(tmp_path: Path, error: BaseException, seen: type[BaseException]) -> None:
    with pytest.raises(seen), JobsFile(tmp_path / "jobs.csv"):
        raise error

    assert list(tmp_path.iterdir()) == []


def test_files_are_plain_or_compressed_whatever_their_names(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_bytes(gzip.compress(b"submit,run,user\n5,7,\xff\n", mtime=0))
    (tmp_path / "nodes").write_text(NODES)
    found = read_files(SimulationTask(str(tmp_path / "jobs"), [], nodes_file=str(tmp_path / "nodes")))

    assert [(job.submitted_ms, job.runs_ms) for job in found.jobs] == [(5_000, 7_000)]
    assert [(each.count, each.size.gpu) for each in found.nodes] == [(1, 2)]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "No such file"),
        (gzip.compress(b"submit,run\n" * 99, mtime=0)[:30], "ended before"),
        (gzip.compress(b"submit,run\n" * 99, mtime=0)[:-8] + b"x" * 8, "CRC check failed"),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 99, "cannot be used"),
        (b"", "cannot be recognized"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path, data: bytes | None, why: str) -> None:
    path = tmp_path / "jobs"
    if data is not None:
        path.write_bytes(data)

    with pytest.raises(BadInput, match=why) as refused:
        read_files(SimulationTask(str(path), []))

    assert str(path) in str(refused.value)
