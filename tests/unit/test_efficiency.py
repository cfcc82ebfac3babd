"""What was asked for against what was used, and the suggestion."""

from __future__ import annotations

import msgspec
import pytest

from headrace.efficiency import efficiency_of, mean_cores, unused
from headrace.ids import AllocationId, OperationId, PoolName
from headrace.job_tasks import with_tasks
from headrace.resources import LARGEST_SUM, Resources
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.operations import OperationSpec, OperationState, OperationView, RunUsage, TaskEnds
from headrace.wire.tasks import Task

MIB = 1024**2
GIB = 1024**3
HOUR_MS = 3_600_000


def a_view(cpu: int = 800, memory: int = 64 * GIB, **used: RunUsage) -> OperationView:
    spec = OperationSpec(PoolName("research"), ["true"], job_count=3, resources=Resources(1, cpu, 0, memory, 0))
    view = OperationView(OperationId("op"), "anna", spec, OperationState.COMPLETED, False, False, 0, 0, 2, 1, 0, 0, 0)
    return msgspec.structs.replace(view, used={JobResult(name): each for name, each in used.items()})


def a_usage(memory: int, most_cpu: int = 310, *, cpu_ms: int = 31 * HOUR_MS // 10) -> RunUsage:
    return RunUsage(1, HOUR_MS, cpu_ms, memory, most_cpu)


def test_the_completed_runs_are_compared_with_the_request() -> None:
    found = efficiency_of(a_view(completed=a_usage(2_150 * MIB)))

    assert (found.mean_cores, found.max_rss_bytes) == (3.1, 2_150 * MIB)
    assert found.suggestions == ["--memory 3G", "--cpu 4"]
    assert found.unused_core_seconds == 49 * 360
    assert found.unused_byte_seconds == (64 * GIB - 2_150 * MIB) * 3600


def test_runs_of_less_than_a_second_together_have_no_mean_cores() -> None:
    assert [mean_cores(RunUsage(3, ran_ms, 500)) for ran_ms in (0, 999, 1_000)] == [None, None, 0.5]


def test_nothing_is_suggested_and_nothing_is_zero_without_a_completed_run() -> None:
    for view in (a_view(), a_view(failed=a_usage(GIB))):
        found = efficiency_of(view)

        assert (found.mean_cores, found.max_rss_bytes, found.suggestions) == (None, None, [])


def test_a_suggestion_bears_the_peak_of_an_interrupted_run() -> None:
    found = efficiency_of(a_view(completed=a_usage(2 * GIB), aborted=a_usage(8 * GIB, most_cpu=500)))

    assert found.max_rss_bytes == 2 * GIB
    assert found.suggestions == ["--memory 10G"]


@pytest.mark.parametrize(
    ("asked", "peak", "suggested"),
    [
        (GIB, 700 * MIB, []),
        (GIB, 30 * MIB, ["--memory 48M"]),
        (4 * GIB, 2 * GIB, ["--memory 2560M"]),
        (GIB, GIB, []),
        (GIB, 2 * GIB, ["--memory 2560M"]),
        (0, 100 * MIB, ["--memory 128M"]),
        (64 * GIB, 1, ["--memory 16M"]),
        (64 * GIB, 0, []),
    ],
)
def test_suggested_memory_is_rounded_and_worth_the_change(asked: int, peak: int, suggested: list[str]) -> None:
    assert efficiency_of(a_view(memory=asked, completed=a_usage(peak, most_cpu=0))).suggestions == suggested


@pytest.mark.parametrize(
    ("asked", "peak", "suggested"),
    [
        (100, 20, ["--cpu 0.5"]),
        (50, 20, []),
        (800, 700, []),
        (100, 110, []),
        (100, 300, ["--cpu 4"]),
        (800, 0, []),
    ],
)
def test_suggested_cores_are_rounded_and_worth_the_change(asked: int, peak: int, suggested: list[str]) -> None:
    usage = a_usage(0, most_cpu=peak)

    assert efficiency_of(a_view(cpu=asked, completed=usage)).suggestions == suggested


def test_what_is_used_beyond_the_request_is_no_negative_waste_and_sums_stay_within_a_message() -> None:
    over = a_usage(2 * GIB, cpu_ms=3 * HOUR_MS)
    assert unused(Resources(1, 100, 0, GIB, 0), {JobResult.COMPLETED: over}) == (0, 0)
    most = RunUsage(1, LARGEST_SUM, 0, 0)
    assert unused(Resources(1, 100, 0, GIB, 0), {JobResult.LOST: most})[1] == LARGEST_SUM


def test_each_task_is_compared_with_its_own_request_and_the_unused_parts_are_summed_up() -> None:
    tasks = [
        Task(name, ["x"], 1, Resources(1, cpu, memory=4 * GIB)) for name, cpu in (("a", 400), ("b", 800), ("c", 1))
    ]
    ends = TaskEnds({JobResult.COMPLETED: 1}, {JobResult.COMPLETED: a_usage(4 * GIB)})
    view = a_view(completed=a_usage(4 * GIB))
    view = msgspec.structs.replace(view, spec=with_tasks(view.spec, tasks), task_ends={0: ends, 1: ends})

    found = efficiency_of(view)

    assert (found.suggestions, list(found.tasks)) == ([], ["a", "b"])
    assert [each.suggestions for each in found.tasks.values()] == [[], ["--cpu 4"]]
    assert found.unused_core_seconds == (9 + 49) * 360
    assert found.unused_core_seconds == sum(each.unused_core_seconds for each in found.tasks.values())


def test_jobs_that_passed_with_raised_memory_are_measured_against_it_and_it_is_the_suggestion() -> None:
    """One run with 1 GiB ran out of memory, and the next had 2 GiB for an hour and used half a GiB as far as it was measured."""
    failed, passed = a_usage(GIB), RunUsage().plus(raised_run(2 * GIB, GIB // 2))
    found = efficiency_of(a_view(memory=GIB, cpu=400, completed=passed, failed=failed))

    assert found.suggestions == ["--memory 2G"]
    assert found.unused_byte_seconds == 3 * GIB // 2 * 3600
    failed_again = RunUsage().plus(raised_run(4 * GIB, 4 * GIB))
    assert (
        efficiency_of(a_view(memory=GIB, completed=a_usage(GIB), failed=failed_again)).suggestions[0] == "--memory 5G"
    )


def test_raised_and_other_runs_add_up() -> None:
    both = RunUsage().plus(raised_run(0, GIB)).plus(raised_run(3 * GIB, GIB)).plus(raised_run(2 * GIB, GIB))

    assert (both.raised_runs, both.raised_ms, both.raised_memory_bytes) == (2, 2 * HOUR_MS, 3 * GIB)
    assert unused(Resources(1, 0, 0, 2 * GIB, 0), {JobResult.COMPLETED: both})[1] == (1 + 2 + 1) * GIB * 3600


def raised_run(memory: int, peak: int) -> JobEnd:
    end = JobEnd(
        OperationId("op"), 0, 1, AllocationId("a"), JobResult.COMPLETED, started_at_ms=1, ended_at_ms=1 + HOUR_MS
    )
    return msgspec.structs.replace(end, max_rss_bytes=peak, memory_bytes=memory)
