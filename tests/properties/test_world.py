"""admission, allocator and agents together, with everything lost, repeated, late and restarted that can be."""

from __future__ import annotations

from random import Random

import pytest

from headrace.ids import OperationId, PoolName
from headrace.resources import Resources
from headrace.wire.heartbeat import JobResult
from headrace.wire.operations import OperationState
from headrace_admission.state.rules import PoolRules, TreeRules
from tests.support.effort import seeds
from tests.support.world import World

NODES = {"small": Resources(user_slots=10, cpu=200), "large": Resources(user_slots=10, cpu=400)}


def a_world(seed: int) -> World:
    world = World(Random(seed), NODES)
    world.start("operation-a", jobs=12)
    return world


def no_problem(world: World, seed: int) -> None:
    assert world.problems == [], f"seed {seed}: {world.problems[:3]}"


@pytest.mark.parametrize("seed", seeds(6, 200))
def test_never_runs_a_job_twice_and_completes_every_job_though_messages_are_lost_and_repeated(seed: int) -> None:
    """The truth on the hosts is judged, not the books: one process of a job at a time, none after it completed."""
    world = a_world(seed)
    for number in range(400):
        world.step()
        if number == 150:
            world.start("operation-b", jobs=40, cpu=50)
        no_problem(world, seed)

    settled = world.settle()

    no_problem(world, seed)
    assert settled, {name: o.state for name, o in world.admission.state.operations.items()}
    for operation in world.admission.state.operations.values():
        assert operation.state is OperationState.COMPLETED
        assert operation.ledger.counts[JobResult.COMPLETED] == operation.spec.job_count


@pytest.mark.parametrize("seed", seeds(4, 100))
@pytest.mark.parametrize("tries", [1, 3])
def test_each_job_completes_or_fails_as_often_as_it_may(seed: int, tries: int) -> None:
    """An operation that keeps going ends with every job completed or given up, and gives up none before its last try."""
    world = World(Random(seed), NODES)
    world.start("operation-a", jobs=30, tries=tries)
    for number in range(600):
        world.step()
        if number % 90 == 60:
            world.restart_admission()
        if number % 90 == 80:
            world.restart_allocator()
        no_problem(world, seed)

    assert world.settle()

    no_problem(world, seed)
    operation = world.admission.state.operations[OperationId("operation-a")]
    ledger, given_up = operation.ledger, {index for (_, index), count in world.failures.items() if count == tries}
    assert max(world.failures.values(), default=0) <= tries
    assert (ledger.given_up, ledger.done_count) == (len(given_up), 30 - len(given_up))
    assert {index for _, index in world.completed} == set(range(30)) - given_up
    assert operation.state is (OperationState.FAILED if given_up else OperationState.COMPLETED)


@pytest.mark.parametrize("seed", seeds(4, 100))
def test_a_job_that_times_out_never_runs_again_and_its_operation_fails_when_the_other_jobs_are_over(seed: int) -> None:
    """Services and agents restart at any moment."""
    world = World(Random(seed), NODES)
    world.slow = 0.2
    world.start("operation-a", jobs=20, tries=3, time_limit_ms=60_000)
    for number in range(600):
        world.step()
        match number % 150:
            case 40:
                world.restart_admission()
            case 80:
                world.restart_allocator()
            case 120:
                world.restart_agent(world.random.choice(list(NODES)))
        no_problem(world, seed)

    assert world.settle()

    no_problem(world, seed)
    operation = world.admission.state.operations[OperationId("operation-a")]
    ledger = operation.ledger
    assert ledger.counts[JobResult.TIMED_OUT] == len(world.timed_out)
    assert {index for _, index in world.completed} == set(range(20)) - {index for _, index in world.timed_out}
    assert operation.state is (OperationState.FAILED if world.timed_out else OperationState.COMPLETED)


