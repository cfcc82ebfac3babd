"""Numbers, values and rows, in Slurm's formats."""

from __future__ import annotations

import doctest
import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from headrace.errors import BadInput
from headrace.ids import OperationId, PoolName
from headrace.job_indexes import parse_indexes
from headrace.resources import Resources
from headrace.wire.happenings import JobEnded
from headrace.wire.heartbeat import JobResult, JobSlot
from headrace.wire.nodes import JobPlace, NodeView
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import JobRow, OperationState, OperationView
from headrace_cli.slurm.jobs import Facts, Job, JobState, jobs_of
from headrace_cli.slurm.nodes import SINFO_LETTERS, USUAL_SINFO, groups_of, partitions_of
from headrace_cli.slurm.numbers import JobName, number_at, number_of, operation_of, parse_job, parse_jobs, task_number
from headrace_cli.slurm.pools_file import PoolsFile
from headrace_cli.slurm.printing import (
    parse_letters,
    parse_names,
    parse_sacct,
    rows,
    sacct_rows,
    show_job,
    squeue_letters,
)
from headrace_cli.slurm.query import parse_moment_ms
from headrace_cli.slurm.values import parse_memory, parse_time_s

NOW_MS = 1_795_900_000_000


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def view(state: OperationState = OperationState.RUNNING, number: int = 286_000_000, **spec: object) -> OperationView:
    fields = {"pool": PoolName("lab"), "argv": ["sh"], "title": "train", "working_directory": "/home/ada"} | spec
    return OperationView(
        operation=operation_of(number),
        user="ada",
        spec=OperationSpec(**fields),  # type: ignore[arg-type]
        state=state,
        suspended=False,
        ephemeral_pool=False,
        started_at_ms=NOW_MS - 100_000,
        ended_at_ms=0 if state is OperationState.RUNNING else NOW_MS - 1_000,
        completed_jobs=0,
        failed_jobs=0,
        aborted_jobs=0,
        lost_jobs=0,
        open_jobs=1,
    )


def row(index: int, result: JobResult, **more: object) -> JobRow:
    return msgspec.structs.replace(JobRow(JobSlot(index), result, "alpha"), **more)


def ended(index: int, exit_code: int = 0, signal: int = 0) -> dict[JobSlot, JobEnded]:
    end = JobEnded(
        at_ms=NOW_MS - 5_000,
        operation=OperationId("x"),
        slot=JobSlot(index),
        node="alpha",
        allocation="a",  # type: ignore[arg-type]
        started_at_ms=NOW_MS - 65_000,
        result=JobResult.FAILED,
        exit_code=exit_code,
        signal=signal,
        cpu_ms=4_000,
        max_rss_bytes=10 * 2**20,
    )
    return {JobSlot(index): end}


ARRAY = Facts(
    rows=[row(0, JobResult.COMPLETED), row(1, JobResult.FAILED, exit_code=2), row(2, JobResult.ABORTED)],
    running=[JobPlace(3, 1, "alpha", "a", 61_000)],  # type: ignore[arg-type]
)


@pytest.mark.parametrize("module", ["numbers", "values", "command_line"])
def test_the_examples_in_docstrings_are_true(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"headrace_cli.slurm.{module}"))

    assert (found.failed, found.attempted > 0) == (0, True)


def test_numbers_rise_and_lead_to_operations_and_back() -> None:
    first, later = number_at(NOW_MS), number_at(NOW_MS + 100)

    assert later == first + 1
    assert number_of(operation_of(first)) == first
    assert number_of("slurm-0286000000") is None
    assert number_at(0) < number_at(NOW_MS) < 2**31


