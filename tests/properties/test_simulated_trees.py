"""One operation in two simulated trees, with services and agents as they are, while those who know its jobs are killed."""

from __future__ import annotations

import anyio
import pytest

from headrace.ids import TreeName
from headrace.pools import TreeOptions
from headrace.wire.operations import OperationState
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.world import TREE, World, a_pool, a_spec, everything_by_seed

TREES = (TREE, TreeName("another"))
JOBS = 60


async def furnished(world: World) -> None:
    world.trees = TREES
    world.start_service("admission")
    for tree, host in zip(TREES, ("n0", "m0"), strict=True):
        await world.configure([a_pool("production")], TreeOptions(), tree)
        for kind in ("allocator", "fair_share", "integral"):
            world.start_service(kind, "a", tree)
        world.start_host(host, 2, tree)


@pytest.mark.parametrize(
    "killed",
    [(), ("allocator.a",), ("allocator.a", "allocator.another.a"), ("admission.a",), ("admission.a", "allocator.a")],
    ids="-and-".join,
)
def test_an_operation_runs_in_both_trees_and_each_job_once_whoever_is_killed(killed: tuple[str, ...]) -> None:
    worlds: list[World] = []

    async def course(loop: VirtualLoop) -> None:
        world = World(loop)
        worlds.append(world)
        await furnished(world)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.keep_checking)
            spec = a_spec("production", JOBS, ["work", "0.5"], pool_trees=[*TREES])
            async with anyio.create_task_group() as people:
                people.start_soon(world.run_operation, "operation-1", spec)
                await anyio.sleep(6.0)
                for name in killed:
                    world.kill(name)
            await anyio.sleep(2.0)
            world.invariants.check()
            tasks.cancel_scope.cancel()

    with everything_by_seed(lambda: worlds[0] if worlds else None, 1):
        run_virtually(1, course)

    (world,) = worlds
    (view,) = world.ended.values()
    assert (view.state, view.completed_jobs) == (OperationState.COMPLETED, JOBS)
    assert {process.tree for process in world.truth.processes} == set(TREES)
    assert sorted(process.key.index for process in world.truth.processes) == list(range(JOBS))
