"""An operation of a million jobs with a hundred thousand retries: nothing that looks at it whole does so job by job."""

from __future__ import annotations

import pytest

from headrace.ids import AllocationId, OperationId
from headrace.wire.heartbeat import JobEnd, JobResult, Retry
from headrace.wire.ledger import LiveOperation
from headrace_admission.state.ledger import Ledger
from headrace_allocator.facts.operations import Operation
from tests.support.allocating import TERM, Desk, an_operation, cores
from tests.support.work import lines_run

JOBS, RETRIES = 1_000_000, 100_000
#: SenderQueues for some hundred pages, and some for each of the first retries that go with an operation.
FEW = 20_000
THREE_FOR_EACH_RETRY = 3 * RETRIES + FEW


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    ledger = Ledger(JOBS)
    ledger.draw(JOBS, TERM)
    for index in range(0, JOBS, 5):
        failed, slot = index % 10 == 0, Retry(index, 2)
        result = JobResult.FAILED if failed else JobResult.COMPLETED
        end = JobEnd(OperationId("large"), index, 1, AllocationId("1-1"), result, exit_code=int(failed))
        ledger.record(end, "n1", slot if failed else None)
    return ledger


@pytest.fixture(scope="module")
def live(ledger: Ledger) -> LiveOperation:
    """As the ledger tells it to an allocator of a later term."""
    attempts = ledger.attempt_slots(0, JOBS)
    assert len(attempts) == RETRIES
    return an_operation("large", JOBS, block=JOBS, term=TERM - 1, done=ledger.done_bits(), attempts=attempts)


def test_admission_records_checks_and_tells_it_by_pages(ledger: Ledger) -> None:
    assert lines_run(ledger.to_record) < FEW
    assert lines_run(lambda: Ledger.from_record(JOBS, ledger.to_record())) < FEW
    assert lines_run(ledger.check) < FEW
    assert lines_run(lambda: ledger.attempt_slots(JOBS // 2, 4_096)) < 6 * 4_096
    assert ledger.check() == []


def test_the_allocator_learns_and_checks_it_by_pages(live: LiveOperation) -> None:
    desk = Desk({"n1": cores(4, slots=9)})

    assert lines_run(lambda: Operation(live, 1, TERM)) < FEW
    assert lines_run(lambda: desk.engine.on_operations([live], desk.now)) < FEW
    operation = desk.operation("large")
    assert (operation.slots.in_doubt_count, operation.slots.ready_count) == (0, JOBS - RETRIES)
    desk.beat("n1")
    assert lines_run(operation.check) < FEW
    assert lines_run(lambda: desk.engine.on_operations([live], desk.now)) < THREE_FOR_EACH_RETRY
    assert lines_run(desk.cut_usage) < FEW
    assert operation.check() == []