@pytest.mark.parametrize("seed", seeds(6, 100))
def test_an_operation_ends_at_its_limit_and_not_before_though_clocks_are_set_and_services_restart(seed: int) -> None:
    """Its jobs never end by themselves. Nothing of it runs when it is over."""
    world, name = World(Random(seed), NODES), OperationId("operation-a")
    world.stays = 1.0
    world.start(name, jobs=8, operation_time_limit_ms=100_000)
    due_s, ended_s = world.now_s + 100, 0.0
    for _ in range(4_000):
        world.step()
        match world.random.randrange(200):
            case 0:
                world.restart_admission()
            case 1:
                world.restart_allocator()
            case 2 | 3:
                world.set_clock(world.random.choice([-900, -60, 0, 5, 40 * 3_600]))
        state = world.admission.state.operations[name].state
        if state is not OperationState.RUNNING and not ended_s:
            ended_s = world.now_s
        no_problem(world, seed)

    # Each move of the clock that is not recorded as one is below a second.
    assert due_s - 1.5 <= ended_s
    assert world.settle()
    assert world.admission.state.operations[name].state is OperationState.FAILED
    assert not any(host.running for host in world.hosts.values())


@pytest.mark.parametrize("seed", seeds(6, 200))
def test_never_loses_or_doubles_a_job_when_services_agents_and_runners_restart(seed: int) -> None:
    """Restarts at any moment; only what truly went away with a runner is counted as lost."""
    world = a_world(seed)
    for _ in range(500):
        world.step()
        match world.random.randrange(60):
            case 0:
                world.restart_allocator()
            case 1:
                world.restart_admission()
            case 2:
                world.restart_agent(world.random.choice(list(NODES)))
            case 3 if seed % 2:
                world.kill_runner(world.random.choice(list(NODES)))
        no_problem(world, seed)

    settled = world.settle()

    no_problem(world, seed)
    assert settled, {name: o.state for name, o in world.admission.state.operations.items()}
    counts = world.admission.state.operations["operation-a"].ledger.counts  # type: ignore[index]
    assert counts[JobResult.COMPLETED] == 12


@pytest.mark.parametrize("seed", seeds(3, 80))
def test_an_aborted_operation_ends_and_leaves_nothing_running(seed: int) -> None:
    """Whatever was on its way when the abort came."""
    world = a_world(seed)
    for number in range(300):
        world.step()
        if number == 100 + seed:
            world.abort("operation-a")
        no_problem(world, seed)

    settled = world.settle()

    no_problem(world, seed)
    assert settled
    assert world.admission.state.operations["operation-a"].state in (  # type: ignore[index]
        OperationState.ABORTED,
        OperationState.COMPLETED,
    )
    assert not any(host.running for host in world.hosts.values())


@pytest.mark.parametrize("seed", seeds(3, 80))
def test_a_suspended_operation_whose_jobs_are_to_end_leaves_nothing_running_and_completes_when_it_goes_on(
    seed: int,
) -> None:
    """Restarts of admission and allocator in between change nothing."""
    world = a_world(seed)
    for _ in range(100 + seed):
        world.step()
    operation = world.admission.state.operations["operation-a"]  # type: ignore[index]
    if operation.state is OperationState.COMPLETED:
        return
    world.suspend("operation-a", abort_running_jobs=True)
    for number in range(500):
        world.step()
        if number == 20 and seed % 2:
            world.restart_allocator()
        if number == 40 and seed % 3:
            world.restart_admission()
        no_problem(world, seed)
    world.faults = False
    for _ in range(500):
        world.step()

    assert not any(host.running for host in world.hosts.values())
    operation = world.admission.state.operations["operation-a"]  # type: ignore[index]
    if operation.state is not OperationState.COMPLETED:
        world.resume("operation-a")
    assert world.settle()
    no_problem(world, seed)


@pytest.mark.parametrize("seed", seeds(4, 50))
def test_never_do_two_operations_run_in_a_pool_for_one_though_everything_restarts(seed: int) -> None:
    """The truth on the hosts is judged: jobs of the next start when the last of the one before are over."""
    world = World(
        Random(seed), NODES, TreeRules(pools={PoolName("research"): PoolRules(max_running_operation_count=1)})
    )
    names = [f"operation-{letter}" for letter in "abc"]
    for name in names:
        world.start(name, jobs=4)
    order: list[str] = []
    for number in range(1_500):
        world.step()
        match world.random.randrange(150):
            case 0:
                world.restart_allocator()
            case 1:
                world.restart_admission()
        if number == 60 and seed % 2:
            world.abort("operation-b")
        for name in sorted({key.operation for host in world.hosts.values() for key in host.running}):
            if name not in order:
                order.append(name)
        no_problem(world, seed)
        assert world.admission.check() == []
        running = [o.id for o in world.admission.state.live.values() if o.state is not OperationState.PENDING]
        assert len(running) <= 1

    assert world.settle()
    assert order == [name for name in names if name in order]
