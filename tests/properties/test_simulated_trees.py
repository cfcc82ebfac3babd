"""One operation in two simulated trees, with services and agents as they are, while those who know its jobs are killed."""

from __future__ import annotations

import anyio
import pytest

from headrace.ids import TreeName
from headrace.pools import TreeOptions
from headrace.wire import subjects
from headrace.wire.operations import OperationState
from tests.simulation.bus import connect_to
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.world import TREE, World, a_pool, a_spec, everything_by_seed

pytestmark = pytest.mark.long

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


@pytest.mark.parametrize("is_removed", [False, True])
@pytest.mark.parametrize("comes_back", [False, True])
def test_jobs_of_a_tree_whose_allocator_does_not_come_back_run_in_the_other_after_the_lease(
    is_removed: bool, comes_back: bool
) -> None:
    """They stayed with it for ever, and the operation did not end."""
    worlds: list[World] = []

    async def course(loop: VirtualLoop) -> None:
        world = World(loop)
        worlds.append(world)
        world.node_lease_s = 10.0
        await furnished(world)
        gone = ["allocator.another.a", *([] if comes_back else ["agent.m0"])]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.keep_checking)
            spec = a_spec("production", JOBS, ["work", "3"], pool_trees=[*TREES], max_failed_job_count=1)
            async with anyio.create_task_group() as people:
                people.cancel_scope.deadline = anyio.current_time() + 300
                people.start_soon(world.run_operation, "operation-1", spec)
                await anyio.sleep(8.0)
                for name in gone:
                    world.given_up.add(name)
                    world.kill(name)
                if is_removed:
                    async with connect_to(world.server, "administrator") as bus:
                        await (await bus.key_value(subjects.POOLS_BUCKET)).delete(TREES[1])
                        await (await bus.key_value(subjects.copies_of(subjects.POOLS_BUCKET))).delete(TREES[1])
                await anyio.sleep(35.0)
                if comes_back:
                    world.given_up.clear()
                    world.start(gone[0], world._programs[gone[0]])
            await anyio.sleep(2.0)
            world.invariants.check()
            tasks.cancel_scope.cancel()

    with everything_by_seed(lambda: worlds[0] if worlds else None, 1):
        run_virtually(1, course)

    (world,) = worlds
    (view,) = world.ended.values()
    assert (view.state, view.completed_jobs, view.failed_jobs) == (OperationState.COMPLETED, JOBS, 0)
    assert view.lost_jobs + view.aborted_jobs > 0
    assert {process.tree for process in world.truth.processes} == set(TREES)
