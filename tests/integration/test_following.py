"""What those see who follow what happens, through real services.

No job ends before it was told that it has a place, and a bus that is gone is no silence.
"""

from __future__ import annotations

import asyncio

import anyio
import pytest

from headrace.bus import Bus
from headrace.client.asking import LONGEST_ABSENCE_S
from headrace.client.following import Follower, HappeningFilter
from headrace.client.place import Place
from headrace.errors import first_error
from headrace.ids import AllocationId, NodeName, OperationId
from headrace.runtime.clock import Clock, SystemClock
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.happenings import AllocationStarted, Decisions, Happening, JobEnded, OperationStep
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobEnd, JobResult, Orders
from headrace.wire.operations import OperationState
from headrace.wire.snapshots import ShareItem
from tests.integration.test_allocator_service import TREE, Node, a_house, start
from tests.support.clocks import HandClock
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import a_bus

PATIENCE_S = 60.0
JOBS = 40


def a_place(server: NatsServer) -> Place:
    return Place(server.url, "", "", TREE, server.url)


async def none_starves() -> list[ShareItem]:
    return []


class Listener:
    """Somebody who follows, and what they are told."""

    def __init__(self, server: NatsServer, bus: Bus, clock: Clock) -> None:
        self.following = anyio.Event()
        self._follower = Follower(bus, clock, a_place(server), none_starves)
        self._happened: asyncio.Queue[Happening] = asyncio.Queue()
        self._connection: asyncio.Queue[bool] = asyncio.Queue()

    async def run(self) -> None:
        told = self._happened.put_nowait, self.following.set, self._connection.put_nowait
        await self._follower.run(HappeningFilter(), *told)

    async def connection(self) -> bool:
        """The next word on the bus: whether it is there."""
        with anyio.fail_after(PATIENCE_S):
            return await self._connection.get()

    async def happened(self) -> Happening:
        """The next thing that happened."""
        with anyio.fail_after(PATIENCE_S):
            return await self._happened.get()


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

    with nats_server() as server:
        async with a_bus(server, "user", "anna") as anna, a_bus(server, "node", "n1") as bus, a_house(server):
            node = Node(bus)
            await node.enrol()
            follower = Follower(anna, SystemClock(), a_place(server), none_starves)
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


async def test_a_bus_that_is_gone_is_told_and_what_happens_once_it_is_back() -> None:
    decided = AllocationStarted(1, TREE, OperationId("op"), NodeName("n1"), AllocationId("1-1"), [])
    with nats_server() as server:
        async with a_bus(server, "user", "anna") as anna, anyio.create_task_group() as tasks:
            listener = Listener(server, anna, SystemClock())
            tasks.start_soon(listener.run)
            await listener.following.wait()
            server.kill()
            assert not await listener.connection()

            await anyio.to_thread.run_sync(server.start)
            assert await listener.connection()
            async with a_bus(server) as service:
                await service.publish(subjects.decisions(TREE), encode(Decisions(TREE, 1, 0, [decided])))
                assert await listener.happened() == decided
            tasks.cancel_scope.cancel()


async def test_a_bus_that_stays_away_ends_the_following() -> None:
    clock = HandClock()
    with nats_server() as server:
        async with a_bus(server, "user", "anna") as anna, anyio.create_task_group() as tasks:
            listener = Listener(server, anna, clock)

            async def lose_bus() -> None:
                await listener.following.wait()
                server.kill()
                assert not await listener.connection()
                clock.now_s += LONGEST_ABSENCE_S

            tasks.start_soon(lose_bus)
            with anyio.fail_after(PATIENCE_S), pytest.raises(ExceptionGroup) as ended:
                await listener.run()

    assert str(first_error(ended.value)).startswith(f"Headrace does not answer at {server.url} (gone for 60 s)")