def test_a_task_is_named_in_each_of_its_forms() -> None:
    number, one = 286_000_000, frozenset([3])

    assert parse_job("286000000", "-j") == JobName(number)
    assert parse_job("286000000_3", "-j") == parse_job(str(task_number(number, 3)), "-j") == JobName(number, one)
    assert parse_job("286000000_3.batch", "-j") == JobName(number, one, "batch")
    assert parse_jobs(["286000000_[3-5,7%2],17"], "-j") == [JobName(number, frozenset([3, 4, 5, 7])), JobName(17)]
    assert parse_job("286000000_3", "-j").raw == task_number(number, 3)
    for wrong in ("x", "17_", "-3", "17_[", "0"):
        with pytest.raises(BadInput, match="the number of a job"):
            parse_job(wrong, "-j")


def test_no_task_has_the_number_of_an_array() -> None:
    latest = number_at(NOW_MS + 300 * 365 * 86_400_000)

    assert latest < task_number(number_at(0), 0)


def test_pending_tasks_are_one_row_and_all_others_a_row_each() -> None:
    jobs = list(jobs_of(view(job_count=7, indexes="10-16"), ARRAY, NOW_MS))

    assert [(job.id, job.state.value) for job in jobs] == [
        ("286000000_10", "COMPLETED"),
        ("286000000_11", "FAILED"),
        ("286000000_13", "RUNNING"),
        ("286000000_[12,14-16]", "PENDING"),
    ]
    each = jobs_of(view(job_count=7, indexes="10-16"), ARRAY, NOW_MS, each_task=True)
    assert [job.id for job in each] == [f"286000000_{index}" for index in range(10, 17)]


def test_tasks_that_never_ran_are_cancelled_at_the_end() -> None:
    jobs = jobs_of(view(OperationState.ABORTED, job_count=4, indexes="0-3"), ARRAY, NOW_MS)

    assert [job.state for job in jobs] == [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.CANCELLED]


@pytest.mark.parametrize(
    ("state", "changes", "found", "expected"),
    [
        (OperationState.COMPLETED, {}, None, JobState.COMPLETED),
        (OperationState.ABORTED, {}, None, JobState.CANCELLED),
        (OperationState.FAILED, {"timed_out_jobs": 1}, None, JobState.TIMEOUT),
        (OperationState.FAILED, {"out_of_memory_runs": 1}, None, JobState.OUT_OF_MEMORY),
        (OperationState.FAILED, {"failed_jobs": 1}, None, JobState.FAILED),
        (OperationState.FAILED, {}, None, JobState.CANCELLED),
        (OperationState.FAILED, {}, row(0, JobResult.FAILED), JobState.FAILED),
        (OperationState.FAILED, {}, row(0, JobResult.TIMED_OUT), JobState.TIMEOUT),
        (OperationState.FAILED, {}, row(0, JobResult.FAILED, out_of_memory=True), JobState.OUT_OF_MEMORY),
        (OperationState.FAILED, {}, row(0, JobResult.LOST), JobState.NODE_FAIL),
        (OperationState.RUNNING, {}, row(0, JobResult.ABORTED), JobState.PENDING),
        (OperationState.RUNNING, {}, None, JobState.PENDING),
    ],
)
def test_a_job_has_the_state_that_slurm_gives_it(
    state: OperationState, changes: dict[str, int], found: JobRow | None, expected: JobState
) -> None:
    changed = msgspec.structs.replace(view(state), **changes)
    [job] = jobs_of(changed, Facts([found] if found else []), NOW_MS)

    assert job.state is expected


def test_an_operation_that_sbatch_did_not_start_is_no_job() -> None:
    other = msgspec.structs.replace(view(), operation=OperationId("array-one"))

    assert list(jobs_of(other, Facts(), NOW_MS)) == []


def lines(jobs: list[Job], text: str) -> list[str]:
    return list(rows(parse_letters(text, squeue_letters(NOW_MS), "--format"), jobs, header=True))


