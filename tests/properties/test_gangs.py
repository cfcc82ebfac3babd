"""Gangs in a world of real engines in which everything is lost, repeated, late and restarted: all of their jobs run, or none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random

import pytest

from headrace.resources import Resources
from headrace.wire.heartbeat import JobResult
from headrace.wire.operations import OperationState
from tests.support.effort import seeds
from tests.support.world import World

pytestmark = pytest.mark.long

NODES = {name: Resources(user_slots=10, cpu=cpu) for name, cpu in {"small": 200, "large": 400, "other": 200}.items()}
#: So long some jobs of a gang may run without the others where half of all that is said is lost, and everything restarts.
_APART_S = 300.0


class Watch:
    """Looks, by the truth on the hosts, for how long a gang has run with jobs missing."""

    def __init__(self, world: World, gangs: Mapping[str, Collection[int]]) -> None:
        self._world = world
        #: The indexes of the jobs that start together.
        self._gangs = gangs
        self._apart_since_s: dict[str, float] = {}
        #: How often all jobs of a gang that had not completed ran at once.
        self.together = 0
        self.longest_s = 0.0

    def look(self) -> None:
        world = self._world
        for name, jobs in self._gangs.items():
            there = [key for host in world.hosts.values() for key in host.running]
            running = {key.index for key in there if key.operation == name and key.index in jobs}
            done = {index for operation, index in world.completed if operation == name and index in jobs}
            if running and len(running | done) == len(jobs):
                self.together += 1
            if not running or len(running | done) == len(jobs):
                self._apart_since_s.pop(name, None)
                continue
            since_s = self._apart_since_s.setdefault(name, world.now_s)
            self.longest_s = max(self.longest_s, world.now_s - since_s)
            assert world.now_s - since_s < _APART_S, f"{name} runs {sorted(running)} of {jobs}, {sorted(done)} are done"


def a_world(seed: int) -> tuple[World, Watch]:
    world = World(Random(seed), NODES)
    world.stays = 0.9
    world.start("operation-others", jobs=20)
    gangs = {"operation-gang-a": 5, "operation-gang-b": 7, "operation-gang-c": 6}
    for name, jobs in gangs.items():
        world.start(name, jobs=jobs, is_gang=True)
    return world, Watch(world, {name: range(jobs) for name, jobs in gangs.items()})


@pytest.mark.parametrize("seed", seeds(2, 200))
def test_all_jobs_of_a_gang_run_or_none_though_everything_is_lost_and_restarted(seed: int) -> None:
    world, watch = a_world(seed)
    for _ in range(1_500):
        world.step()
        match world.random.randrange(200):
            case 0:
                world.restart_allocator()
            case 1:
                world.restart_admission()
            case 2:
                world.restart_agent(world.random.choice(list(NODES)))
            case 3 if seed % 2:
                world.kill_runner(world.random.choice(list(NODES)))
        watch.look()
        assert world.problems == [], f"seed {seed}: {world.problems[:3]}"

    world.faults = False
    for _ in range(40_000):
        world.step()
        watch.look()
        assert world.problems == [], f"seed {seed}: {world.problems[:3]}"
        if all(each.state is OperationState.COMPLETED for each in world.admission.state.operations.values()):
            break

    for operation in world.admission.state.operations.values():
        assert operation.state is OperationState.COMPLETED, (operation.id, operation.state)
        assert operation.ledger.counts[JobResult.COMPLETED] == operation.spec.job_count
    assert watch.together
