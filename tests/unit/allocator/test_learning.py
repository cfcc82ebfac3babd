"""Everything live is learnt in pages, and events in slices: whatever comes between is answered rightly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import anyio.lowlevel
import msgspec
import pytest

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.runtime.service import runtime_on
from headrace.wire.heartbeat import (
    AllocationReport,
    AllocationState,
    JobEnd,
    JobResult,
    JobSlot,
    Retry,
    RunningJob,
    Start,
    TakeBackReason,
)
from headrace.wire.ledger import DrawAnswer
from headrace.wire.log import JobsEnded, JobsRetried, LoggedEnd, OperationStateChanged, OperationSuspended, StateCause
from headrace.wire.nodes import NodeRecord
from headrace.wire.operations import OperationState
from headrace_allocator.effects import Release
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.facts.nodes import Timing
from headrace_allocator.service import AllocatorService
from headrace_allocator.settings import AllocatorSettings
from tests.simulation.bus import connect_to
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.server import SimulatedServer
from tests.support.allocating import TERM, TREE, Desk, an_operation, cores
from tests.support.clocks import at
from tests.support.work import lines_run

MANY = 640
MOST_A_TURN = 32
OPERATIONS = [an_operation(f"operation-{number}") for number in range(MANY)]


def running(start: Start) -> AllocationReport:
    job = RunningJob(start.slots[0].index, start.slots[0].attempt, 1, 10)
    return AllocationReport(start.allocation, start.operation, AllocationState.RUNNING, start.resources, job)


def test_between_two_pages_nothing_is_over_and_what_is_told_already_starts() -> None:
    desk = Desk({"n": cores(3, slots=9)})
    old, new = an_operation("old", jobs=1), an_operation("new", jobs=1_000)
    desk.start(old, an_operation("ended", jobs=1))
    desk.share(old=0.1, ended=0.1)
    starts = {start.operation: start for start in desk.beat("n")[0].start}

    desk.engine.on_more_operations([new], desk.now)
    desk.engine.on_drawn(OperationId("new"), DrawAnswer(OperationId("new"), below=512), desk.now)
    desk.share(old=0.1, ended=0.1, new=0.1)
    between = desk.beat("n", allocations=[running(start) for start in starts.values()])[0]
    starts |= {start.operation: start for start in between.start}
    desk.engine.on_operations([old], desk.now)
    after = desk.beat("n", allocations=[running(start) for start in starts.values()])[0]

    assert list(starts) == ["old", "ended", "new"]
    assert between.take_back == []
    assert desk.operation("new").slots.block == 512
    ended = starts[OperationId("ended")].allocation
    assert [(each.allocation, each.reason) for each in after.take_back] == [(ended, TakeBackReason.OPERATION_ENDED)]


@pytest.mark.parametrize(
    "tell",
    [
        lambda service: service.on_operations(OPERATIONS, 1),
        lambda service: service.on_events([OperationSuspended(each.operation, True, 1) for each in OPERATIONS], 2),
    ],
    ids=["operations", "events"],
)
def test_what_is_learnt_leaves_turns_of_the_loop_to_others(tell: Callable[[AllocatorService], Awaitable[None]]) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async def world(loop: VirtualLoop) -> int:
        async with (
            connect_to(SimulatedServer(loop), "allocator") as bus,
            anyio.create_task_group() as tasks,
            anyio.create_task_group() as counting,
        ):
            runtime = runtime_on(bus, "allocator", AllocatorSettings(tree=TREE), tasks, anyio.Event())
            service = AllocatorService(runtime, TREE)
            counting.start_soon(count_turns)
            await tell(service)
            counting.cancel_scope.cancel()
        return turns

    assert run_virtually(1, world) >= MANY // MOST_A_TURN - 2


def restarted(operations: int) -> Desk:
    """An allocator that has just begun. What a former one gave out is in doubt until its node has spoken."""
    desk = Desk({"n": cores(1, slots=9)})
    desk.engine = AllocatorEngine(TREE, TERM, Timing())
    desk.engine.on_operations(
        [an_operation(f"operation-{number}", jobs=2, term=TERM - 1) for number in range(operations)], desk.now
    )
    desk.engine.on_nodes({NodeName("n"): NodeRecord(NodeName("n"))}, desk.now)
    desk.engine.check = list  # type: ignore[method-assign]  # checking everything is no part of a heartbeat
    desk.beat("n")
    return desk


def ready(desk: Desk) -> list[int]:
    return [operation.slots.ready_count for operation in desk.facts.operations.values()]


def test_the_heartbeat_that_ends_all_doubt_costs_no_more_for_there_being_more_operations() -> None:
    few, many = (lines_run(partial(restarted(count).beat, "n")) for count in (200, 2_000))

    assert many < 1.2 * few


def test_the_ledger_is_asked_for_no_more_at_the_lead_than_a_few_operations_at_a_time() -> None:
    engine = AllocatorEngine(TREE, 0, Timing())
    engine.on_operations([an_operation(f"operation-{number}", jobs=1_000, term=1) for number in range(MANY)], at(1))

    asked = [len(engine.on_leading(TERM, Timing(), at(2)).effects)]
    more = True
    while more:
        outcome = engine.on_refresh_due(MOST_A_TURN, at(2))
        more = outcome.answer
        asked.append(len(outcome.effects))

    assert sum(asked) == MANY
    assert max(asked) <= 2 * MOST_A_TURN


def test_whatever_happens_while_doubt_is_settled_counts() -> None:
    desk = restarted(MANY)
    first, last = OperationId("operation-0"), OperationId(f"operation-{MANY - 1}")
    desk.beat("n")
    assert (ready(desk)[0], ready(desk)[-1]) == (2, 0)

    allocation = AllocationReport(
        AllocationId("1-1"), last, AllocationState.RUNNING, cores(1), RunningJob(0, 1, 1, 10), []
    )
    desk.beat("n", allocations=[allocation])
    for name in (first, OperationId("operation-300")):
        desk.learn(OperationStateChanged(name, OperationState.ABORTED, StateCause.RELEASED, "", 1))
    desk.refresh()

    assert ready(desk) == [2] * (MANY - 3) + [1]
    assert desk.operation(last).slots.out() == [JobSlot(0)]
    assert AllocatorEngine.check(desk.engine) == []


def test_a_job_that_failed_is_given_to_nobody_until_the_log_says_that_it_runs_again() -> None:
    desk = Desk({"n": cores(3, slots=9)})
    desk.start(an_operation("operation-1", jobs=1))
    (start,) = desk.beat("n")[0].start
    end = JobEnd(start.operation, 0, 1, start.allocation, JobResult.FAILED)

    desk.beat("n", ends=[end])
    desk.learn(JobsEnded(start.operation, [LoggedEnd(end, NodeName("n"), retry_at_ms=5_000)], at_ms=1))
    paused = desk.beat("n")[0].start
    pending = desk.operation("operation-1").slots.pending_count
    retried = JobsRetried(start.operation, [Retry(0, 2)], at_ms=5_000)
    desk.learn(retried)
    desk.learn(retried)

    assert (paused, pending) == ([], 0)
    assert [each.slots for each in desk.beat("n")[0].start] == [[JobSlot(0, 2)]]
    assert desk.beat("n")[0].start == []


def test_whoever_missed_that_a_job_runs_again_learns_it_from_the_whole() -> None:
    desk = Desk({"n": cores(3, slots=9)})
    live = an_operation("operation-1", jobs=1)
    desk.start(live)
    (start,) = desk.beat("n")[0].start
    end = JobEnd(start.operation, 0, 1, start.allocation, JobResult.FAILED)
    desk.beat("n", ends=[end])

    desk.engine.on_operations([msgspec.structs.replace(live, done=bytes([1]))], desk.now)
    assert desk.beat("n")[0].start == []
    desk.engine.on_operations([msgspec.structs.replace(live, attempts=[Retry(0, 2)])], desk.now)

    assert [each.slots for each in desk.beat("n")[0].start] == [[JobSlot(0, 2)]]


def test_an_end_that_its_node_has_told_is_no_news_when_it_is_recorded() -> None:
    desk = Desk({"n": cores(3, slots=9)})
    desk.start(an_operation("operation-1", jobs=9))
    start, *_ = desk.beat("n")[0].start
    end = JobEnd(start.operation, start.slots[0].index, 1, start.allocation, JobResult.COMPLETED)
    recorded = JobsEnded(start.operation, [LoggedEnd(end, NodeName("n"))], at_ms=1)

    desk.cut_usage()
    desk.learn(recorded)
    first = desk.cut_usage().items
    desk.beat("n", ends=[end])
    desk.cut_usage()
    desk.learn(recorded)

    assert [item.operation for item in first] == ["operation-1"]
    assert desk.cut_usage().items == []


def test_the_record_of_its_last_end_lets_an_operation_go_that_is_aborted() -> None:
    desk = Desk({"n": cores(3, slots=9)})
    name = OperationId("operation-1")
    desk.start(an_operation(name, jobs=1))
    (start,) = desk.beat("n")[0].start
    desk.learn(OperationStateChanged(name, OperationState.ABORTING, StateCause.ABORTED_BY_USER, "", at_ms=1))
    end = JobEnd(name, start.slots[0].index, 1, start.allocation, JobResult.ABORTED)
    _, effects = desk.beat("n", ends=[end])

    effects = [*effects, *desk.learn(JobsEnded(name, [LoggedEnd(end, NodeName("n"))], at_ms=1))]

    assert Release([name]) in effects
