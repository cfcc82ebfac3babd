"""Failures that are retried or not by how they ended, ends by out of memory, and operations that their first failure suspends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.errors import BadInput
from headrace.ids import AllocationId, NodeName
from headrace.retry_rules import parse_failures
from headrace.wire import ledger
from headrace.wire.happenings import JobEnded, OperationChanged, happenings_of
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import OperationSuspended
from headrace.wire.operations import GetJobs, JobPage, OperationState, OperationView
from headrace.wire.refusals import BadRequest
from headrace_admission.engine import AdmissionEngine
from headrace_admission.queries import jobs_of, view_of
from headrace_admission.state.state import Page, Restored
from tests.support.clocks import at
from tests.unit.admission.desk import TREE, Desk, oid


def ended(desk: Desk, attempt: int = 1, index: int = 0, result: JobResult = JobResult.FAILED, **how: Any) -> None:
    end = JobEnd(oid("one"), index, attempt, AllocationId("1-1"), result, **how)
    report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
    desk.record(desk.engine.on_report(report, at(0, 1)).effects)


def seen(desk: Desk) -> OperationView:
    return view_of(desk.state.operations[oid("one")])


def a_desk(jobs: int = 2, **spec: Any) -> Desk:
    desk = Desk({"a": {}})
    desk.started("one", pool="a", job_count=jobs, **{"tries": 3, "keep_going": True, **spec})
    return desk


def restarted(desk: Desk) -> Desk:
    """Replace the engine by one that read the checkpoint of the old one."""
    engine = AdmissionEngine(desk.everywhere)
    record = msgspec.msgpack.encode(desk.state.operations[oid("one")].to_record())
    kind = type(desk.state.operations[oid("one")].to_record())
    engine.on_restored(Page([msgspec.msgpack.decode(record, type=kind)]), at(0, 0))
    engine.on_restored(Restored(len(desk.entries), {TREE: 1}), at(0, 0))
    desk.engine = engine
    return desk


OOM: dict[str, Any] = {"signal": 9, "out_of_memory": True}


@pytest.mark.parametrize(
    ("text", "how", "is_in"),
    [
        ("75", {"exit_code": 75}, True),
        ("75", {"exit_code": 76}, False),
        ("1,64-78", {"exit_code": 64}, True),
        ("1,64-78", {"exit_code": 79}, False),
        ("SIGSEGV", {"signal": 11}, True),
        ("segv", {"exit_code": 139}, True),
        ("139", {"signal": 11}, True),
        ("SIGKILL", {"signal": 11}, False),
        ("oom", OOM, True),
        ("OOM", {"signal": 9}, False),
        ("137", OOM, True),
        ("1, oom", {"exit_code": 1}, True),
    ],
)
def test_ends_are_named_by_exit_code_range_signal_or_out_of_memory(text: str, how: dict[str, Any], is_in: bool) -> None:
    for option, retried in (("retry_on", is_in), ("no_retry_on", not is_in)):
        desk = a_desk(2, **{option: text})
        ended(desk, **how)
        assert seen(desk).given_up_jobs == (not retried), option


@pytest.mark.parametrize("text", ["", "0", "256", "7-3", "SIGNOPE", "1,,2", "-1", "1-2-3", "SIG_DFL", "²", "4" * 900])
def test_other_texts_are_refused_with_the_word_that_is_wrong(text: str) -> None:
    with pytest.raises(BadInput, match="such as 75,100-120,SIGSEGV,oom"):
        parse_failures(text, place="--retry-on")


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"retry_on": "maybe"}, "spec.retry_on"),
        ({"no_retry_on": "300"}, "spec.no_retry_on"),
        ({"retry_on": "1", "no_retry_on": "2"}, "spec.no_retry_on"),
    ],
)
def test_admission_refuses_rules_that_cannot_be_read_and_both_rules_together(spec: dict[str, Any], place: str) -> None:
    answer = Desk({"a": {}}).start("one", pool="a", **spec)

    assert isinstance(answer, BadRequest)
    assert answer.place == place


@pytest.mark.parametrize("how", [{"exit_code": 127, "not_started": True}, {"exit_code": 0}])
def test_a_run_without_an_exit_status_of_its_own_is_retried(how: dict[str, Any]) -> None:
    desk = a_desk(retry_on="75")
    ended(desk, **how)

    assert seen(desk).given_up_jobs == 0


@pytest.mark.parametrize("result", [JobResult.ABORTED, JobResult.LOST])
def test_an_interrupted_or_lost_run_is_retried_whatever_its_exit_status(result: JobResult) -> None:
    desk = a_desk(no_retry_on="1-255", tries=1)
    ended(desk, result=result, exit_code=7)

    assert desk.state.operations[oid("one")].ledger.attempts[0] == 2


def test_the_reason_of_the_failure_names_the_rule() -> None:
    desk = a_desk(jobs=1, no_retry_on="2,SIGSEGV")
    ended(desk, exit_code=2)

    assert seen(desk).state is OperationState.FAILING
    assert seen(desk).reason.startswith(
        "1 of 1 job failed, tries is 3, no_retry_on is 2,SIGSEGV; the last failure: job 0"
    )


@pytest.mark.parametrize("spec", [{"tries": 0}, {"is_gang": True}, {}])
def test_without_keep_going_the_operation_fails_with_the_first_job_that_is_not_retried(spec: dict[str, Any]) -> None:
    desk = a_desk(keep_going=False, retry_on="75", **spec)
    ended(desk, exit_code=75)
    assert seen(desk).state is OperationState.RUNNING

    ended(desk, index=1, exit_code=1)
    assert seen(desk).state is OperationState.FAILING


def test_runs_out_of_memory_are_counted_and_their_jobs_are_marked_also_after_a_restart() -> None:
    desk = a_desk(jobs=3)
    ended(desk, **OOM)
    ended(desk, index=1, **OOM)
    ended(desk, attempt=2, index=1, signal=9)

    for each in (desk, restarted(desk)):
        view, page = seen(each), jobs_of(each.state, GetJobs(oid("one")))
        assert isinstance(page, JobPage)
        assert (view.failed_jobs, view.out_of_memory_runs) == (3, 2)
        assert [row.out_of_memory for row in page.jobs] == [True, False, False]
        assert each.engine.check() == []


def test_a_node_cannot_claim_that_a_completed_or_interrupted_run_was_out_of_memory() -> None:
    desk = a_desk(jobs=3)
    for index, result in enumerate((JobResult.COMPLETED, JobResult.ABORTED, JobResult.LOST)):
        ended(desk, index=index, result=result, out_of_memory=True)

    assert seen(desk).out_of_memory_runs == 0
    assert desk.engine.check() == []


def test_an_event_says_that_a_run_was_out_of_memory() -> None:
    desk = a_desk()
    ended(desk, **OOM)

    happened = [each for event in desk.events for each in happenings_of(event)]
    assert [each.out_of_memory for each in happened if isinstance(each, JobEnded)] == [True]


@pytest.mark.parametrize("result", [JobResult.FAILED, JobResult.TIMED_OUT])
def test_the_first_failure_suspends_the_operation_and_later_failures_do_not(result: JobResult) -> None:
    desk = a_desk(jobs=3, suspend_on_failure=True)
    ended(desk, index=2, result=JobResult.COMPLETED)
    assert not seen(desk).suspended

    ended(desk, exit_code=7, result=result)
    assert (seen(desk).state, seen(desk).suspended) == (OperationState.RUNNING, True)
    assert seen(desk).suspended_for == "its first failure, job 0 attempt 1 on node n1: exit code 7"
    ended(desk, exit_code=7, result=result)
    assert sum(isinstance(event, OperationSuspended) for event in desk.events) == 1
    assert [
        each.reason for event in desk.events for each in happenings_of(event) if isinstance(each, OperationChanged)
    ] == [seen(desk).suspended_for]

    assert seen(restarted(desk)).suspended_for == seen(desk).suspended_for
    desk.resume("one")
    assert (seen(desk).suspended, seen(desk).suspended_for) == (False, "")
    ended(restarted(desk), index=1, exit_code=7)
    assert not seen(desk).suspended


def test_an_operation_that_fails_by_its_first_failure_is_not_suspended() -> None:
    desk = a_desk(jobs=1, tries=1, suspend_on_failure=True)
    ended(desk, exit_code=7)

    assert (seen(desk).state, seen(desk).suspended) == (OperationState.FAILING, False)


@pytest.mark.parametrize("first", ["abort", "suspend"])
def test_a_failure_does_not_suspend_an_operation_that_is_ending_or_suspended_already(first: str) -> None:
    desk = a_desk(suspend_on_failure=True)
    getattr(desk, first)("one")
    ended(desk, exit_code=7)

    assert seen(desk).suspended_for == ""
