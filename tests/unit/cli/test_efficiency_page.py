"""The page of `op efficiency`, and the columns of `op get --jobs` about what was used."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import Any, cast

import anyio
import pytest
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from headrace.client import Client
from headrace.efficiency import efficiency_of
from headrace.errors import BadInput
from headrace.ids import AllocationId, NodeName, OperationId
from headrace.wire.happenings import JobEnded
from headrace.wire.heartbeat import JobResult, JobSlot
from headrace.wire.operations import JobRow, OperationState, RunUsage
from headrace_cli.commands.operations.efficiency import efficiency_facts, notes, usage_table
from headrace_cli.commands.operations.job_list import JobWishes, ListedJobs, listed_jobs
from headrace_cli.commands.operations.tables import job_table
from tests.unit.test_efficiency import GIB, MIB, a_usage, a_view


def lines(table: Table) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_the_page_says_what_was_asked_and_used_with_the_option_to_type() -> None:
    view = a_view(completed=a_usage(2_150 * MIB), failed=replace(a_usage(GIB), runs_in_cgroups=1))

    facts = lines(efficiency_facts(view, efficiency_of(view)))
    assert "memory asked for 64 GiB, used at most 2.1 GiB (3.3%) by its completed runs" in facts
    assert "cores 3.1 of 8 (38.8%) on average by its completed runs" in facts
    assert "unused 9.8 core-hours, 125 GiB-hours" in facts
    assert facts[-1] == "suggestion headrace run --memory 3G --cpu 4"
    assert lines(usage_table(view))[1:] == [
        "completed 2 1 1h 3h6m 3.1 2.1 GiB",
        "failed 1 1 1h 3h6m 3.1 1 GiB",
    ]
    (note,) = notes(view)
    assert note.startswith(
        "1 of 2 measured runs had no cgroup: their peak memory is that of the largest single process"
    )
    running = replace(view, state=OperationState.RUNNING, used={JobResult.FAILED: view.used[JobResult.FAILED]})
    assert list(notes(running)) == ["jobs that still run are not included"]


def test_what_was_not_measured_is_a_dash() -> None:
    view = replace(a_view(), lost_jobs=1)

    facts = lines(efficiency_facts(view, efficiency_of(view)))
    assert "memory asked for 64 GiB, used –" in facts
    assert "cores asked for 8, used –" in facts
    assert facts[-1] == "suggestion none: no completed run was measured"
    assert lines(usage_table(view))[-1] == "were lost 1 0 – – – –"
    assert "no run was measured yet" in next(notes(view))


def test_raised_memory_is_shown_beside_what_was_asked_for() -> None:
    passed = RunUsage(2, 7_200_000, 0, 96 * GIB, raised_runs=2, raised_memory_bytes=128 * GIB)
    facts = lines(efficiency_facts(view := a_view(completed=passed), efficiency_of(view)))

    expected = (
        "memory asked for 64 GiB, raised to at most 128 GiB for 2 runs, used at most 96 GiB (75%) by its completed runs"
    )
    assert expected in facts
    assert facts[-1] == "suggestion headrace run --memory 128G"


def test_a_run_too_short_to_have_taken_time_has_no_mean_cores() -> None:
    view = a_view(completed=RunUsage(1, 0, 0, MIB))

    assert "cores asked for 8, used –" in lines(efficiency_facts(view, efficiency_of(view)))
    assert lines(usage_table(view))[1] == "completed 2 1 0ms 0ms – 1 MiB"


def an_end(index: int, **figures: Any) -> JobEnded:
    return JobEnded(
        8_000, OperationId("op"), JobSlot(index), NodeName("n"), AllocationId("a"), 5_000, JobResult.FAILED, **figures
    )


def test_jobs_are_listed_with_what_their_attempts_used() -> None:
    rows = [JobRow(JobSlot(index), JobResult.FAILED, "n", 3) for index in range(3)]
    ends = {JobSlot(0): an_end(0, cpu_ms=2_000, max_rss_bytes=GIB), JobSlot(1): an_end(1)}

    head, *shown = lines(job_table(rows, None, ends, now_ms=9_000))
    assert head.endswith("exit code started ran cpu time peak memory")
    assert [line.split(" 3 ")[1].split(" ", 1)[1] for line in shown] == ["3s 2s 1 GiB", "3s – –", "– – –"]
    assert "cpu time" not in lines(job_table(rows, None))[0]

    first, second, third = ListedJobs(rows, ends, False).as_json()
    assert [first[name] for name in ("slot", "started_at_ms", "ended_at_ms", "cpu_ms", "max_rss_bytes")] == [
        {"index": 0, "attempt": 1},
        5_000,
        8_000,
        2_000,
        GIB,
    ]
    assert (second["started_at_ms"], second["cpu_ms"], third["started_at_ms"]) == (5_000, None, None)


@pytest.mark.parametrize(
    "given",
    [
        {"jobs": False, "failed": True, "job": None, "limit": None},
        {"jobs": False, "failed": False, "job": 0, "limit": None},
        {"jobs": False, "failed": False, "job": None, "limit": 3},
        {"jobs": True, "failed": True, "job": 3, "limit": None},
        {"jobs": True, "failed": False, "job": -1, "limit": None},
        {"jobs": True, "failed": False, "job": None, "limit": 0},
    ],
)
def test_options_that_choose_jobs_are_refused_where_they_choose_nothing(given: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        JobWishes.read(**given)  # type: ignore[arg-type]


def test_one_job_is_asked_for_by_its_index() -> None:
    assert JobWishes.read(jobs=True, failed=False, job=7, limit=None) == JobWishes(7, 1, (), True)
    assert JobWishes.read(jobs=False, failed=False, job=None, limit=None) is None


class FewRequests:
    """A client of an operation with very many jobs, which must not read the log for all of them."""

    def __init__(self, jobs: int) -> None:
        self.rows = [JobRow(JobSlot(index), JobResult.COMPLETED, "n") for index in range(jobs)]
        self.happenings = self
        self.asked: list[list[JobSlot]] = []

    async def jobs(self, operation: str, *, first: int, limit: int, results: object) -> AsyncIterator[JobRow]:
        for row in self.rows[first : first + limit]:
            yield row

    async def ends(self, operation: str, runs: list[JobSlot]) -> dict[JobSlot, JobEnded]:
        self.asked.append(runs)
        return {JobSlot(0): an_end(0)}


@pytest.mark.parametrize(("jobs", "is_read"), [(10_000, True), (10_001, False)])
def test_the_log_is_not_read_for_very_many_jobs_and_the_list_says_so(jobs: int, is_read: bool) -> None:
    wishes = JobWishes.read(jobs=True, failed=False, job=None, limit=None, json=True)
    assert wishes is not None
    client = FewRequests(jobs)

    listed = anyio.run(listed_jobs, cast("Client", client), a_view(), wishes)

    assert len(listed.rows) == jobs
    assert (bool(client.asked), bool(listed.ends)) == (is_read, is_read)
    assert len([*listed.notes()]) == (not is_read)


@pytest.mark.parametrize(("jobs", "limit", "rows"), [(1_000, None, 1_000), (1_001, None, 1_000), (3_000, 2_000, 2_000)])
def test_a_table_has_the_first_thousand_jobs_unless_more_are_asked_for(jobs: int, limit: int | None, rows: int) -> None:
    """The table of an operation of a million jobs was printed after minutes, all at once."""
    wishes = JobWishes.read(jobs=True, failed=False, job=None, limit=limit)
    assert wishes is not None

    listed = anyio.run(listed_jobs, cast("Client", FewRequests(jobs)), a_view(), wishes)

    assert len(listed.rows) == rows
    notes = [f"only the first {rows} are shown; --limit shows more"] if jobs > rows else []
    assert [*listed.notes()] == notes
