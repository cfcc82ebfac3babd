"""No event outgrows an entry of the log, and a decision that fails half way is the end of the process."""

from __future__ import annotations

import msgspec
import pytest

from headrace.bus import MAX_MESSAGE_BYTES
from headrace.ids import AllocationId, NodeName, PoolName
from headrace.resources import Resources
from headrace.wire import ledger
from headrace.wire.codec import encode, runs_within
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import JobsEnded, LogBatch, LoggedEnd
from headrace.wire.operations import AbortOperation, OperationSpec, StartAnswer, StartOperation
from headrace_admission.decisions import operation_changes
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.engine import HalfDecided
from headrace_admission.log.byte_budget import LARGEST_EVENT_BYTES, EventTooLarge, encode_event
from tests.support.clocks import NOW
from tests.unit.admission.desk import TREE, Desk, oid


def failing(desk: Desk, jobs: int) -> None:
    """An operation of so many jobs, all of them given out."""
    spec = OperationSpec(
        PoolName("research"), ["false"], jobs, Resources(user_slots=1, cpu=100), max_failed_job_count=10**6
    )
    assert isinstance(desk.engine.on_start(StartOperation(oid("a"), spec), "anna", NOW).answer, StartAnswer)
    desk.engine.on_draw(ledger.DrawBlock(TREE, 1, oid("a"), jobs), NOW)


def an_end(index: int, words: int) -> ledger.ReportedEnd:
    """A failed job with so many characters of standard error."""
    end = JobEnd(oid("a"), index, 1, AllocationId("x"), JobResult.FAILED, exit_code=1, stderr_tail="e" * words)
    return ledger.ReportedEnd(NodeName("n1"), end)


@pytest.mark.parametrize("jobs", [1, 120, 500])
def test_ends_with_long_words_travel_in_as_many_events_as_they_need(jobs: int) -> None:
    """Some 120 failing jobs of one operation once made an event that no log takes, and stopped the whole system for good."""
    desk = Desk({"research": {}})
    failing(desk, jobs)

    outcome = desk.engine.on_report(ledger.ReportEnds(TREE, 1, [an_end(index, 2_000) for index in range(jobs)]), NOW)

    assert isinstance(outcome.answer, ledger.ReportAnswer)
    assert len(outcome.answer.recorded) == jobs
    assert all(len(encode_event(event)) <= LARGEST_EVENT_BYTES for event in outcome.effects)
    assert sum(len(event.ends) for event in outcome.effects if isinstance(event, JobsEnded)) == jobs
    for event in outcome.effects:
        assert len(encode(LogBatch(1, [event], "writer", 1))) < MAX_MESSAGE_BYTES
    assert desk.state.operations[oid("a")].ledger.counts[JobResult.FAILED] == jobs
    assert desk.engine.check() == []


def test_an_event_that_is_too_large_takes_no_effect() -> None:
    desk = Desk({"research": {}})
    failing(desk, 400)
    ends = [each.end for each in (an_end(index, 2_000) for index in range(400))]
    transaction = Transaction(desk.state, NOW)

    with pytest.raises(EventTooLarge, match="JobsEnded: "):
        transaction.record(JobsEnded(oid("a"), [LoggedEnd(end, "n1") for end in ends], at_ms=1))

    assert transaction.events == []
    assert desk.state.operations[oid("a")].ledger.counts[JobResult.FAILED] == 0


def test_a_decision_that_fails_after_a_part_took_effect_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk({"research": {}})
    failing(desk, 1)

    def half(transaction: Transaction, request: AbortOperation, user: str) -> object:
        answer = abort(transaction, request, user)
        raise ZeroDivisionError(answer)

    abort = operation_changes.abort
    monkeypatch.setattr(operation_changes, "abort", half)
    with pytest.raises(HalfDecided):
        desk.engine.on_abort(AbortOperation(oid("a")), "anna", NOW)

    def at_once(_transaction: Transaction, _request: AbortOperation, _user: str) -> object:
        raise ZeroDivisionError

    monkeypatch.setattr(operation_changes, "abort", at_once)
    with pytest.raises(ZeroDivisionError):
        desk.engine.on_abort(AbortOperation(oid("a")), "anna", NOW)


def test_runs_keep_order_and_budget_and_an_item_above_it_goes_alone() -> None:
    items = [an_end(index, words).end for index, words in enumerate([10, 10, 5_000, 10, 2_000, 2_000])]
    runs = list(runs_within(items, 3_000))

    assert [end.index for run in runs for end in run] == list(range(6))
    assert [len(run) for run in runs] == [2, 1, 2, 1]
    assert all(len(run) == 1 or sum(len(msgspec.msgpack.encode(end)) for end in run) <= 3_000 for run in runs)
    assert list(runs_within([], 10)) == []
