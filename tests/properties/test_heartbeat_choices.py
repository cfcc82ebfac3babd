"""Every heartbeat of random fleets is decided as the plain reference decides it, and a fault of the allocator is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import msgspec
import pytest

from headrace.pools import TreeOptions
from headrace.resources import ZERO, Resources
from headrace.wire.ledger import LiveOperation
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace_allocator import decide, heartbeat_answer
from headrace_allocator.decide import DueSteps
from headrace_allocator.decision import placing, ranking, view, walk
from headrace_allocator.decision.job_classes import ALL_CLASSES, JobClasses
from headrace_allocator.decision.least_satisfied import entry_of
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import waiting_tasks, waits_for_a_turn
from headrace_allocator.facts.pool_tree import PoolState
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.preemption import gang_victims, legacy_victims, stages
from headrace_allocator.preemption.victims import Preemption
from tests.properties.test_allocation_order import OlderTree, report
from tests.properties.test_backfill import SteadyFleet
from tests.properties.test_gangs_and_preemption import RandomGangs
from tests.properties.test_preemption import OlderRules, RandomFleet, an_operation_in
from tests.reference.heartbeats.comparing import SEEN, compare
from tests.support import random_orders
from tests.support.allocating import cores, with_task_sizes
from tests.support.effort import seeds
from tests.support.random_orders import TOTAL, RandomTree


class SparingFleet(RandomFleet):
    """Victims that are not needed stay."""

    def options_of_tree(self, random: Random) -> TreeOptions:
        return msgspec.structs.replace(super().options_of_tree(random), drop_needless_victims=True)


class ReservingFleet(RandomFleet):
    """Nodes are reserved for operations whose jobs fit on none, which many here are."""

    def options_of_tree(self, random: Random) -> TreeOptions:
        return msgspec.structs.replace(super().options_of_tree(random), node_reservation_time=60_000)

    def step(self) -> None:
        if len(self.live) < 10 and self.random.random() < 0.1:
            large = an_operation_in(self.random, f"o{len(self.live)}", self.names)
            spec = msgspec.structs.replace(large.spec, resources=cores(self.random.choice([3, 4, 5])))
            self.begin(msgspec.structs.replace(large, spec=spec), self.random.choice([5, 20]))
        super().step()
        self.engine.on_tick(self.now)


class TaskFleet(RandomFleet):
    """Most operations have jobs of two or three sizes, one of which may fit on no node."""

    def begin(self, live: LiveOperation, runs_s: float) -> None:
        random = self.random
        sizes = [live.spec.resources, *random.sample([cores(0.5), cores(1), cores(2), cores(3), cores(9)], 2)]
        tasks = [(random.choice([1, 3, 40]), size) for size in sizes]
        super().begin(live if random.random() < 0.2 else with_task_sizes(live, *tasks), runs_s)


class GangsBesideTasks(TaskFleet):
    """Some tasks of most operations form a gang."""

    def options_of_tree(self, random: Random) -> TreeOptions:
        options = super().options_of_tree(random)
        return msgspec.structs.replace(options, preempt_gangs_whole=random.random() < 0.5)

    def begin(self, live: LiveOperation, runs_s: float) -> None:
        random = self.random
        sizes = random.sample([cores(0.5), cores(1), cores(2), cores(9)], random.choice([2, 3]))
        tasks = [(random.choice([1, 2, 5]), size) for size in sizes]
        of_gang = [number for number in range(len(sizes)) if random.random() < 0.4]
        RandomFleet.begin(
            self, live if random.random() < 0.2 else with_task_sizes(live, *tasks, of_gang=of_gang), runs_s
        )

    def step(self) -> None:
        super().step()
        self.engine.on_tick(self.now)
        self.refresh()

    def is_told_again(self, record: PreemptionRecord) -> bool:
        return record.beneficiary in self.live and self.live[record.beneficiary].spec.has_gang


class OlderRulesBesideGangs(GangsBesideTasks, OlderRules):
    """The same under the older victim rules."""


def run(fleet: RandomFleet) -> None:
    for _ in range(40):
        fleet.step()
        for host in fleet.nodes:
            fleet.hear(host, answered=fleet.random.random() < 0.9)


@pytest.mark.parametrize("kind", [SparingFleet, ReservingFleet, TaskFleet, GangsBesideTasks, OlderRulesBesideGangs])
@pytest.mark.parametrize("seed", seeds(2, 150))
def test_every_heartbeat_of_a_fleet_is_decided_as_the_reference_decides_it(seed: int, kind: type[RandomFleet]) -> None:
    """With preemption, hosts that shrink, and answers that are lost."""
    before = SEEN["equal"]
    run(kind(seed))
    assert SEEN["equal"] - before > 10


def test_positions_that_are_to_be_computed_anew_are_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of the whole tree the allocator goes by the earlier positions for a while."""
    before = SEEN.copy()
    for seed in range(30):
        tree = RandomTree(Random(seed))
        with monkeypatch.context() as change:
            change.setattr(random_orders, "TOTAL", TOTAL * 2)
            change.setattr(tree, "refresh", list)
            tree.change_shares()
        for _ in range(2):
            for node in tree.nodes:
                tree.beat(node)
            tree.refresh()
    assert SEEN["out of date"] > before["out of date"]
    assert SEEN["equal"] - before["equal"] > 60


