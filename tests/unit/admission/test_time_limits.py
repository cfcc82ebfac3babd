"""Jobs that time out: they are counted apart, are not retried, and fail their operation once its other jobs are over."""

from __future__ import annotations

import msgspec
import pytest

from headrace.ids import AllocationId, NodeName
from headrace.wire import ledger
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import OperationStateChanged, StateCause
from headrace.wire.operations import GetJobs, JobPage, OperationState, OperationView
from headrace_admission.queries import jobs_of, view_of
from headrace_admission.state.ledger import Ledger
from tests.support.clocks import at
from tests.unit.admission.desk import TREE, Desk, oid

REACHED = "time limit of 2s reached"


def ended(desk: Desk, index: int, result: JobResult, attempt: int = 1) -> None:
    reason = REACHED if result is JobResult.TIMED_OUT else "it crashed"
    end = JobEnd(oid("one"), index, attempt, AllocationId("1-1"), result, reason=reason)
    report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
    desk.record(desk.engine.on_report(report, at(0, 1)).effects)


def seen(desk: Desk) -> OperationView:
    return view_of(desk.state.operations[oid("one")])


def a_desk(jobs: int = 3, **spec: object) -> Desk:
    desk = Desk()
    desk.started("one", job_count=jobs, time_limit_ms=2_000, **{"tries": 3, "keep_going": jobs > 1, **spec})
    return desk


def test_the_other_jobs_go_on_and_the_operation_then_fails_with_the_number_of_timed_out_jobs() -> None:
    desk = a_desk()
    ended(desk, 0, JobResult.TIMED_OUT)
    ended(desk, 1, JobResult.COMPLETED)
    view = seen(desk)
    assert (view.state, view.timed_out_jobs, view.given_up_jobs, view.failed_jobs) == (OperationState.RUNNING, 1, 1, 0)
    assert (view.open_jobs, view.pausing_jobs) == (1, 0)

    ended(desk, 2, JobResult.TIMED_OUT)

    assert seen(desk).state is OperationState.FAILING
    assert seen(desk).reason == (
        f"2 of 3 jobs timed out, the time limit is 2s; the last failure: job 2 attempt 1 on node n1: {REACHED}"
    )
    assert [event.cause for event in desk.events if isinstance(event, OperationStateChanged)] == [StateCause.TIME_LIMIT]
    desk.released("one")
    assert seen(desk).state is OperationState.FAILED


@pytest.mark.parametrize(
    "spec", [{"keep_going": False}, {"tries": 0, "keep_going": False}, {"is_gang": True, "keep_going": False}]
)
def test_an_operation_that_does_not_go_on_fails_at_the_first_timed_out_job(spec: dict[str, object]) -> None:
    desk = a_desk(**spec)
    ended(desk, 1, JobResult.TIMED_OUT)

    assert seen(desk).state is OperationState.FAILING
    assert seen(desk).reason.startswith("1 of 3 jobs timed out, the time limit is 2s")


def test_failed_and_timed_out_jobs_are_told_apart() -> None:
    desk = a_desk(jobs=2, tries=1)
    ended(desk, 0, JobResult.TIMED_OUT)
    ended(desk, 1, JobResult.FAILED)

    reason = seen(desk).reason
    assert reason.startswith("1 of 2 jobs timed out, the time limit is 2s; 1 of 2 jobs failed, tries is 1; ")
    assert [event.cause for event in desk.events if isinstance(event, OperationStateChanged)] == [
        StateCause.TOO_MANY_FAILURES
    ]


def test_a_job_that_failed_before_it_timed_out_counts_once_for_each() -> None:
    desk = a_desk(jobs=1)
    ended(desk, 0, JobResult.FAILED)
    ended(desk, 0, JobResult.TIMED_OUT, attempt=2)

    view = seen(desk)
    assert (view.failed_jobs, view.timed_out_jobs, view.given_up_jobs, view.open_jobs) == (1, 1, 1, 0)
    assert view.reason.startswith("1 of 1 job timed out")
    assert [end.result for end in view.last_failures] == [JobResult.FAILED, JobResult.TIMED_OUT]


def test_each_job_is_listed_with_its_result_also_from_a_checkpoint_and_from_the_log() -> None:
    desk = a_desk()
    ended(desk, 1, JobResult.TIMED_OUT)
    kept = desk.state.operations[oid("one")].ledger
    record = msgspec.msgpack.decode(msgspec.msgpack.encode(kept.to_record()), type=type(kept.to_record()))
    restored = Ledger.from_record(3, record)

    page = jobs_of(desk.replayed().state, GetJobs(oid("one")))
    assert isinstance(page, JobPage)
    expected = [None, JobResult.TIMED_OUT, None]
    assert [row.result for row in page.jobs] == [row.result for row in restored.rows(0, 3)] == expected
    assert (restored.counts, restored.given_up, restored.check()) == (kept.counts, 1, [])


def test_a_release_without_time_limits_can_read_a_checkpoint_in_which_no_job_timed_out() -> None:
    desk = a_desk()
    ended(desk, 1, JobResult.COMPLETED)

    assert set(desk.state.operations[oid("one")].ledger.to_record().counts) == {JobResult.COMPLETED}


def test_the_end_of_a_job_that_timed_out_while_its_operation_was_aborted_changes_no_state() -> None:
    desk = a_desk(jobs=1)
    desk.abort("one")
    ended(desk, 0, JobResult.TIMED_OUT)

    assert (seen(desk).state, seen(desk).timed_out_jobs) == (OperationState.ABORTING, 1)
