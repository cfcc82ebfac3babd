"""Allocators that are replaced while hosts are off: the real shells of all services, in virtual time.

Jobs wait for the lease of a node only where it may really run one, and no job runs twice for that.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import anyio
import pytest

from headrace.pools import TreeOptions
from headrace.wire import subjects
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.world import World, a_pool, a_spec, everything_by_seed

pytestmark = pytest.mark.long

LEASE_S = 40.0
HOSTS = ("n0", "n1", "n2")


def in_world(course: Callable[[World], Awaitable[None]], *, seed: int = 1, allocators: str = "a") -> None:
    """Runs a course in a world of three hosts. At its end nothing ran twice, and the books of every process hold."""
    worlds: list[World] = []

    async def run(loop: VirtualLoop) -> None:
        world = World(loop)
        worlds.append(world)
        world.node_lease_s = LEASE_S
        await world.configure([a_pool("research")], TreeOptions())
        for kind in ("admission", "fair_share", "integral"):
            world.start_service(kind)
        for instance in allocators:
            world.start_service("allocator", instance)
        for name in HOSTS:
            world.start_host(name, 2)
        await anyio.sleep(5)
        await course(world)
        world.invariants.check()

    with everything_by_seed(lambda: worlds[0] if worlds else None, seed):
        run_virtually(seed, run)


def leading(world: World) -> str:
    shells = {name: world.shells.get(world.process(name)) for name in world._programs if name.startswith("allocator")}
    return next(
        (name for name, shell in shells.items() if shell is not None and shell._role is not None), "allocator.a"
    )


async def replace_the_allocator(world: World, how: str) -> None:
    name = leading(world)
    if how == "stopped":
        world.stop(name)
    else:
        world.kill(name)
    await anyio.sleep(1)


def switch_off_in_order(world: World) -> None:
    world.stop("agent.n2", for_good=True)


@pytest.mark.parametrize(
    ("off", "replaced", "allocators"),
    [("stopped", "stopped", "a"), ("stopped", "killed", "ab"), ("dead for its lease", "killed", "a")],
)
def test_jobs_do_not_wait_for_a_host_that_is_off(off: str, replaced: str, allocators: str) -> None:
    """36 to 51 of 60 jobs waited for a whole lease of it, while the cluster idled."""

    async def course(world: World) -> None:
        if off == "stopped":
            switch_off_in_order(world)
            await anyio.sleep(10)
        else:
            world.switch_off("n2")
            await anyio.sleep(LEASE_S + 10)
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                spec = a_spec("research", 3, ["work", "1"])
                tasks.start_soon(world.run_operation, f"operation-{number}", spec)
            await anyio.sleep(2)
            with anyio.fail_after(LEASE_S / 2):
                await replace_the_allocator(world, replaced)
                while len(world.ended) < 10:  # noqa: ASYNC110 - nobody tells
                    await anyio.sleep(0.5)

    in_world(course, allocators=allocators)


def test_jobs_that_an_allocator_never_gave_out_do_not_wait_for_a_host_that_died_with_jobs() -> None:
    """Those that ran there do: nobody else may run them before its lease is over."""
    done: list[int] = []

    async def course(world: World) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.run_operation, "operation-1", a_spec("research", 60, ["work", "1"]))
            await anyio.sleep(3)
            world.switch_off("n2")
            await anyio.sleep(1)
            await replace_the_allocator(world, "stopped")
            await anyio.sleep(LEASE_S / 2)
            done.append(len({process.key.index for process in world.truth.processes if process.exit_code == 0}))

    in_world(course)

    # Each of the two allocations on the dead host had a few jobs ahead.
    assert 50 <= done[0] < 60


async def _befall(world: World, draw: random.Random) -> None:
    """One thing that happens to a host, to an allocator or to the record."""
    host = draw.choice(HOSTS)
    agent, allocator = f"agent.{host}", leading(world)
    what = draw.randrange(8)
    if what == 0 and agent not in world.given_up:
        world.stop(agent, for_good=True)
    elif what == 1 and world.hosts[host].is_on:
        world.switch_off(host)
    elif what in (2, 3):
        world.switch_on(host)
    elif what == 4:
        world.stop(allocator)
    elif what == 5:
        world.kill(allocator)
    elif what == 6:
        process = world.process(allocator)
        if not world.loop.is_frozen(process):
            world.freeze(allocator)
            await anyio.sleep(draw.choice((0.3, 3.0, 8.0)))
            if world.process(allocator) == process:
                world.thaw(allocator)
    elif draw.random() < 0.3:
        world.server.lose_leader(3.0)
    else:
        world.server.store.lose_bucket(subjects.NODE_LEASES_BUCKET)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_runs_twice_whatever_stops_dies_freezes_and_comes_back(seed: int) -> None:
    """Each host is recorded as empty and taken out of the record many times, while allocators change."""

    async def course(world: World) -> None:
        draw = random.Random(seed)
        world.node_lease_s = 20.0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.keep_checking)
            async with anyio.create_task_group() as people:
                for number in range(6):
                    spec = a_spec("research", draw.randint(1, 20), ["work", draw.choice(["0.3", "2", "6"])])
                    people.start_soon(world.run_operation, f"operation-{number}", spec)
                for _ in range(20):
                    await anyio.sleep(draw.expovariate(1 / 2.0))
                    people.start_soon(_befall, world, draw)
                for host in HOSTS:
                    world.switch_on(host)
                for name in ("allocator.a", "allocator.b"):
                    if world.loop.is_frozen(world.process(name)):
                        world.thaw(name)
            assert len(world.ended) == 6
            tasks.cancel_scope.cancel()
        assert world.truth.violations == []

    in_world(course, seed=seed, allocators="ab")
