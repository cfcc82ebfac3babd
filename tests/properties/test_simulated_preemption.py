"""Preemption in a simulated world: services, agents and runners as they are, and what becomes of it when fair_share goes away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from headrace.ids import OperationId
from headrace.pools import PreemptionPolicy, TreeOptions, YarnOptions
from headrace.wire.operations import OperationState
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.world import World, a_pool, a_spec, everything_by_seed
from tests.support.effort import seeds

pytestmark = pytest.mark.long

#: Between the preemptive stages on a host, and how long shares count.
PAUSE_S, COUNT_S = 6.0, 10.0


def options_of(policy: PreemptionPolicy) -> TreeOptions:
    """Places are given back within seconds."""
    yarn = YarnOptions(
        enabled=policy is not PreemptionPolicy.YTSAURUS,
        cluster_utilization_threshold=0.5,
        wait_before_kill=3_000,
        heartbeat_allowance=1_000,
        wait_before_next_check=2_000,
        legacy_interval=1_000,
    )
    return TreeOptions(
        fair_share_starvation_timeout=500,
        preemptive_scheduling_backoff=int(PAUSE_S * 1000),
        preemption_policy=policy,
        yarn=yarn,
    )


async def furnished(world: World, options: TreeOptions) -> None:
    """One host of four cores, which `research` has for itself when `production` comes."""
    await world.configure([a_pool("research"), a_pool("production", weight=3.0)], options)
    for kind in ("admission", "allocator", "fair_share", "integral"):
        world.start_service(kind)
    world.start_host("n0", 4)


def run(
    course_of: Callable[[World], Awaitable[None]], policy: PreemptionPolicy = PreemptionPolicy.YTSAURUS, seed: int = 1
) -> World:
    worlds: list[World] = []

    async def course(loop: VirtualLoop) -> None:
        world = World(loop)
        worlds.append(world)
        await furnished(world, options_of(policy))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.keep_checking)
            async with anyio.create_task_group() as people:
                people.start_soon(world.run_operation, "hoarding", a_spec("research", 8, ["work", "30"]))
                await anyio.sleep(5)
                people.start_soon(world.run_operation, "returning", a_spec("production", 40, ["work", "2"]))
                await course_of(world)
            world.invariants.check()
            tasks.cancel_scope.cancel()

    with everything_by_seed(lambda: worlds[0] if worlds else None, seed):
        run_virtually(seed, course)
    return worlds[0]


def starts_of(world: World, operation: str) -> list[float]:
    return [each.started_s for each in world.truth.processes if each.key.operation == operation]


def all_completed(world: World) -> bool:
    return {view.state for view in world.ended.values()} == {OperationState.COMPLETED}


@pytest.mark.parametrize("policy", PreemptionPolicy)
def test_whoever_returns_gets_its_part_and_preempted_jobs_run_again(policy: PreemptionPolicy) -> None:
    async def course(world: World) -> None:
        await anyio.lowlevel.checkpoint()

    world = run(course, policy)

    assert world.recorded.preempted >= 2
    assert all_completed(world)
    # The first job of `returning` did not wait for any of 30 s to end.
    assert min(starts_of(world, "returning")) < min(starts_of(world, "hoarding")) + 20
    assert len(starts_of(world, "hoarding")) == 8 + world.recorded.preempted
    assert world.ended[OperationId("hoarding")].failed_jobs == 0


def test_nobody_loses_a_place_while_fair_share_is_away_though_jobs_start() -> None:
    """Who starves by its last word goes on starving by that, and would take one place after the other."""
    counts: list[int] = []

    async def course(world: World) -> None:
        while not world.recorded.preempted:  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(0.1)
        world.given_up.add("fair_share.a")
        world.kill("fair_share.a")
        started_before = len(starts_of(world, "returning"))
        for seconds in (COUNT_S + 1, 2 * PAUSE_S):
            await anyio.sleep(seconds)
            counts.append(world.recorded.preempted)
        assert len(starts_of(world, "returning")) > started_before
        world.given_up.remove("fair_share.a")
        world.start_service("fair_share")

    world = run(course)

    assert counts[0] == counts[1] < 3
    assert all_completed(world)


@pytest.mark.parametrize("policy", [PreemptionPolicy.YARN, PreemptionPolicy.YARN_LEGACY])
@pytest.mark.parametrize("seed", seeds(1, 60))
def test_no_job_is_lost_when_services_die_while_places_are_given_back(policy: PreemptionPolicy, seed: int) -> None:
    """The allocator dies with what it planned and warned, fair_share with its clocks, and the policy changes twice."""

    async def course(world: World) -> None:
        draw = world.random
        for _ in range(6):
            await anyio.sleep(draw.uniform(0.2, 4.0))
            name = draw.choice(["allocator.a", "fair_share.a", "n0"])
            if name == "n0":
                world.switch_off(name)
                await anyio.sleep(draw.uniform(0.5, 20.0))
                world.switch_on(name)
            else:
                world.kill(name)
        for other in (PreemptionPolicy.YTSAURUS, policy):
            await world.configure([a_pool("research"), a_pool("production", weight=3.0)], options_of(other))
            await anyio.sleep(draw.uniform(0.5, 5.0))

    world = run(course, policy, seed)

    assert all_completed(world)
    assert {view.failed_jobs for view in world.ended.values()} == {0}