def test_squeue_prints_letters_in_their_widths() -> None:
    jobs = list(jobs_of(view(job_count=5, indexes="0-4"), ARRAY, NOW_MS))

    assert lines(jobs, "%.18i|%.4P|%5j|%2t|%.6M|%R")[0] == "             JOBID|PART|NAME |ST|  TIME|NODELIST(REASON)"
    assert lines(jobs, "%.14i|%8P|%3j|%t|%.6M|%R%%")[3:] == [
        "   286000000_3|lab     |tra|R|  1:01|alpha%",
        "286000000_[2,4|lab     |tra|PD|  0:00|(Resources)%",
    ]
    assert lines(jobs, "%A %F %K")[3:] == ["286000000000003 286000000 3", "286000000 286000000 2,4"]
    names = parse_names("jobid:16,state:.10", NOW_MS, "--Format")
    assert list(rows(names, jobs[:1], header=False)) == ["286000000000000  COMPLETED"]
    with pytest.raises(BadInput, match="%y"):
        lines(jobs, "%y")
    with pytest.raises(BadInput, match="jobids"):
        parse_names("jobids", NOW_MS, "--Format")


def test_sacct_prints_fields_with_steps_or_without() -> None:
    failed = view(OperationState.FAILED, resources=Resources(1, 200, 1, 2**30), time_limit_ms=5_400_000)
    jobs = list(jobs_of(failed, Facts([row(0, JobResult.FAILED, exit_code=9)], ends=ended(0, 9)), NOW_MS))
    columns = parse_sacct(
        "JobID,jobidraw,State,ExitCode,Elapsed,CPUTimeRAW,MaxRSS,TotalCPU,Timelimit,AllocTRES,NodeList"
    )

    assert list(sacct_rows(columns, jobs, NOW_MS, header=True, delimiter="|", steps=True)) == [
        "JobID|JobIDRaw|State|ExitCode|Elapsed|CPUTimeRAW|MaxRSS|TotalCPU|Timelimit|AllocTRES|NodeList",
        "286000000|286000000|FAILED|9:0|00:01:00|120|10240K|00:00:04|01:30:00|cpu=2,mem=1G,node=1,gres/gpu=1|alpha",
        "286000000.batch|286000000.batch|FAILED|9:0|00:01:00|120|10240K|00:00:04||cpu=2,mem=1G,node=1,gres/gpu=1|alpha",
    ]
    narrow = parse_sacct("JobName%3,State%-8,Start,End")
    assert list(sacct_rows(narrow, jobs, NOW_MS, header=False)) == [
        "tr+ FAILED   2026-11-28T21:05:35 2026-11-28T21:06:35 "
    ]
    assert list(sacct_rows(narrow[:1], jobs, NOW_MS, header=True, delimiter=",", ends_with_delimiter=True)) == [
        "JobName,",
        "train,",
    ]
    with pytest.raises(BadInput, match="did you mean State"):
        parse_sacct("Stat")


