"""Time limits as people write and read them: options, what is left, and results of jobs that timed out."""

from __future__ import annotations

import msgspec
import pytest

from headrace.errors import BadInput
from headrace.ids import AllocationId, NodeName, PoolName
from headrace.wire.happenings import JobEnded, OperationChanged
from headrace.wire.heartbeat import JobEnd, JobResult, JobSlot
from headrace.wire.nodes import JobPlace, OperationPlaces
from headrace.wire.operations import JobRow, OperationExplanation, OperationState, OperationView
from headrace.wire.start_plans import StartPlanned
from headrace_cli.commands.operations.dry_run_page import show_planned_start
from headrace_cli.commands.operations.event_lines import happening_words, history_table
from headrace_cli.commands.operations.explain_page import explanation
from headrace_cli.commands.operations.job_list import JobWishes
from headrace_cli.commands.operations.key_values import parse_settings
from headrace_cli.commands.operations.run import JobOptions, spec_of_options
from headrace_cli.commands.operations.tables import failure_lines, job_table, operation_facts, operation_table
from headrace_cli.commands.operations.time_limits import operation_left_words
from headrace_cli.show.screen import Screen
from headrace_cli.slurm_words import time_as_title
from tests.unit.cli.test_render import OPERATION, a_view, shown
from tests.unit.cli.test_top import a_report, drawn

HOUR = 3_600_000
NOW_MS = 100 * HOUR


def limited(state: OperationState = OperationState.RUNNING) -> OperationView:
    view = a_view(state)
    spec = msgspec.structs.replace(view.spec, time_limit_ms=2 * HOUR, operation_time_limit_ms=24 * HOUR)
    ends_by_ms = NOW_MS + 3 * HOUR if state is OperationState.RUNNING else 0
    return msgspec.structs.replace(view, spec=spec, ends_by_ms=ends_by_ms, timed_out_jobs=2, given_up_jobs=3)


def places(*ran_ms: int) -> OperationPlaces:
    running = [JobPlace(index, 1, NodeName("n1"), f"1-{index}", each) for index, each in enumerate(ran_ms)]
    return OperationPlaces(OPERATION, running, len(running), pending_jobs=0, in_doubt_jobs=0, reasons=[])


