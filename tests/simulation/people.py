"""What people want in a simulated world: operations of all kinds, some of them ended, held up or counted on while all breaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import anyio
import msgspec

from headrace.bus import BusError
from headrace.ids import OperationId
from headrace.wire import operations as wire
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.operations import OnLostNode, OperationSpec
from headrace.wire.preemption import InterruptSignal
from tests.simulation.bus import connect_to
from tests.simulation.world import World, a_spec, chance_from

__all__ = ["come", "flood"]

Wish = tuple[float, type[msgspec.Struct], str]

_MANY_ENDS: Final = 200
_POOLS: Final = ("research", "production")


async def come(world: World, most: int) -> None:
    """Some people start operations, one after the other, and wait for their ends."""
    draw = world.random
    async with anyio.create_task_group() as tasks:
        for number in range(draw.randint(1, most)):
            spec, then = _wanted(world, number)
            tasks.start_soon(world.run_operation, f"operation-{number}", spec, then)
            if spec.max_failed_job_count > _MANY_ENDS:
                tasks.start_soon(_stall_admission, world, f"operation-{number}")
            await anyio.sleep(draw.uniform(0, 3))


async def _stall_admission(world: World, operation: str) -> None:
    """Ends pile up at the allocator: admission takes none for a while after the first job started."""
    while not any(process.key.operation == operation for process in world.truth.processes):  # noqa: ASYNC110
        await anyio.sleep(0.05)
    stalled = [world.process(name) for name in world._programs if name.startswith("admission")]
    world.note("admission is stalled")
    for process in stalled:
        world.loop.freeze(process)
    await anyio.sleep(3.0)
    for process in stalled:
        world.loop.thaw(process)


def _wanted(world: World, number: int) -> tuple[OperationSpec, Sequence[Wish]]:
    draw = world.random
    longest = (str(world.length.longest_job_s), 3)
    seconds, most = draw.choice((("0.05", 30), ("0.5", 20), ("3", 6), longest, longest))
    if number == 0 and chance_from(world.loop, 0.5):
        # The hosts are full when the next one comes, of another pool that is owed its part.
        seconds, most = "3", 30
    pool, argv, jobs = _POOLS[number % 2], ["work", seconds], draw.randint(most // 2, most)
    options: dict[str, Any] = {}
    kind = draw.random()
    if kind < 0.1:
        argv = ["work", "0.5", "3", "2000"]
    elif kind < 0.2:
        argv, jobs = ["work", "0.02", "3", "4000"], 270
        options["max_failed_job_count"] = 260
    elif kind < 0.23:
        # More than the first block of indexes holds.
        argv, jobs = ["work", "0.02"], 270
    elif kind < 0.35:
        argv = ["stubborn", seconds]
        options["interruption_timeout_ms"] = 2_000
    elif argv[0] == "work" and chance_from(world.loop, 0.2):
        argv = ["saver" if chance_from(world.loop, 0.5) else "hasty", seconds]
        options |= {"interruptible": True, "interrupt_signal": InterruptSignal.SIGUSR1}
    elif argv[0] == "work" and pool == "production" and _has_room_for_gangs(world) and chance_from(world.loop, 0.3):
        jobs, options = draw.randint(2, 3), {"is_gang": True}
    if chance_from(world.loop, 0.1):
        options["on_lost_node"] = OnLostNode.WAIT
    if len(world.trees) > 1:
        options["pool_trees"] = draw.choice(
            ([*world.trees], [*world.trees], [*world.trees[::-1]], [draw.choice(world.trees)])
        )
    return a_spec(pool, jobs, argv, **options), _then(world)


def _has_room_for_gangs(world: World) -> bool:
    """True if three jobs of the pool that has no limit can run at once, whatever its tags are."""
    hosts = world.hosts.values()
    return len(world.trees) == 1 and not any(host.tags for host in hosts) and sum(host.cores for host in hosts) >= 3


def _then(world: World) -> list[Wish]:
    draw = world.random
    kind, first_s = draw.random(), draw.uniform(0.2, 6)
    if kind < 0.15:
        return [(first_s, wire.AbortOperation, "op.abort")]
    if kind < 0.2:
        return [(first_s, wire.CompleteOperation, "op.complete")]
    if kind < 0.3:
        return [
            (first_s, wire.SuspendOperation, "op.suspend"),
            (first_s + draw.uniform(1, 5), wire.ResumeOperation, "op.resume"),
        ]
    return []


async def flood(world: World) -> None:
    """One user asks for very much at once."""
    world.note("flood")
    spec = a_spec("research", 1, ["work", "0.02", "0", "0", "x" * 20_000])
    number = world.server.new_number()
    try:
        async with connect_to(world.server, f"flooder-{number}", subjects.inbox("user", "bob")) as bus:
            for count in range(150):
                await bus.publish(subjects.user("bob", "op.list"), encode(wire.ListOperations()))
                if count % 50 == 0:
                    start = wire.StartOperation(OperationId(f"flood-{number}-{count}"), spec)
                    await bus.publish(subjects.user("bob", "op.start"), encode(start))
    except* BusError:
        world.note("the flood ended")
