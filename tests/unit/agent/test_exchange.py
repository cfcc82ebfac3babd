"""Word that jobs and their host leave for each other: what is read of it, what is not, and what is removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from headrace.ids import AllocationId, OperationId
from headrace.wire.heartbeat import JobKey, RunningJob
from headrace_agent.host.account_mapping import AccountMapping
from headrace_agent.host.environment import DEADLINE, PROGRESS, exchange_file
from headrace_agent.host.job_exchange import JobExchange, parse_progress
from headrace_agent.run_order import run_order
from headrace_agent.runner.protocol import Run
from tests.support.agent_desk import Desk, job, spec, start

OURS = JobKey(OperationId("operation-1"), 3, 2)


def look_at(folder: Path, jobs: dict[JobKey, str]) -> dict[JobKey, int]:
    """The second of two looks: what belongs to no job is gone."""
    exchange = JobExchange(str(folder))
    exchange.read_progress(exchange.names(), jobs)
    return exchange.read_progress(exchange.names(), jobs)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".trash"}


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
    assert names_in(tmp_path) == set()


def test_files_of_jobs_that_are_over_go(tmp_path: Path) -> None:
    said(tmp_path, "1")
    for name in ("operation-1.3.2.deadline", "operation-1.3.2.progress.new", "something", "operation-1.3.1.progress"):
        (tmp_path / name).write_text("1")

    assert look_at(tmp_path, {OURS: ""}) == {OURS: 1000}
    kept = {"operation-1.3.2.deadline", "operation-1.3.2.progress", "operation-1.3.2.progress.new"}
    assert names_in(tmp_path) == kept
    assert look_at(tmp_path, {}) == {}
    assert names_in(tmp_path) == set()


def test_what_belongs_to_no_job_stays_for_one_look_in_case_the_agent_has_not_heard_of_the_job_yet(
    tmp_path: Path,
) -> None:
    exchange = JobExchange(str(tmp_path))
    Path(exchange_file(str(tmp_path), OURS, PROGRESS)).write_text("1/8")

    assert exchange.read_progress(exchange.names(), {}) == {}
    assert exchange.read_progress(exchange.names(), {OURS: ""}) == {OURS: 125}
    assert exchange.read_progress(exchange.names(), {}) == {}
    assert len(names_in(tmp_path)) == 1


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


@pytest.mark.parametrize("makes_folders", [True, False])
def test_a_job_of_an_account_has_a_folder_of_its_own_if_the_runner_makes_one(makes_folders: bool) -> None:
    desk = Desk(exchange_folder="/x")
    desk.turn(start("a", [0]))
    identity = msgspec.structs.replace(desk.identity, accounts=AccountMapping({"someone": "research"}))
    told, allocation = msgspec.structs.replace(spec(), user="someone"), desk.engine.held.by_id[AllocationId("a")]

    order = run_order(identity, allocation, job(0), told, "", None, makes_folders=makes_folders)

    own = "/x/operation-1.0.1" if makes_folders else ""
    assert order.exchange_folder == own
    assert order.environment["HEADRACE_PROGRESS"] == (f"{own}/operation-1.0.1.progress" if own else os.devnull)


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
