"""Jobs that failed run again after a back-off that grows, whoever leads by then."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import AllocationId, NodeName
from headrace.wire import ledger
from headrace.wire.heartbeat import JobEnd, JobResult, Retry
from headrace.wire.log import JobsRetried
from headrace.wire.operations import GetJobs, GetOperation, JobPage, OperationState, OperationView
from headrace_admission.engine import AdmissionEngine
from headrace_admission.queries import get_operation, jobs_of, live_operation
from headrace_admission.state import ledger as ledger_module
from headrace_admission.state.ledger import Ledger, LedgerRecord
from headrace_admission.state.state import Page, Restored
from tests.support.clocks import at
from tests.unit.admission.desk import TREE, Desk, oid

SECOND = 1_000


def ended(desk: Desk, attempt: int, now_ms: int, result: JobResult = JobResult.FAILED, index: int = 0) -> None:
    end = JobEnd(oid("one"), index, attempt, AllocationId("1-1"), result, exit_code=1)
    report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
    desk.record(desk.engine.on_report(report, at(0, now_ms)).effects)


def retried(desk: Desk, now_ms: int) -> list[Retry]:
    """The attempts that are let out at a moment."""
    events = desk.engine.on_retries_due(at(0, now_ms)).effects
    desk.record(events)
    return [slot for event in events if isinstance(event, JobsRetried) for slot in event.slots]


def seen(engine: AdmissionEngine) -> OperationView:
    view = get_operation(engine.state, GetOperation(oid("one")))
    assert isinstance(view, OperationView)
    return view


def a_desk(jobs: int = 1, backoff_ms: int = SECOND, most_failures: int = 10, **spec: Any) -> Desk:
    desk = Desk({"a": {}})
    desk.started(
        "one",
        pool="a",
        job_count=jobs,
        retry_backoff_ms=backoff_ms,
        longest_retry_backoff_ms=5 * SECOND,
        max_failed_job_count=most_failures,
        **spec,
    )
    return desk


def test_the_pause_doubles_with_each_failure_up_to_the_longest() -> None:
    desk, now_ms, pauses = a_desk(), 0, []
    for attempt in range(1, 6):
        ended(desk, attempt, now_ms)
        pauses.append(seen(desk.engine).next_retry_at_ms - now_ms)
        assert retried(desk, now_ms + pauses[-1] - 1) == []
        now_ms += pauses[-1]
        assert retried(desk, now_ms) == [Retry(0, attempt + 1)]
        assert retried(desk, now_ms) == []

    assert pauses == [1_000, 2_000, 4_000, 5_000, 5_000]


def test_each_job_has_a_pause_of_its_own() -> None:
    desk = a_desk(jobs=3)
    ended(desk, 1, 0)
    assert retried(desk, SECOND) == [Retry(0, 2)]
    ended(desk, 2, SECOND)
    ended(desk, 1, SECOND, index=2)

    assert (seen(desk.engine).pausing_jobs, seen(desk.engine).next_retry_at_ms) == (2, 2 * SECOND)
    assert retried(desk, 2 * SECOND) == [Retry(2, 2)]
    assert retried(desk, 3 * SECOND) == [Retry(0, 3)]


@pytest.mark.parametrize("result", [JobResult.ABORTED, JobResult.LOST])
def test_what_counts_against_nobody_runs_again_at_once_and_lets_no_pause_grow(result: JobResult) -> None:
    desk = a_desk()
    ended(desk, 1, 0, result)
    assert not desk.state.pausing

    ended(desk, 2, 0)

    assert seen(desk.engine).next_retry_at_ms == SECOND


def test_without_a_backoff_a_job_runs_again_at_once() -> None:
    desk = a_desk(backoff_ms=0)
    ended(desk, 1, 0)

    assert not desk.state.pausing
    assert desk.state.operations[oid("one")].ledger.attempt_slots(0, 1) == [Retry(0, 2)]


def test_a_command_that_could_not_be_started_is_tried_elsewhere_at_once() -> None:
    desk = a_desk()
    end = JobEnd(oid("one"), 0, 1, AllocationId("1-1"), JobResult.FAILED, exit_code=127, not_started=True)

    desk.record(
        desk.engine.on_report(ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)]), at(0, 0)).effects
    )

    assert seen(desk.engine).next_retry_at_ms == 0


def test_the_last_failure_is_followed_by_no_pause() -> None:
    desk = a_desk(most_failures=2)
    ended(desk, 1, 0)
    retried(desk, SECOND)
    ended(desk, 2, SECOND)

    assert desk.state_of("one") is OperationState.FAILING
    assert retried(desk, 100 * SECOND) == []
    assert seen(desk.engine).pausing_jobs == 0


def test_jobs_of_an_operation_that_ends_are_not_tried_again() -> None:
    desk = a_desk(jobs=2)
    ended(desk, 1, 0)
    desk.abort("one")

    assert retried(desk, 100 * SECOND) == []
    desk.released("one")
    assert not desk.state.pausing


def test_the_pause_is_over_when_it_was_to_be_whoever_leads_by_then() -> None:
    desk = a_desk(jobs=2)
    ended(desk, 1, 0)

    engine = desk.replayed()

    assert seen(engine) == seen(desk.engine)
    assert engine.on_retries_due(at(0, SECOND - 1)).effects == []
    events = engine.on_retries_due(at(0, SECOND)).effects
    assert [event.slots for event in events if isinstance(event, JobsRetried)] == [[Retry(0, 2)]]
    assert engine.check() == []


def test_a_checkpoint_keeps_pauses_and_the_number_of_failures() -> None:
    desk = a_desk(jobs=2)
    ended(desk, 1, 0)
    operation = desk.state.operations[oid("one")]
    record = msgspec.msgpack.decode(msgspec.msgpack.encode(operation.to_record()), type=type(operation.to_record()))
    engine = AdmissionEngine(desk.everywhere)

    engine.on_restored(Page([record]), at(0, 0))
    engine.on_restored(Restored(len(desk.entries), {TREE: 1}), at(0, 0))

    assert engine.state.pausing == {oid("one")}
    assert seen(engine).next_retry_at_ms == SECOND
    assert engine.state.operations[oid("one")].ledger.failed_runs[0] == 1
    assert engine.check() == []


def test_a_record_from_before_there_were_pauses_has_none() -> None:
    fields = msgspec.to_builtins(Ledger(3).to_record())

    known = Ledger.from_record(3, msgspec.convert(fields[: -len(("failed_runs", "pages", "pausing"))], LedgerRecord))

    assert (known.pausing, known.next_retry_at_ms) == ({}, 0)


def test_an_allocator_that_asks_for_everything_is_told_that_the_job_has_ended() -> None:
    desk = a_desk(jobs=2)
    ended(desk, 1, 0, index=1)
    operation = desk.state.operations[oid("one")]

    assert live_operation(operation, TREE).done == bytes([0b10])
    retried(desk, SECOND)
    assert live_operation(operation, TREE).done == bytes([0])


def test_the_last_run_of_a_job_that_pauses_is_listed_with_the_moment_of_the_next() -> None:
    desk = a_desk(jobs=2)
    ended(desk, 1, 0)
    page = jobs_of(desk.state, GetJobs(oid("one")))
    assert isinstance(page, JobPage)

    assert [(row.slot.attempt, row.result, row.retry_at_ms) for row in page.jobs] == [
        (1, JobResult.FAILED, SECOND),
        (1, None, 0),
    ]


def test_the_same_end_again_changes_nothing_while_its_job_pauses() -> None:
    desk = a_desk()
    ended(desk, 1, 0)
    before = len(desk.entries)
    ended(desk, 1, 500)

    assert len(desk.entries) == before
    assert seen(desk.engine).failed_jobs == 1


def test_when_very_many_pause_one_more_runs_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ledger_module.MOST_PAUSING == 4_096
    monkeypatch.setattr("headrace_admission.decisions.ends_and_retries.MOST_PAUSING", 1)
    desk = a_desk(jobs=2)
    ended(desk, 1, 0)
    ended(desk, 1, 0, index=1)

    assert seen(desk.engine).pausing_jobs == 1
    assert desk.state.operations[oid("one")].ledger.attempt_slots(0, 2) == [Retry(1, 2)]


def test_a_job_of_several_trees_that_pauses_is_nobodys_until_it_is_over() -> None:
    desk = Desk({"a": {}})
    desk.configure({"b": {}}, tree=type(TREE)("second"))
    desk.started("one", pool_trees=[TREE, type(TREE)("second")], job_count=2, retry_backoff_ms=SECOND)
    drawn = desk.engine.on_draw(ledger.DrawBlock(TREE, 1, oid("one"), more=1), at(0, 0))
    desk.record(drawn.effects)
    ended(desk, 1, 0)
    owners = desk.state.operations[oid("one")].ledger.owners
    assert owners is not None
    assert owners.free == 1

    retried(desk, SECOND)

    assert owners.free == 2
    assert desk.engine.check() == []


def test_a_job_waits_no_longer_than_its_back_off_after_the_clock_was_set_back() -> None:
    """A job that failed while the clock was 400 days ahead once waited for 399 days."""
    days = 400 * 86_400 * SECOND
    desk = a_desk()
    ended(desk, 1, days)
    assert retried(desk, days) == []

    assert retried(desk, 0) == [Retry(0, 2)]
    ended(desk, 2, 0)
    assert retried(desk, 0) == []
    assert retried(desk, 2 * SECOND) == [Retry(0, 3)]


def fail_to_the_end(desk: Desk, index: int, tries: int) -> None:
    """Let a job fail as often as it is tried."""
    for attempt in range(1, tries + 1):
        ended(desk, attempt, attempt * 100 * SECOND, index=index)
        retried(desk, attempt * 100 * SECOND + 50 * SECOND)


def test_a_job_without_a_try_left_fails_its_operation_at_once() -> None:
    desk = a_desk(jobs=3, tries=2)

    fail_to_the_end(desk, 1, 2)

    view = seen(desk.engine)
    assert (view.state, view.given_up_jobs, view.open_jobs) == (OperationState.FAILING, 1, 2)
    assert view.reason.startswith("1 of 3 jobs failed, tries is 2; the last failure: job 1 attempt 2")


def test_the_other_jobs_of_an_operation_that_keeps_going_run_and_it_fails_at_the_end() -> None:
    desk = a_desk(jobs=3, tries=2, keep_going=True)
    fail_to_the_end(desk, 1, 2)
    assert (seen(desk.engine).state, seen(desk.engine).given_up_jobs) == (OperationState.RUNNING, 1)

    ended(desk, 1, 0, JobResult.COMPLETED, index=0)
    ended(desk, 1, 0, JobResult.LOST, index=2)
    assert seen(desk.engine).state is OperationState.RUNNING
    ended(desk, 2, 0, JobResult.COMPLETED, index=2)

    view = seen(desk.engine)
    assert (view.state, view.completed_jobs, view.open_jobs) == (OperationState.FAILING, 2, 0)
    assert view.reason.startswith("1 of 3 jobs failed, tries is 2")


def test_a_job_that_fails_and_then_completes_has_not_failed() -> None:
    desk = a_desk(jobs=2, tries=2, keep_going=True)
    for index in range(2):
        ended(desk, 1, 0, index=index)
    retried(desk, 10 * SECOND)
    for index in range(2):
        ended(desk, 2, 11 * SECOND, JobResult.COMPLETED, index=index)

    assert seen(desk.engine).state is OperationState.COMPLETED


def test_a_gang_has_its_tries_together() -> None:
    desk = a_desk(jobs=3, tries=2, is_gang=True)
    ended(desk, 1, 0, index=0)
    retried(desk, 10 * SECOND)

    ended(desk, 1, 11 * SECOND, index=1)

    assert seen(desk.engine).state is OperationState.FAILING
    assert seen(desk.engine).reason.startswith("the gang failed 2 times, tries is 2")


def test_a_job_that_is_given_up_is_not_handed_out_again_after_a_restart() -> None:
    desk = a_desk(jobs=3, tries=1, keep_going=True)
    ended(desk, 1, 0, index=1)

    engine = AdmissionEngine(desk.everywhere)
    engine.on_restored(Page([desk.state.operations[oid("one")].to_record()]), at(0, 0))
    engine.on_restored(Restored(len(desk.entries), {TREE: 1}), at(0, 0))

    operation = engine.state.operations[oid("one")]
    assert live_operation(operation, TREE).done == bytes([0b010])
    assert seen(engine).given_up_jobs == 1
    assert engine.check() == []