def test_an_operation_is_shown_with_its_limits_and_what_is_left() -> None:
    page = "\n".join(shown(operation_facts(limited(), places(HOUR, HOUR + HOUR // 2), NOW_MS), 200))

    assert "time limit   2h for each run of a job; job 1 reaches it first, 30m left" in page
    assert "1d for the whole operation, from its first running slot; 3h left" in page
    assert "2 runs failed, 2 timed out, 3 given up" in page


@pytest.mark.parametrize("state", [OperationState.PENDING, OperationState.FAILING, OperationState.FAILED])
def test_nothing_is_left_of_what_does_not_run(state: OperationState) -> None:
    page = "\n".join(shown(operation_facts(limited(state), None, NOW_MS), 200))

    assert "1d for the whole operation" in page
    assert " left" not in page
    assert operation_left_words(limited(state), NOW_MS) == ""


def test_an_operation_without_limits_has_no_row_for_them() -> None:
    assert "time limit" not in "\n".join(shown(operation_facts(a_view(), places(HOUR), NOW_MS), 200))


def test_a_running_job_is_listed_with_what_is_left_to_it_and_others_with_their_result() -> None:
    rows = [JobRow(JobSlot(0), None, ""), JobRow(JobSlot(1), JobResult.TIMED_OUT, NodeName("n1"))]
    lines = shown(job_table(rows, places(HOUR), now_ms=NOW_MS, spec=limited().spec), 200)

    assert "running, 1h left" in lines[1]
    assert "timed out" in lines[2]


def test_explain_says_the_limits_and_what_is_left() -> None:
    told = OperationExplanation(view=limited(), levels=[])
    texts = [str(part) for part in explanation(told, {}, NOW_MS)]

    assert "time limit: 2h for each run of a job" in texts
    assert "and: 1d for the whole operation, from its first running slot; 3h left" in texts


def test_history_and_events_say_that_a_job_timed_out_and_that_a_limit_was_changed() -> None:
    end = JobEnded(
        NOW_MS,
        OPERATION,
        JobSlot(1),
        NodeName("n1"),
        AllocationId("1-1"),
        NOW_MS - HOUR,
        JobResult.TIMED_OUT,
        None,
        15,
        "r",
    )
    changed = OperationChanged(NOW_MS, OPERATION, pool=PoolName("a"), weight=1.0, operation_time_limit_ms=2 * HOUR)

    assert "timed out, signal 15: r" in happening_words(end)
    assert "time limit of the operation: 2h, weight 1" in happening_words(changed)
    assert "timed out, signal 15: r" in "\n".join(shown(history_table([end, changed]), 200))


def test_the_last_failure_of_a_page_may_be_a_job_that_timed_out() -> None:
    end = JobEnd(
        OPERATION, 4, 1, AllocationId("1-1"), JobResult.TIMED_OUT, signal=15, reason="time limit of 2h reached"
    )

    assert failure_lines(end) == ["job 4 timed out: signal 15, time limit of 2h reached"]


def test_the_failed_jobs_of_a_list_include_those_that_timed_out() -> None:
    wishes = JobWishes.read(jobs=True, failed=True, job=None, limit=None)

    assert wishes is not None
    assert wishes.results == (JobResult.FAILED, JobResult.TIMED_OUT)


def test_options_of_run_become_limits_of_the_spec() -> None:
    spec = spec_of_options(["true"], None, JobOptions(time_limit="2h", operation_time_limit="1d"))
    unlimited = spec_of_options(["true"], None)

    assert (spec.time_limit_ms, spec.operation_time_limit_ms) == (2 * HOUR, 24 * HOUR)
    assert (unlimited.time_limit_ms, unlimited.operation_time_limit_ms) == (None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2", "a length of time with a unit"), ("1:30:00", "a length of time with a unit"), ("0s", "above 0")],
)
def test_a_time_limit_needs_a_unit_and_is_not_0(text: str, expected: str) -> None:
    with pytest.raises(BadInput, match=expected) as raised:
        spec_of_options(["true"], None, JobOptions(time_limit=text))

    assert raised.value.place == "--time-limit"


def test_only_the_limit_of_the_whole_operation_can_be_set_later() -> None:
    assert parse_settings(["operation_time_limit=12h"]) == {"operation_time_limit": "12h"}
    with pytest.raises(BadInput, match="jobs keep the time limit"):
        parse_settings(["time_limit=12h"])


@pytest.mark.parametrize("title", ["10", "2:00:00", "1-12:00"])
def test_a_title_that_is_a_time_of_slurm_is_pointed_out(title: str) -> None:
    assert "instead of Slurm's -t, use --time-limit" in time_as_title(title)


@pytest.mark.parametrize("title", ["", "train 2:00", "run-1", "v1.2"])
def test_other_titles_are_not(title: str) -> None:
    assert time_as_title(title) == ""


def test_top_and_lists_show_what_is_left_and_how_many_jobs_timed_out() -> None:
    report = msgspec.structs.replace(a_report(), at_ms=NOW_MS, operations=[limited()])
    [row] = [line for line in drawn(report, width=160) if line.startswith(OPERATION)]

    assert "(2 failed) (2 timed out)" in row
    assert ", 3h left" in row
    assert "2, 2 timed out" in "\n".join(shown(operation_table([limited()], NOW_MS), 200))


def test_a_dry_run_says_which_limits_would_be_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    planned = StartPlanned([], time_limit_ms=2 * HOUR, operation_time_limit_ms=24 * HOUR)
    show_planned_start(Screen(), a_view().spec, planned, {})

    said = capsys.readouterr().err
    assert "the time limit of each run of a job would be 2h" in said
    assert "the time limit of the operation would be 1d" in said
