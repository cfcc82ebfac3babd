"""Gangs beside other tasks of their operations, in a world in which everything is lost, repeated, late and restarted."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headrace.resources import Resources
from headrace.wire.heartbeat import JobResult
from headrace.wire.operations import OperationState
from headrace.wire.tasks import Task
from tests.properties.test_gangs import NODES, Watch
from tests.support.effort import seeds
from tests.support.world import World

pytestmark = pytest.mark.long

#: By operation: number and cores of the jobs of each task, and whether they belong to the gang.
OPERATIONS = {
    "operation-a": [(6, 100, False), (3, 100, True), (1, 400, True)],
    "operation-b": [(2, 200, True), (8, 100, False)],
    "operation-c": [(3, 100, True), (2, 200, False), (2, 100, True)],
}


def a_world(seed: int) -> World:
    world = World(Random(seed), NODES)
    world.stays = 0.9
    world.start("operation-others", jobs=10)
    world.start("operation-gang", jobs=4, is_gang=True)
    for name, tasks in OPERATIONS.items():
        told = [
            Task(f"task-{n}", ["true"], jobs, Resources(1, cpu), is_gang=is_gang)
            for n, (jobs, cpu, is_gang) in enumerate(tasks)
        ]
        world.start(name, jobs=1, tasks=told)
    return world


class Sight(Watch):
    """Looks at the gangs, and at the jobs beside them."""

    def __init__(self, world: World) -> None:
        self.gangs: dict[str, set[int]] = {"operation-gang": set(range(4))}
        for name, tasks in OPERATIONS.items():
            flags = [is_gang for jobs, _, is_gang in tasks for _ in range(jobs)]
            self.gangs[name] = {index for index, is_gang in enumerate(flags) if is_gang}
        super().__init__(world, self.gangs)
        #: How often other jobs of an operation ran while its gang did not.
        self.apart = 0

    def look(self) -> None:
        super().look()
        for name in OPERATIONS:
            there = [key for host in self._world.hosts.values() for key in host.running if key.operation == name]
            self.apart += bool(there) and not any(key.index in self.gangs[name] for key in there)


def something_happens(world: World, seed: int) -> None:
    names = list(OPERATIONS)
    match world.random.randrange(240):
        case 0 | 1:
            world.restart_allocator()
        case 2:
            world.restart_admission()
        case 3:
            world.restart_agent(world.random.choice(list(NODES)))
        case 4 if seed % 2:
            world.kill_runner(world.random.choice(list(NODES)))
        case 5 if seed % 3 == 0:
            world.suspend(world.random.choice(names), abort_running_jobs=world.random.random() < 0.5)
        case 6 | 7 if seed % 3 == 0:
            for name in names:
                world.resume(name)


@pytest.mark.parametrize("seed", seeds(3, 200))
def test_the_jobs_of_a_gang_run_together_and_the_jobs_beside_it_go_on(seed: int) -> None:
    world = a_world(seed)
    sight = Sight(world)
    for _ in range(1_500):
        world.step()
        something_happens(world, seed)
        sight.look()
        assert world.problems == [], f"seed {seed}: {world.problems[:3]}"

    world.faults = False
    for name in OPERATIONS:
        world.resume(name)
    for _ in range(40_000):
        world.step()
        sight.look()
        assert world.problems == [], f"seed {seed}: {world.problems[:3]}"
        if all(each.state is OperationState.COMPLETED for each in world.admission.state.operations.values()):
            break

    for operation in world.admission.state.operations.values():
        assert operation.state is OperationState.COMPLETED, (operation.id, operation.state)
        assert operation.ledger.counts[JobResult.COMPLETED] == operation.spec.job_count
    assert sight.together
    assert sight.apart
    if seed % 3:
        for name, number in (("operation-a", 0), ("operation-b", 1), ("operation-c", 1)):
            ends: Any = world.admission.state.operations[name].ledger.task_ends[number].counts  # type: ignore[index]
            assert not ends.get(JobResult.ABORTED), f"jobs beside the gang of {name} were taken back"
