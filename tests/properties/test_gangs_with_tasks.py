"""Gangs whose jobs have several sizes, on random clusters against plain searches, and in a world in which everything is restarted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import pytest

from headrace.resources import Resources
from headrace.wire.heartbeat import JobResult
from headrace.wire.ledger import LiveOperation
from headrace.wire.operations import OperationState
from headrace.wire.tasks import Task
from headrace_allocator.gangs.gang import GangPhase
from tests.properties.test_gangs import NODES, Watch
from tests.support.allocating import an_operation, with_task_sizes
from tests.support.effort import seeds
from tests.support.world import World
from tests.unit.allocator.test_gangs import GANG, Fleet, a_gang

pytestmark = pytest.mark.long

#: Many slots, so that they are never scarce.
_SLOTS = 99


def sized(cpu: int, memory: int = 0) -> Resources:
    return Resources(1, cpu, 0, memory)


class Case:
    """A cluster whose nodes are partly used by other jobs, and a gang of some tasks."""

    def __init__(self, seed: int, *, multiples: bool = False) -> None:
        draw = Random(seed)
        self.draw = draw
        cpus = [100, 200, 400, 800] if multiples else [100, 200, 300, 400, 500]
        has_memory = not multiples and draw.random() < 0.5

        def amount() -> Resources:
            return sized(draw.choice(cpus), draw.randint(0, 4) * 10 if has_memory else 0)

        names = [f"n{number}" for number in range(draw.randint(1, 4))]
        self.nodes = {
            name: Resources(_SLOTS, draw.randint(1, 12) * 100, 0, draw.randint(2, 8) * 10 if has_memory else 0)
            for name in names
        }
        self.tasks = [(draw.randint(1, 3), amount()) for _ in range(draw.randint(1, 3))]
        #: By node, what another job uses there at first.
        self.used = {}
        for name, total in self.nodes.items():
            job = sized(draw.randint(0, total.cpu // 100) * 100, draw.randint(0, total.memory // 10) * 10)
            if job.cpu:
                self.used[name] = job
        self.fleet = Fleet(dict(self.nodes))
        self.fleet.tell([])
        self.others: list[LiveOperation] = []
        for name, job in self.used.items():
            self.others.append(an_operation(f"other-{name}", 1, job))
            self.fleet.start(*self.others)
            self.fleet.say(name), self.fleet.say(name)
            assert self.fleet.runs(f"other-{name}") == 1

    @property
    def jobs(self) -> list[Resources]:
        return [size for count, size in self.tasks for _ in range(count)]

    def rooms(self) -> list[Resources]:
        """What is free on each node before the gang comes."""
        return [total - self.used.get(name, sized(0)) for name, total in self.nodes.items()]

    def begin(self) -> None:
        live = a_gang(GANG, 1)
        if len(self.jobs) > 1:
            live = with_task_sizes(live, *self.tasks)
        self.fleet.start(*self.others, live)

    def pass_rounds(self, rounds: int = 4) -> None:
        fleet = self.fleet
        for _ in range(rounds):
            names = list(self.nodes)
            self.draw.shuffle(names)
            for name in names:
                fleet.say(name)
            fleet.now_s += 1
            fleet.tick(fleet.now_s)
            fleet.refresh()
            self.look()

    def look(self) -> None:
        """No node has more than fits, and all jobs of the gang are on nodes, or none, except in the round in which they start."""
        for name, there in self.fleet.shown.items():
            assert self.nodes[name].dominates(Resources.sum(one.resources for one in there.values())), name
        if self.fleet.phase() is not GangPhase.STARTING:
            assert self.fleet.runs() in (0, len(self.jobs))
        assert self.fleet.engine.check() == []

    def end_others(self) -> None:
        for name in list(self.used):
            end = self.fleet.end(name, JobResult.COMPLETED, f"other-{name}")
            self.fleet.say(name, ends=[end])
        self.used.clear()


def some_choice_fits(jobs: Sequence[Resources], rooms: Sequence[Resources]) -> bool:
    """True if any choice of nodes has enough for all jobs: tries all of them."""
    if not jobs:
        return True
    tried = set()
    for number, room in enumerate(rooms):
        if room not in tried and room.dominates(jobs[0]):
            left = [*rooms[:number], room - jobs[0], *rooms[number + 1 :]]
            if some_choice_fits(jobs[1:], left):
                return True
        tried.add(room)
    return False


def largest_first_fits(jobs: Iterable[Resources], rooms: Iterable[Resources], largest_node: Resources) -> bool:
    """True if all jobs fit one after another, the largest first, each on the node with the least free of what it needs most of."""
    whole = (largest_node.cpu, largest_node.memory)

    def parts(job: Resources) -> list[float]:
        return [n / most if most else 0.0 for n, most in zip((job.cpu, job.memory), whole, strict=True)]

    left = list(rooms)
    for job in sorted(jobs, key=lambda job: (max(parts(job)), job.cpu, job.memory), reverse=True):
        by_memory = parts(job)[1] > parts(job)[0]
        fitting = [n for n, room in enumerate(left) if room.dominates(job)]
        if not fitting:
            return False

        def free(n: int, by_memory: bool = by_memory) -> tuple[int, ...]:
            return (left[n].memory if by_memory else left[n].cpu, *left[n].as_tuple())

        chosen = min(fitting, key=free)
        left[chosen] = left[chosen] - job
    return True


#: By seed: whether the gang started at once, after the others had ended, or never.
OUTCOMES: dict[int, str] = {}


@pytest.mark.parametrize("seed", seeds(40, 5_000))
def test_a_gang_starts_if_the_largest_first_fit_and_never_if_no_choice_of_nodes_fits(seed: int) -> None:
    case = Case(seed)
    if len(case.jobs) < 2:
        return
    largest = Resources(*map(max, zip(*(size.as_tuple() for size in case.nodes.values()), strict=True)))
    case.begin()
    for outcome in ("at once", "when the others had ended"):
        rooms = case.rooms()
        case.pass_rounds()
        runs = case.fleet.runs() == len(case.jobs)
        if runs:
            assert some_choice_fits(case.jobs, rooms)
            OUTCOMES[seed] = outcome
            return
        assert not largest_first_fits(case.jobs, rooms, largest)
        case.end_others()
    OUTCOMES[seed] = "never"
    assert case.fleet.reasons(GANG)[0].startswith(f"a gang of {len(case.jobs)} jobs that cannot start")
    assert not case.fleet.operation(GANG).allocations


@pytest.mark.parametrize("seed", seeds(40, 5_000))
def test_a_gang_starts_whenever_any_choice_fits_if_each_size_is_a_multiple_of_the_next(seed: int) -> None:
    case = Case(seed, multiples=True)
    if len(case.jobs) < 2:
        return
    case.begin()
    for _ in range(2):
        rooms = case.rooms()
        case.pass_rounds()
        runs = case.fleet.runs() == len(case.jobs)
        assert runs is some_choice_fits(case.jobs, rooms)
        if runs:
            return
        case.end_others()


def test_the_random_clusters_have_gangs_that_start_at_once_later_and_never() -> None:
    if len(OUTCOMES) >= 30:
        assert len(set(OUTCOMES.values())) == 3


@pytest.mark.parametrize("seed", seeds(2, 200))
def test_all_jobs_of_all_tasks_run_or_none_though_everything_is_lost_and_restarted(seed: int) -> None:
    """The allocator is killed while it holds resources, while it orders starts, and while jobs run."""
    world = World(Random(seed), NODES)
    world.stays = 0.9
    world.start("operation-others", jobs=20)
    gangs = {"operation-gang-a": [(1, 400), (3, 100)], "operation-gang-b": [(2, 200), (3, 100)]}
    for name, tasks in gangs.items():
        told = [Task(f"task-{n}", ["true"], jobs, sized(cpu)) for n, (jobs, cpu) in enumerate(tasks)]
        world.start(name, jobs=1, is_gang=True, tasks=told)
    watch = Watch(world, {name: range(sum(jobs for jobs, _ in tasks)) for name, tasks in gangs.items()})
    for _ in range(1_500):
        world.step()
        match world.random.randrange(150):
            case 0 | 1:
                world.restart_allocator()
            case 2:
                world.restart_admission()
            case 3:
                world.restart_agent(world.random.choice(list(NODES)))
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
