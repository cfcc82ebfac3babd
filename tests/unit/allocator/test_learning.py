"""Everything live is learnt in pages, and events in slices: whatever comes between is answered rightly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from headrace.ids import OperationId
from headrace.runtime.service import runtime_on
from headrace.wire.heartbeat import AllocationReport, AllocationState, RunningJob, Start, TakeBackReason
from headrace.wire.ledger import DrawAnswer
from headrace.wire.log import OperationSuspended
from headrace_allocator.service import AllocatorService
from headrace_allocator.settings import AllocatorSettings
from tests.simulation.bus import connect_to
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.server import SimulatedServer
from tests.support.allocating import TREE, Desk, an_operation, cores

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

    desk.engine.on_more_operations([new], desk.moment)
    desk.engine.on_drawn(OperationId("new"), DrawAnswer(OperationId("new"), below=512), desk.moment)
    desk.share(old=0.1, ended=0.1, new=0.1)
    between = desk.beat("n", allocations=[running(start) for start in starts.values()])[0]
    starts |= {start.operation: start for start in between.start}
    desk.engine.on_operations([old], desk.moment)
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
