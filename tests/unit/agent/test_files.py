"""Files of operations in the agent's decisions: fetched once, waited for, and gone when the operation is over."""

from __future__ import annotations

import msgspec

from headrace.ids import AllocationId
from headrace.wire.files import Archive
from headrace.wire.heartbeat import AllocationState, Forget, JobSlot
from headrace_agent.files.operation_files import FetchFiles, FilesFailure, FilesFault, RemoveFiles
from headrace_agent.runner.protocol import Run
from tests.support.agent_desk import OPERATION, Desk, end_of, job, spec, start

ARCHIVE = Archive("a" * 64, 10)
WITH_FILES = msgspec.structs.replace(spec(), files=ARCHIVE, user="ada")
OTHER = "operation-2"


def waiting_desk() -> Desk:
    """A desk with an allocation of two jobs whose files are on their way."""
    desk = Desk()
    desk.turn(start("a", [0, 1], told=WITH_FILES))
    return desk


def come(desk: Desk, fault: FilesFault | None = None, why: str = "lost") -> None:
    failure = None if fault is None else FilesFailure(fault, why)
    desk.do(desk.engine.on_files(WITH_FILES.operation, failure, desk.now()))


def test_files_are_fetched_once_and_jobs_start_when_they_are_there() -> None:
    desk = waiting_desk()
    desk.turn(start("b", [2], told=WITH_FILES), start("c", [0], operation=OTHER))

    assert desk.all(FetchFiles) == [FetchFiles(WITH_FILES.operation, ARCHIVE, "ada", OPERATION)]
    assert desk.runs == [job(0, OTHER)], "jobs of others do not wait for them"

    come(desk)

    assert desk.runs == [job(0, OTHER), job(0), job(2)]
    run = desk.told(Run)[-1]
    assert run.working_directory == run.environment["HEADRACE_FILES"]
    assert run.working_directory.endswith(f"/{OPERATION}")
    desk.turn(start("d", [3], told=WITH_FILES))
    assert len(desk.all(FetchFiles)) == 1


def test_a_folder_that_was_named_counts_and_the_files_are_told_beside_it() -> None:
    desk = Desk()
    desk.turn(start("a", [0], told=msgspec.structs.replace(WITH_FILES, working_directory="/srv")))
    come(desk)

    assert desk.told(Run)[-1].working_directory == "/srv"
    assert desk.told(Run)[-1].environment["HEADRACE_FILES"].endswith(OPERATION)


def test_lost_files_fail_one_job_with_the_reason_and_the_others_are_given_back() -> None:
    desk = waiting_desk()
    come(desk, FilesFault.LOST, "its files are damaged")

    assert [(run.job, run.not_started_for, run.is_host_fault) for run in desk.told(Run)] == [
        (job(0), "its files are damaged", False)
    ]
    desk.ended(end_of(job(0)))
    desk.turn()
    report = desk.report("a")
    assert report is not None
    assert (report.state, report.unstarted) == (AllocationState.ENDED, [JobSlot(1)])

    desk.turn(start("b", [1], told=WITH_FILES))
    assert len(desk.all(FetchFiles)) == 2, "the next allocation tries anew"


def test_a_host_that_cannot_keep_them_is_told_apart() -> None:
    desk = waiting_desk()
    come(desk, FilesFault.HOST, "No space left on device")

    assert [run.is_host_fault for run in desk.told(Run)] == [True]


def test_files_that_nobody_gives_at_the_moment_fail_no_job() -> None:
    desk = waiting_desk()
    come(desk, FilesFault.PASSING, "nobody answers")
    desk.turn()

    report = desk.report("a")
    assert desk.runs == []
    assert report is not None
    assert (report.state, report.given_back_for) == (AllocationState.ENDED, "nobody answers")


def test_files_go_when_the_operation_is_over_and_nothing_of_it_is_here() -> None:
    desk = waiting_desk()
    come(desk)
    assert desk.engine.unused_files() == []
    desk.do(desk.engine.on_over([WITH_FILES.operation], desk.now()))
    assert desk.all(RemoveFiles) == []

    for index in (0, 1):
        desk.ended(end_of(job(index)))
    desk.turn(forget=Forget(ends=[job(0), job(1)], allocations=[AllocationId("a")]))

    assert desk.engine.unused_files() == [OPERATION]
    desk.do(desk.engine.on_over([WITH_FILES.operation], desk.now()))
    assert desk.all(RemoveFiles) == [RemoveFiles(WITH_FILES.operation)]
    assert desk.engine.unused_files() == []


def test_after_a_restart_nothing_is_asked_about_until_it_is_known_what_runs() -> None:
    desk = Desk(picture=False, with_files=[WITH_FILES.operation])
    assert desk.engine.unused_files() == []

    desk.picture()

    assert desk.engine.unused_files() == [OPERATION]
    desk.enrolled()
    desk.turn(start("a", [0], told=WITH_FILES))
    assert desk.all(FetchFiles) == []
    assert desk.runs == [job(0)]


def test_an_operation_gets_no_files_of_an_earlier_operation_with_its_id() -> None:
    desk = Desk(with_files=[f"{OPERATION}.1000"])
    later = msgspec.structs.replace(WITH_FILES, user="ben", started_at_ms=2000)
    desk.turn(start("a", [0], told=later))

    assert desk.all(FetchFiles) == [FetchFiles(OPERATION, ARCHIVE, "ben", f"{OPERATION}.2000")]
    assert desk.runs == []
    desk.do(desk.engine.on_files(f"{OPERATION}.2000", None, desk.now()))
    assert desk.told(Run)[-1].working_directory.endswith(f"/{OPERATION}.2000")

    desk.ended(end_of(job(0)))
    desk.turn(forget=Forget(ends=[job(0)], allocations=[AllocationId("a")]))
    desk.do(desk.engine.on_over([OPERATION], desk.now()))
    assert desk.all(RemoveFiles) == [RemoveFiles(f"{OPERATION}.1000"), RemoveFiles(f"{OPERATION}.2000")]
