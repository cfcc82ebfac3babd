"""What happens in a seeded world: who is there, what they want, and which faults befall them when."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec

from headrace.pools import TreeOptions
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.server import Faults
from tests.simulation.world import World, a_pool, a_spec, chance_from, everything_by_seed

__all__ = ["Course", "run_seed"]

_SERVICES: Final = ("admission", "allocator", "fair_share", "integral")
#: Faults end after so long; then everything must come true within the rest.
_UNKIND_S: Final = 45.0
_HEALED_S: Final = 240.0


class Course(msgspec.Struct):
    """What became of one seed."""

    seed: int
    #: Empty if everything held.
    failure: str
    log: list[str]


def run_seed(seed: int) -> Course:
    """Runs the world of one seed to its end."""
    worlds: list[World] = []

    async def course(loop: VirtualLoop) -> None:
        worlds.append(World(loop))
        await _course(worlds[0])

    failure = ""
    with everything_by_seed(lambda: worlds[0] if worlds else None, seed):
        try:
            run_virtually(seed, course)
        except BaseException as error:
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            if isinstance(error, KeyboardInterrupt):
                raise
            failure = f"{type(error).__name__}: {error}"
            if not isinstance(error, AssertionError):
                failure += "\n" + "".join(traceback.format_exception(error)[-6:])
    return Course(seed, failure, worlds[0].log if worlds else [])


async def _course(world: World) -> None:
    draw = world.random
    options = TreeOptions(max_running_operation_count=draw.choice((2, 50)), max_operation_count=50)
    await world.configure([a_pool("research", weight=2.0), a_pool("production")], options)
    doubled = chance_from(world.loop, 0.5)
    for kind in _SERVICES:
        for instance in ("a", "b") if doubled else ("a",):
            world.start_service(kind, instance)
    for number in range(draw.randint(1, 4)):
        world.start_host(f"n{number}", draw.randint(1, 4))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.keep_checking)
        people = anyio.Event()
        tasks.start_soon(_people, world, people)
        await _befall(world)
        world.note("healed")
        world.server.faults = Faults()
        with anyio.move_on_after(_HEALED_S):
            await people.wait()
        await anyio.sleep(5.0)
        world.check()
        world.check_end()
        tasks.cancel_scope.cancel()


async def _people(world: World, done: anyio.Event) -> None:
    draw = world.random
    async with anyio.create_task_group() as tasks:
        for number in range(draw.randint(1, 5)):
            seconds = f"{draw.choice((0.05, 0.5, 3.0)):g}"
            argv = ["work", seconds]
            if chance_from(world.loop, 0.2):
                argv = ["work", seconds, "3", "2000"]
            elif chance_from(world.loop, 0.1):
                argv = ["stubborn", seconds]
            spec = a_spec(draw.choice(("research", "production")), draw.randint(1, 30), argv)
            tasks.start_soon(world.run_operation, f"operation-{number}", spec)
            await anyio.sleep(draw.uniform(0, 5))
    done.set()


async def _befall(world: World) -> None:
    """A subset of all faults, at times of the seed's choice."""
    draw, loop = world.random, world.loop
    if chance_from(loop, 0.5):
        world.server.faults = Faults(
            latency_s=draw.choice(((0.0002, 0.002), (0.005, 0.05))),
            drop=draw.choice((0.0, 0.01, 0.05)),
            repeat=draw.choice((0.0, 0.02)),
            late=draw.choice((0.0, 0.01, 0.05)),
            blind=draw.choice((0.0, 0.2)),
        )
    kinds: list[Callable[[World], Awaitable[None]]] = [fault for fault in _FAULTS if chance_from(loop, 0.4)]
    while loop.time() < _UNKIND_S and kinds:
        await anyio.sleep(draw.expovariate(1 / 4))
        await draw.choice(kinds)(world)
    for name in list(world._programs):
        if loop.is_frozen(world.process(name)):
            world.thaw(name)


def _a_service(world: World) -> str:
    names = [name for name in world._programs if not name.startswith("agent.")]
    return world.random.choice(names)


def _an_agent(world: World) -> str:
    return f"agent.{world.random.choice(list(world.hosts))}"


async def kill_a_service(world: World) -> None:
    """SIGKILL, and the supervisor starts it again."""
    world.kill(_a_service(world))


async def freeze_a_service(world: World) -> None:
    """SIGSTOP for a while, long enough to be succeeded or not."""
    name = _a_service(world)
    if not world.loop.is_frozen(world.process(name)):
        process = world.process(name)
        world.freeze(name)
        await anyio.sleep(world.random.choice((0.5, 2.5, 8.0)))
        if world.process(name) == process:
            world.thaw(name)


async def kill_an_agent(world: World) -> None:
    """The agent dies; runner and jobs live on."""
    name = _an_agent(world)
    world.kill(name)
    world.hosts[name.removeprefix("agent.")].to_agent = None


async def kill_a_runner(world: World) -> None:
    """The runner dies; its jobs live on until its successor ends them."""
    host = world.hosts[world.random.choice(list(world.hosts))]
    world.note(f"kill runner of {host.name}")
    host.kill_runner()


async def crash_the_server(world: World) -> None:
    """All connections break; what is stored stays."""
    world.note("server crashes")
    world.server.crash()
    await anyio.sleep(world.random.choice((0.1, 2.0)))
    world.server.start()


async def lose_the_leader(world: World) -> None:
    """Streams and buckets answer nobody for 9 s."""
    world.note("no leader")
    world.server.lose_leader(9.0)


async def cut_a_node_off(world: World) -> None:
    """One direction of one agent's connection carries nothing for a while."""
    name = world.process(_an_agent(world))
    cut = (name, world.random.choice(("to", "from")))
    world.note(f"cut {cut}")
    world.server.cut.add(cut)
    await anyio.sleep(world.random.choice((1.0, 8.0)))
    world.server.cut.discard(cut)


_FAULTS: Final = (
    kill_a_service,
    freeze_a_service,
    kill_an_agent,
    kill_a_runner,
    crash_the_server,
    lose_the_leader,
    cut_a_node_off,
)
