"""What those see who follow what happens, through real services: no job ends before it was told that it has a place."""

from __future__ import annotations

import anyio

from headrace.client.following import Follower, HappeningFilter
from headrace.runtime.clock import SystemClock
from headrace.wire.happenings import AllocationStarted, Happening, JobEnded, OperationStep
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobEnd, JobResult, Orders
from headrace.wire.operations import OperationState
from headrace.wire.snapshots import ShareItem
from tests.integration.test_allocator_service import TREE, Node, a_house, start
from tests.support.nats_server import nats_server
from tests.support.tree_services import a_bus

PATIENCE_S = 60.0
JOBS = 40


async def run_jobs(node: Node, orders: Orders) -> None:
    """Ends each job with the heartbeat after its start."""
    while True:
        over = [AllocationReport(s.allocation, s.operation, AllocationState.ENDED, s.resources) for s in orders.start]
        ends = [
            JobEnd(s.operation, slot.index, slot.attempt, s.allocation, JobResult.COMPLETED, exit_code=0)
            for s in orders.start
            for slot in s.slots
        ]
        orders = await node.beat(allocations=over, ends=ends)


async def test_whoever_follows_hears_of_each_place_before_the_end_of_its_job() -> None:
    happened: list[Happening] = []
    following, over = anyio.Event(), anyio.Event()

    def note(happening: Happening) -> None:
        happened.append(happening)
        if isinstance(happening, OperationStep) and happening.state is OperationState.COMPLETED:
            over.set()

    async def none_starves() -> list[ShareItem]:
        return []

    with nats_server() as server:
        async with a_bus(server, "user", "anna") as anna, a_bus(server, "node", "n1") as bus, a_house(server):
            node = Node(bus)
            await node.enrol()
            follower = Follower(anna, SystemClock(), TREE, none_starves)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follower.run, HappeningFilter(), note, following.set)
                await following.wait()
                await start(anna, jobs=JOBS)
                tasks.start_soon(run_jobs, node, await node.until_started())
                with anyio.fail_after(PATIENCE_S):
                    await over.wait()
                tasks.cancel_scope.cancel()

    started_at = {
        slot.index: at for at, one in enumerate(happened) if isinstance(one, AllocationStarted) for slot in one.slots
    }
    ended_at = {one.slot.index: at for at, one in enumerate(happened) if isinstance(one, JobEnded)}
    assert len(ended_at) == JOBS
    assert [index for index, at in ended_at.items() if started_at.get(index, len(happened)) > at] == []
