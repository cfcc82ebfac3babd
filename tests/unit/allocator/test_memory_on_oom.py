"""Jobs that run with more memory after they ran out of memory: their sizes, their caps, and what other jobs of the operation get."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.pools import PartialResources
from headrace.resources import Resources
from headrace.wire.heartbeat import JobEnd, JobResult, JobSlot, Retry, RunningJob
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import JobsEnded, JobsRetried, LoggedEnd
from headrace_allocator.effects import Report
from tests.support.allocating import Desk, a_share, an_operation, drawn_before
from tests.unit.allocator.test_recovery import after_a_restart, running

SIZE = Resources(1, 100, memory=10)


def raising(jobs: int = 2, rule: str = "x2", **changes: Any) -> LiveOperation:
    live = an_operation("a", jobs, SIZE)
    spec = msgspec.structs.replace(live.spec, memory_on_oom=rule, **changes)
    return msgspec.structs.replace(live, spec=spec)


def a_desk(live: LiveOperation, memory: int = 100, cpu: int = 900) -> Desk:
    desk = Desk({"n": Resources(9, cpu, memory=memory)})
    desk.start(live)
    desk.tell([msgspec.structs.replace(a_share("a", 1.0), demand_share=(9.0,) * 5)])
    return desk


def out_of_memory(desk: Desk, index: int, attempt: int = 1, step: int = 1) -> None:
    end = JobEnd(OperationId("a"), index, attempt, AllocationId("x"), JobResult.FAILED, out_of_memory=True)
    desk.learn(JobsEnded(OperationId("a"), [LoggedEnd(end, NodeName("n"), Retry(index, attempt + 1, step))], at_ms=1))


def test_a_job_that_ran_out_of_memory_starts_with_more_and_the_others_do_not() -> None:
    desk = a_desk(raising(3))
    out_of_memory(desk, 0)
    starts = desk.beat("n")[0].start

    assert [(start.resources.memory, start.slots) for start in starts] == [
        (10, [JobSlot(1)]),
        (10, [JobSlot(2)]),
        (20, [JobSlot(0, 2)]),
    ]
    assert desk.engine.check() == []


def test_a_retry_after_a_pause_has_more_memory_too() -> None:
    desk = a_desk(raising(1))
    desk.learn(JobsRetried(OperationId("a"), [Retry(0, 4, 3)], at_ms=1))

    assert [start.resources.memory for start in desk.beat("n")[0].start] == [80]


def test_the_memory_is_capped_by_the_largest_node_that_could_take_the_job() -> None:
    desk = Desk({"small": Resources(9, 900, memory=50), "narrow": Resources(9, 50, memory=500)})
    for node in desk.nodes:
        desk.beat(node)
    desk.start(raising(1))
    desk.tell([msgspec.structs.replace(a_share("a", 1.0), demand_share=(9.0,) * 5)])
    out_of_memory(desk, 0, step=4)

    assert [start.resources.memory for start in desk.beat("small")[0].start] == [50]


def test_the_memory_is_capped_by_the_limits_of_the_operation() -> None:
    desk = a_desk(raising(1, "70G", resource_limits=PartialResources(memory=35)))
    out_of_memory(desk, 0)

    assert [start.resources.memory for start in desk.beat("n")[0].start] == [35]


def test_all_that_waits_is_asked_for_with_its_memory() -> None:
    desk = a_desk(raising(3))
    out_of_memory(desk, 0)
    (item,) = desk.cut_usage().items

    assert (item.pending, item.min_needed) == (Resources(3, 300, memory=40), SIZE)


def test_a_job_that_waits_for_more_memory_holds_up_no_other_job_and_says_so() -> None:
    desk = a_desk(raising(2), memory=25, cpu=100)
    out_of_memory(desk, 0)
    assert [start.resources.memory for start in desk.beat("n")[0].start] == [10]

    assert any(words.startswith("20 B a job (1 pending job): ") for words in desk.reasons("a"))


def test_a_later_allocator_books_what_the_node_shows_within_what_the_job_may_have() -> None:
    live = msgspec.structs.replace(drawn_before(raising(2)), attempts=[Retry(0, 2, 2)])
    for shown, booked in ((30, 30), (500, 40), (1, 10)):
        desk = after_a_restart(live, nodes={"n": False}, size=8)
        report = running("1-1", "a", 0)
        job = RunningJob(0, 2, 1, 1)
        desk.beat(
            "n", allocations=[msgspec.structs.replace(report, job=job, resources=Resources(1, 100, memory=shown))]
        )
        assert desk.operation("a").held == Resources(1, 100, memory=booked)


def test_the_end_of_a_run_says_the_memory_that_the_allocator_gave_it() -> None:
    desk = a_desk(raising(2))
    out_of_memory(desk, 0)
    starts = {start.slots[0].index: start for start in desk.beat("n")[0].start}
    ends = [
        JobEnd(OperationId("a"), index, 2 - index, start.allocation, JobResult.COMPLETED, memory_bytes=7)
        for index, start in starts.items()
    ]
    _, effects = desk.beat("n", ends=ends)
    told = [one.end for effect in effects if isinstance(effect, Report) for one in effect.ends]

    assert {end.index: end.memory_bytes for end in told} == {0: 20, 1: 0}
