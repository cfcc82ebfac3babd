"""The course of a seeded world: who is there, what they want, which faults befall them when, and what must come of it."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Final

import anyio
import msgspec

from headrace.ids import TreeName
from headrace.pools import TreeOptions
from headrace.pools.amounts import PartialResources
from tests.simulation.aims import Aim, aim_of, befall_aimed, want_aimed
from tests.simulation.faults import FAULTS, a_network, heal, remove_machines_that_are_gone, take_a_name
from tests.simulation.length import LONG, Length
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.people import come
from tests.simulation.recorded import Violation
from tests.simulation.world import TREE, World, a_pool, chance_from, everything_by_seed

__all__ = ["Course", "run_seed"]

_SERVICES: Final = ("admission", "allocator", "fair_share", "integral")
_ANOTHER_TREE: Final = TreeName("another")
#: Of worlds without an aim one in so many has only one tree.
_ONE_TREE_IN: Final = 3
#: Where there are so many hosts, another machine says that it is one of them.
_HOSTS_OF_TWINS: Final = 4
#: After the last fault everything must come true within this.
_HEALED_S: Final = 240.0
#: After the last end nodes and books are clean within this.
_SETTLED_S: Final = 15.0


class Course(msgspec.Struct):
    """What became of one seed."""

    seed: int
    #: Empty if everything held.
    failure: str
    log: list[str]
    #: Runs of jobs that ended because others were owed their place.
    preempted: int = 0


def run_seed(seed: int, *, length: Length = LONG) -> Course:
    """Runs the world of one seed to its end."""
    worlds: list[World] = []

    async def course(loop: VirtualLoop) -> None:
        worlds.append(World(loop))
        aim = aim_of(seed)
        if aim is None and seed % _ONE_TREE_IN:
            worlds[0].trees = (TREE, _ANOTHER_TREE)
        await _course(worlds[0], length, aim)

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
    if not worlds:
        return Course(seed, failure, [])
    return Course(seed, failure, worlds[0].log, worlds[0].recorded.preempted)


async def _course(world: World, length: Length, aim: Aim | None) -> None:
    world.length = length
    doubled = aim is not None or chance_from(world.loop, 0.5)
    await _furnish(world, length.leases_s, doubled=doubled, tagged=aim is None)
    if len(world.trees) > 1:
        await _furnish_another(world, world.trees[1])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.keep_checking)
        people = anyio.Event()
        tasks.start_soon(_want, world, length, aim, people)
        await _befall(world, length, aim)
        heal(world)
        tasks.start_soon(remove_machines_that_are_gone, world)
        with anyio.move_on_after(_HEALED_S):
            await people.wait()
            while not world.invariants.is_all_over():  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.5)
        with anyio.move_on_after(_SETTLED_S):
            while world.invariants.defects_of_end():  # noqa: ASYNC110
                await anyio.sleep(0.5)
        world.invariants.check()
        for defect in world.invariants.defects_of_end():
            raise Violation(defect)
        tasks.cancel_scope.cancel()


async def _want(world: World, length: Length, aim: Aim | None, done: anyio.Event) -> None:
    async with anyio.create_task_group() as tasks:
        if aim is not None:
            tasks.start_soon(want_aimed, world, aim)
        tasks.start_soon(come, world, length.people)
    done.set()


def _options(running: int) -> TreeOptions:
    """Whoever comes late starves soon, and takes what others have too much of."""
    return TreeOptions(
        max_running_operation_count=running,
        max_operation_count=50,
        fair_share_starvation_timeout=500,
        fair_share_aggressive_starvation_timeout=3_000,
        enable_aggressive_starvation=True,
        preemptive_scheduling_backoff=500,
        allocation_preemption_timeout=2_000,
        preemption_exempt_time=1_000,
        node_reservation_time=20_000,
        hold_back_failing_nodes=True,
        preempt_at_bound_for_owed_jobs=True,
    )


async def _furnish(world: World, leases_s: Sequence[float], *, doubled: bool, tagged: bool) -> None:
    """Pools, services and hosts. Some worlds that are `tagged` have a pool that may use all hosts but the first."""
    draw = world.random
    running, limited, cores = draw.choice((2, 50)), chance_from(world.loop, 0.3), draw.randint(1, 3)
    options = _options(running)
    research = {"resource_limits": PartialResources(cpu=100 * cores), "max_running_operation_count": 2}
    # Drawn of what is drawn anyway: all other worlds take the courses that they took.
    picky = {"scheduling_tag_filter": "ssd" if limited else "!old"} if tagged and cores != 1 else {}
    await world.configure(
        [a_pool("research", weight=2.0, **(research if limited else {})), a_pool("production", **picky)], options
    )
    world.recorded.running_limits = {(TREE, ""): running, **({(TREE, "research"): 2} if limited else {})}
    world.truth.job_limits = {(TREE, "research"): cores} if limited else {}
    world.node_lease_s = draw.choice(leases_s)
    for kind in _SERVICES:
        for instance in ("a", "b") if doubled else ("a",):
            world.start_service(kind, instance)
    for number in range(draw.randint(2, 4)):
        tags = [] if not picky else ["ssd"] if number else ["old"]
        world.start_host(f"n{number}", draw.randint(1, 4), tags=tags)
    if picky:
        world.truth.hosts_of = {(TREE, "production"): set(world.hosts) - {"n0"}}


async def _furnish_another(world: World, tree: TreeName) -> None:
    """A second tree with hosts of its own, where operations wait for slots of its own."""
    draw = world.random
    running = draw.choice((1, 2, 50))
    options = _options(running)
    await world.configure([a_pool("research"), a_pool("production")], options, tree)
    world.recorded.running_limits = {**world.recorded.running_limits, (tree, ""): running}
    for kind in ("allocator", "fair_share", "integral"):
        for instance in ("a", "b") if chance_from(world.loop, 0.5) else ("a",):
            world.start_service(kind, instance, tree)
    for number in range(draw.randint(1, 3)):
        world.start_host(f"m{number}", draw.randint(1, 4), tree)


async def _befall(world: World, length: Length, aim: Aim | None) -> None:
    """Some kinds of faults, at times of the seed's choice; one may begin before another is over."""
    draw, loop = world.random, world.loop
    if aim is not None:
        # Nothing else keeps it from hitting.
        await befall_aimed(world, aim)
    if chance_from(loop, 0.5):
        world.server.faults = a_network(world)
    until_s = loop.time() + length.unkind_s
    kinds = draw.sample(FAULTS, draw.randint(2, 9))
    async with anyio.create_task_group() as tasks:
        if aim is None and len(world.hosts) == _HOSTS_OF_TWINS:
            # Drawn of what is drawn anyway, as above.
            tasks.start_soon(take_a_name, world)
        while loop.time() < until_s:
            await anyio.sleep(draw.expovariate(length.faults_per_s))
            if kinds:
                tasks.start_soon(draw.choice(kinds), world)
