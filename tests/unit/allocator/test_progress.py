"""The progress that jobs tell is summed up by operation, as heartbeats bring it, and nobody is asked for it."""

from __future__ import annotations

from headrace.ids import OperationId
from headrace.wire.heartbeat import AllocationReport, AllocationState, RunningJob, Start
from headrace.wire.nodes import ListProgress, OperationProgress, ProgressList
from tests.support.allocating import Desk, an_operation, cores


def shown(start: Start, progress: int | None) -> AllocationReport:
    slot = start.slots[0]
    job = RunningJob(slot.index, slot.attempt, 1, 0, "", progress)
    return AllocationReport(start.allocation, start.operation, AllocationState.RUNNING, start.resources, job, [], 0)


def told(desk: Desk, *names: str) -> list[OperationProgress]:
    answer = desk.engine.on_question(ListProgress([OperationId(name) for name in names]), desk.now).answer
    assert isinstance(answer, ProgressList)
    return list(answer.operations)


def test_progress_is_that_of_the_jobs_that_run_now_and_say_so() -> None:
    desk = Desk({"n": cores(6, slots=9)})
    desk.start(an_operation("tells", 3), an_operation("says-nothing", 3))
    starts = [start for start in desk.beat("n")[0].start if start.operation == "tells"]
    assert told(desk, "tells", "says-nothing", "is-not-known") == []

    for first, second, expected in [
        (None, 100, (1, 100)),
        (250, 100, (2, 350)),
        (250, 999, (2, 1_249)),
        (None, 999, (1, 999)),
    ]:
        of_job = [first, second, None]
        desk.beat("n", allocations=[shown(start, of_job[at]) for at, start in enumerate(starts)])
        assert told(desk, "tells", "says-nothing") == [OperationProgress(OperationId("tells"), *expected)]

    desk.beat("n", allocations=[shown(starts[0], None)])
    assert told(desk, "tells") == []


def test_what_is_done_counts_with_what_runs() -> None:
    progress = OperationProgress(OperationId("tells"), 2, 900)

    assert progress.done(completed_jobs=1, job_count=4) == 0.475
    assert progress.done(completed_jobs=4, job_count=4) == 1.0
    assert OperationProgress.joined([progress, progress]) == OperationProgress(OperationId("tells"), 4, 1_800)
    assert OperationProgress.joined([]) is None
