"""Ends that another allocator reported, of jobs that this one booked."""

from __future__ import annotations

import pytest

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobEnd, JobResult, Retry, RunningJob
from headrace.wire.log import JobsEnded, LoggedEnd
from tests.support.allocating import TERM, Desk, an_operation, cores

_RETRY = Retry(0, 2)


def recorded(retry: Retry | None) -> JobsEnded:
    """The ledger has the end of the first job."""
    end = JobEnd(OperationId("op"), 0, 1, AllocationId("4-1"), JobResult.LOST)
    return JobsEnded(OperationId("op"), [LoggedEnd(end, NodeName("n1"), retry)], at_ms=1)


def learn(desk: Desk, retry: Retry | None, *, from_whole: bool) -> None:
    """The allocator hears of the end, by its event or, when that was missed, by the whole."""
    if from_whole:
        done, attempts = (b"\0", [retry]) if retry else (b"\1", [])
        desk.start(an_operation("op", jobs=1, done=done, attempts=attempts))
    else:
        desk.learn(recorded(retry))


@pytest.mark.parametrize("from_whole", [False, True])
@pytest.mark.parametrize("retry", [None, _RETRY])
def test_a_job_that_ended_by_the_ledger_is_taken_back_where_it_goes_on(
    retry: Retry | None, *, from_whole: bool
) -> None:
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("op", jobs=1))
    (start,) = desk.beat("n1")[0].start
    shown = AllocationReport(
        start.allocation, start.operation, AllocationState.RUNNING, cores(1), RunningJob(0, 1, 1, 1)
    )
    # From the second on there is nothing new in it.
    for _ in range(3):
        desk.beat("n1", term=TERM, allocations=[shown])

    learn(desk, retry, from_whole=from_whole)
    broken = desk.engine.check()
    orders, _ = desk.beat("n1", term=TERM, allocations=[shown])

    assert broken == []
    assert [one.allocation for one in orders.take_back] == [start.allocation]
    assert desk.engine.check() == []


def test_two_nodes_may_name_an_allocation_alike() -> None:
    """A bucket of terms that was lost lets two allocators make the same names."""
    desk = Desk({"n1": cores(1), "n2": cores(1)}, recovering=True)
    desk.start(an_operation("op", jobs=9, block=9, block_term=TERM - 1))
    for index, node in enumerate(("n1", "n2")):
        job = RunningJob(index, 1, 1, 1)
        report = AllocationReport(AllocationId("1-1"), OperationId("op"), AllocationState.RUNNING, cores(1), job)
        desk.beat(node, allocations=[report])

    assert len(desk.operation("op").allocations) == 2
    desk.beat("n1")
    desk.beat("n2")
    assert not [name for _, name in desk.operation("op").allocations if name == "1-1"]


def test_a_job_that_is_not_booked_in_its_allocation_counts_as_none_of_its_jobs() -> None:
    desk = Desk({"n1": cores(1)})
    unknown = AllocationReport(
        AllocationId("1-1"), OperationId("over"), AllocationState.RUNNING, cores(1), RunningJob(0, 1, 1, 1)
    )
    desk.beat("n1", allocations=[unknown])

    assert [one.unstarted for one in desk.node("n1").allocations.values()] == [0]