def test_moments_are_read_as_slurm_writes_them() -> None:
    moments = ("now", "now-2days", "now-90", "2026-11-28T20:00:00", "2026-11-28", "today")
    expected = [0, 172_800, 90, 4_000, 76_000, 76_000]

    assert [(NOW_MS - parse_moment_ms(text, "-S", NOW_MS)) // 1000 for text in moments] == expected
    for wrong in ("now-2moons", "soon"):
        with pytest.raises(BadInput, match=f"-S: '{wrong}'"):
            parse_moment_ms(wrong, "-S", NOW_MS)


def test_scontrol_shows_a_job() -> None:
    [job] = jobs_of(view(), Facts(running=[JobPlace(0, 1, "alpha", "a", 61_000)]), NOW_MS)  # type: ignore[arg-type]
    text = show_job(job, NOW_MS, one_line=True)

    fields = dict(word.partition("=")[::2] for word in text.split())
    assert (fields["JobId"], fields["JobState"], fields["RunTime"]) == ("286000000", "RUNNING", "00:01:01")
    assert show_job(job, NOW_MS, one_line=False).splitlines()[0] == "JobId=286000000 JobName=train"


def test_titles_of_others_send_no_commands_to_a_terminal_and_add_no_rows() -> None:
    [job] = jobs_of(view(title="a\x1b]0;b\x07\n17\u2028c\x9bd"), Facts(), NOW_MS)
    lines = [
        *rows(parse_letters("%j", squeue_letters(NOW_MS), "--format"), [job], header=False),
        *sacct_rows(parse_sacct("JobName%40"), [job], NOW_MS, header=False),
        *sacct_rows(parse_sacct("JobName"), [job], NOW_MS, header=False, delimiter="|"),
        show_job(job, NOW_MS, one_line=True),
    ]

    assert len(lines) == 4
    for line in lines:
        assert line.isprintable()
        assert "a␛]0;b␇ 17 c\ufffdd" in line


def test_an_array_of_another_person_with_very_many_tasks_is_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 1_000_000
    looked_at: list[Job] = []

    def made(*args: Any, **fields: Any) -> Job:
        looked_at.append(Job(*args, **fields))
        return looked_at[-1]

    monkeypatch.setattr("headrace_cli.slurm.jobs.Job", made)
    [running, pending] = jobs_of(
        view(job_count=count, indexes=f"0-{count - 1}"),
        Facts(running=[JobPlace(0, 7, "alpha", "a", 61_000)]),  # type: ignore[arg-type]
        NOW_MS,
    )
    assert (running.id, pending.pending) == ("286000000_0", f"1-{count - 1}")
    assert len(looked_at) == 2


@pytest.mark.parametrize(
    ("text", "left_out", "expected"),
    [
        ("1,2,3,7-9", [], "1-3,7-9"),
        ("5-9,1-3", [1, 2], "1-3,5,8-9"),
        ("0-10:2", [0, 3], "2-4:2,8-10:2"),
        ("0-4:2,1-3:2", [0], "1-3:2,2-4:2"),
        ("4-5", [0, 1], ""),
    ],
)
def test_pending_tasks_are_written_in_ranges(text: str, left_out: list[int], expected: str) -> None:
    indexes = parse_indexes(text)
    assert indexes.text_without(left_out) == expected
    if expected:
        again, kept = parse_indexes(expected), set(range(len(indexes))) - {*left_out}
        assert {again.of_job(nth) for nth in range(len(again))} == {indexes.of_job(nth) for nth in kept}


def test_sinfo_groups_nodes_by_their_states() -> None:
    total = Resources(10, 400, 0, 2**30)
    nodes = [
        NodeView("a", "online", ["ssd"], total),  # type: ignore[arg-type]
        NodeView("b", "online", [], total, Resources(1, 100), 1, 1),  # type: ignore[arg-type]
        NodeView("c", "offline", [], total),  # type: ignore[arg-type]
        NodeView("d", "online", [], total),  # type: ignore[arg-type]
    ]
    partitions = partitions_of(PoolsFile(), {"default": nodes}, "default")

    def said(text: str, **options: bool) -> list[str]:
        groups = groups_of(partitions, each_node=options.get("each_node", False))
        return list(rows(parse_letters(text, SINFO_LETTERS, "--format"), groups, header=False))

    assert said(USUAL_SINFO) == [
        "default*     up   infinite      2   idle a,d",
        "default*     up   infinite      1    mix b",
        "default*     up   infinite      1  down* c",
    ]
    assert said("%n %C %f", each_node=True)[1] == "b 1/3/0/4 (null)"
    assert [group.nodes[0].node for group in groups_of(partitions, each_node=True, states=["mix"])] == ["b"]
    assert [group.state for group in groups_of(partitions, each_node=False, states=["down", "allocated"])] == ["down*"]


@pytest.mark.parametrize("read", [parse_time_s, parse_memory])
def test_numbers_without_an_end_are_refused(read: Callable[[str, str], object]) -> None:
    with pytest.raises(BadInput, match="cannot be used"):
        read("9" * 5_000, "--option")
