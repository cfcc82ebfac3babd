"""Word that jobs and their host leave for each other: what is read of it, what is not, and what is removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from headrace.ids import OperationId
from headrace.wire.heartbeat import JobKey, RunningJob
from headrace_agent.host.environment import DEADLINE, PROGRESS, exchange_file
from headrace_agent.host.job_exchange import look, make_exchange, names_in, parse_progress
from headrace_agent.runner.protocol import Run
from tests.support.agent_desk import Desk, job, spec, start

OURS = JobKey(OperationId("operation-1"), 3, 2)


def look_at(folder: Path, jobs: dict[JobKey, str]) -> dict[JobKey, int]:
    return look(str(folder), names_in(str(folder)), jobs)


def said(tmp_path: Path, text: str) -> dict[JobKey, int]:
    Path(exchange_file(str(tmp_path), OURS, PROGRESS)).write_text(text)
    return look_at(tmp_path, {OURS: ""})


@pytest.mark.parametrize(
    ("data", "thousandths"),
    [
        (b"0", 0),
        (b"0.25\n", 250),
        (b"1", 1000),
        (b"30/400", 75),
        (b" 3 / 4 \n", 750),
        (b"7", 1000),
        (b"-1", 0),
        (b"5/2", 1000),
        (b"", None),
        (b"half", None),
        (b"1/0", None),
        (b"nan", None),
        (b"inf", None),
        (b"1/", None),
        (b"\xff", None),
    ],
)
def test_a_number_or_a_fraction_is_progress_and_nothing_else_is(data: bytes, thousandths: int | None) -> None:
    assert parse_progress(data) == thousandths


def test_progress_is_read_of_jobs_that_run(tmp_path: Path) -> None:
    assert said(tmp_path, "1/8") == {OURS: 125}


def test_nothing_is_made_for_a_job_that_says_nothing(tmp_path: Path) -> None:
    assert look_at(tmp_path, {OURS: ""}) == {}
    assert list(tmp_path.iterdir()) == []


def test_files_of_jobs_that_are_over_go(tmp_path: Path) -> None:
    said(tmp_path, "1")
    for name in ("operation-1.3.2.deadline", "operation-1.3.2.progress.new", "something", "operation-1.3.1.progress"):
        (tmp_path / name).write_text("1")

    assert look_at(tmp_path, {OURS: ""}) == {OURS: 1000}
    kept = {"operation-1.3.2.deadline", "operation-1.3.2.progress", "operation-1.3.2.progress.new"}
    assert {path.name for path in tmp_path.iterdir()} == kept
    assert look_at(tmp_path, {}) == {}
    assert list(tmp_path.iterdir()) == []


def test_neither_links_nor_pipes_nor_folders_nor_long_files_are_believed(tmp_path: Path) -> None:
    path = Path(exchange_file(str(tmp_path), OURS, PROGRESS))
    (tmp_path.parent / "elsewhere").write_text("0.5")
    path.symlink_to(tmp_path.parent / "elsewhere")
    assert look_at(tmp_path, {OURS: ""}) == {}
    path.unlink()
    os.mkfifo(path)
    assert look_at(tmp_path, {OURS: ""}) == {}
    path.unlink()
    path.mkdir()
    assert look_at(tmp_path, {OURS: ""}) == {}
    path.rmdir()
    path.write_text("0" * 100_000 + "1")
    assert look_at(tmp_path, {OURS: ""}) == {OURS: 0}


def test_a_file_of_another_account_is_not_believed(tmp_path: Path) -> None:
    said(tmp_path, "0.5")

    assert look_at(tmp_path, {OURS: "nobody"}) == {}


def test_with_accounts_each_may_write_and_none_may_list(tmp_path: Path) -> None:
    make_exchange(f"{tmp_path}/own", for_accounts=False)
    make_exchange(f"{tmp_path}/all", for_accounts=True)

    assert [(tmp_path / name).stat().st_mode & 0o7777 for name in ("own", "all")] == [0o700, 0o1733]


def test_a_job_is_told_the_names_of_its_files_and_only_one_that_understands_the_signal_a_deadline() -> None:
    desk = Desk(exchange_folder="/x")
    desk.turn(start("a", [0]))
    told = msgspec.structs.replace(spec("operation-2"), interruptible=True)
    desk.turn(start("b", [1], told=told, operation="operation-2"))
    plain, interruptible = desk.told(Run)

    assert plain.environment["HEADRACE_PROGRESS"] == "/x/operation-1.0.1.progress"
    assert "HEADRACE_DEADLINE" not in plain.environment
    assert plain.deadline_file == ""
    assert interruptible.environment["HEADRACE_DEADLINE"] == interruptible.deadline_file
    assert interruptible.deadline_file == exchange_file("/x", JobKey(OperationId("operation-2"), 1, 1), DEADLINE)


def test_the_next_heartbeat_tells_the_progress_and_none_goes_for_its_sake() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.started(job(0))
    desk.turn()
    before = len(desk.effects)

    outcome = desk.engine.on_progress({job(0): 250, job(1): 100}, desk.now())

    assert not outcome.effects
    assert len(desk.effects) == before
    heartbeat = desk.turn()
    running = [report.job for report in heartbeat.allocations]
    assert [one.progress for one in running if isinstance(one, RunningJob)] == [250]


def test_the_helper_of_jobs_needs_nothing_but_pythons_own_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import headrace.checkpoint; print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert {name.partition(".")[0] for name in loaded} <= {"headrace", *sys.stdlib_module_names}
    assert {name for name in loaded if name.startswith("headrace")} == {"headrace", "headrace.checkpoint"}