# --- faults that are planted --------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def fleets(kind: type[RandomFleet]) -> Callable[[int], None]:
    return lambda seed: run(kind(seed))


def gangs(seed: int) -> None:
    fleet = RandomGangs(seed)
    for _ in range(80):
        fleet.step()


def trees(seed: int) -> None:
    tree = RandomTree(Random(seed))
    for _ in range(4):
        for node in tree.nodes:
            report(tree, node)
        tree.change_shares()


def lending(seed: int) -> None:
    SteadyFleet(seed, limit_ms=500, runs_s=0.2).starts_after(40)


def added_without_going(overlay: Overlay, pool: PoolState) -> Resources:
    return overlay.pools.get(pool.name, ZERO)


def older_trees(seed: int) -> None:
    random = Random(seed)
    tree = OlderTree(random)
    for _ in range(4):
        for node in tree.nodes:
            report(tree, node)
            tree.change_shares()
        for node in tree.nodes:
            overlay = tree.overlay(node)
            compare(overlay.view, DueSteps(), decide.decide(overlay, DueSteps()))


def run_seeds(scenario: Callable[[int], None]) -> None:
    for seed in range(30):
        scenario(seed)


def instead(owner: Any, name: str, by: Any) -> Plant:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, by)


def the_oldest(overlay: Overlay, kept: list[Allocation]) -> Iterator[Allocation]:
    while kept and not overlay.room.dominates(ZERO):
        victim = kept.pop(0)
        overlay.free(overlay.view.operations[victim.operation], victim)
        yield victim


def one_too_many(overlay: Overlay, kept: list[Allocation]) -> Iterator[Allocation]:
    for _ in range(min(2, len(kept))):
        victim = kept.pop()
        overlay.free(overlay.view.operations[victim.operation], victim)
        yield victim


def ask_all(overlay: Overlay) -> Iterator[Preemption]:
    for one in overlay.view.allocations[:1]:
        yield Preemption(one, PreemptionReason.GRACEFUL_PREEMPTION, Group.PREEMPTIBLE)


def ties_to_the_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(*args: Any) -> Any:
        satisfied, excess, rank, arrival, name = entry_of(*args)
        return satisfied, excess, rank, -arrival, name

    for module in (ranking, view):
        monkeypatch.setattr(module, "entry_of", turned)


FAULTS: Final[dict[str, tuple[Plant, Callable[[int], None]]]] = {
    "ties go to the operation that came later": (ties_to_the_later, trees),
    "limits of pools hold nothing back": (instead(Overlay, "open", lambda *_: ALL_CLASSES), trees),
    "a reserved node goes to others": (instead(walk, "_reserved_starts", lambda *_: False), fleets(ReservingFleet)),
    "jobs of tasks start that are not ready": (
        instead(placing, "ready_tasks", lambda _, operation, **__: waiting_tasks(operation)),
        fleets(TaskFleet),
    ),
    "a gang gets resources while it waits": (
        instead(view, "_gang_may_start", lambda *_, **__: True),
        fleets(GangsBesideTasks),
    ),
    "other jobs wait for their gang": (
        instead(view, "starts_only_in_its_turn", waits_for_a_turn),
        fleets(GangsBesideTasks),
    ),
    "a reserved node is lent to any job": (
        instead(JobClasses, "ending_within", lambda *_: ALL_CLASSES),
        lending,
    ),
    "a reserved node is never lent": (instead(JobClasses, "ending_within", lambda *_: 0), lending),
    "a lent node runs several jobs one after another": (instead(placing, "borrows", lambda *_: False), lending),
    "a pending job is overlooked": (
        instead(heartbeat_answer, "why_nothing_fits", lambda *_: walk.RoomLeft.NO_JOB_FITS),
        fleets(RandomFleet),
    ),
    "a starving operation is overlooked": (
        instead(heartbeat_answer, "may_have_work", lambda *_: False),
        fleets(RandomFleet),
    ),
    "the oldest job is preempted": (instead(stages, "victims_until_it_fits", the_oldest), fleets(SparingFleet)),
    "one job too many is preempted": (instead(stages, "victims_until_it_fits", one_too_many), fleets(RandomFleet)),
    "protected jobs are preempted": (
        instead(Overlay, "group", lambda *_: Group.PREEMPTIBLE),
        fleets(RandomFleet),
    ),
    "young jobs are preempted": (instead(Allocation, "exempt_ms", lambda *_: 0), fleets(RandomFleet)),
    "shielded pools lose jobs": (instead(legacy_victims, "shield_of", lambda *_: None), fleets(OlderRules)),
    "what may be preempted counts against limits": (instead(view, "added_below", added_without_going), older_trees),
    "gangs are preempted for anything": (instead(gang_victims, "is_owed_room_of", lambda *_: True), gangs),
    "all operations are asked gracefully": (instead(decide, "asked_gracefully", ask_all), fleets(RandomFleet)),
    "an overcommitted node keeps everything": (
        instead(decide, "victims_of_overcommit", lambda *_: iter(())),
        fleets(RandomFleet),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_allocator_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, scenario = FAULTS[fault]
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="plainly: "):
        run_seeds(scenario)
