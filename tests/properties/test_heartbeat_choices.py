"""The check of whole heartbeats raises no false alarm: whatever is decided rightly in random trees and fleets is decided so plainly."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from headrace.pools import TreeOptions
from headrace.resources import ZERO
from headrace_allocator.checks.heartbeat_cases import HeartbeatCase
from headrace_allocator.checks.heartbeats import HeartbeatCheck
from headrace_allocator.decide import decide
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.preemption import stages
from tests.properties.test_allocation_order import DeepTree, a_due, report
from tests.properties.test_preemption import OlderRules, RandomFleet, an_operation_in
from tests.support.allocating import cores
from tests.support.effort import seeds
from tests.support.heartbeat_case import replay
from tests.support.preempting import Decided
from tests.support.random_orders import RandomTree


class SparingFleet(RandomFleet):
    """Victims that are not needed stay."""

    def options_of_tree(self, random: Random) -> TreeOptions:
        return msgspec.structs.replace(super().options_of_tree(random), drop_needless_victims=True)

    def judge(self, decided: Decided) -> None:
        """The plain rules of the reference spare nobody."""


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


def compared(check: HeartbeatCheck) -> float:
    """How many heartbeats were, none of which may differ."""
    assert check.take_cases() == []
    heartbeats, differing, _, wrong = (float(str(figure.value)) for figure in check.figures())
    assert (differing, wrong) == (0, 0)
    return heartbeats


@pytest.mark.parametrize("kind", [RandomFleet, OlderRules, SparingFleet, ReservingFleet])
@pytest.mark.parametrize("seed", seeds(2, 150))
def test_no_heartbeat_of_a_fleet_is_told_as_wrong(seed: int, kind: type[RandomFleet]) -> None:
    """With preemption, hosts that shrink, and answers that are lost."""
    fleet = kind(seed)
    check = fleet.engine.answers.check = HeartbeatCheck(every=1)
    for _ in range(40):
        fleet.step()
        for host in fleet.nodes:
            fleet.hear(host, answered=fleet.random.random() < 0.9)
    assert compared(check) > 10


@pytest.mark.parametrize("kind", [RandomTree, DeepTree])
@pytest.mark.parametrize("seed", seeds(2, 100))
def test_no_decision_in_a_tree_is_told_as_wrong(seed: int, kind: type[RandomTree]) -> None:
    """With fifo pools, batches, several limits, and whoever is marked to starve by chance."""
    random = Random(seed)
    check = HeartbeatCheck(every=1)
    for _ in range(12):
        tree = kind(random)
        tree.engine.answers.check = check
        for _ in range(4):
            report(tree, random.choice(list(tree.nodes)))
            if random.random() < 0.5:
                tree.change_shares()
            tree.refresh()
            for node in tree.nodes:
                due, overlay = a_due(random), tree.overlay(node)
                check.begin()
                check.compare(overlay.view, due, decide(overlay, due, check.choose))
    assert compared(check) > 90


def the_oldest(overlay: Overlay, kept: list[Allocation]) -> Iterator[Allocation]:
    """A wrong choice: it takes those first that are to be kept longest."""
    while kept and not overlay.room.dominates(ZERO):
        victim = kept.pop(0)
        overlay.free(overlay.view.operations[victim.operation], victim)
        yield victim


@pytest.mark.long
def test_a_heartbeat_that_differs_can_be_decided_again_from_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case holds all that both ways look at: in an allocator that learns no more they choose the same victims as then."""
    monkeypatch.setattr(stages, "victims_until_it_fits", the_oldest)
    replayed = 0
    for seed in range(10):
        fleet = SparingFleet(seed)
        check = fleet.engine.answers.check = HeartbeatCheck(every=1)
        for _ in range(50):
            fleet.step()
            for host in fleet.nodes:
                fleet.hear(host)
                for case in check.take_cases():
                    assert isinstance(case, HeartbeatCase)
                    case = msgspec.json.decode(msgspec.json.encode(case), type=HeartbeatCase)
                    now = replay(case)
                    assert now is not None
                    assert (now.quickly.taken, now.plainly.taken) == (case.quickly.taken, case.plainly.taken)
                    replayed += 1
    assert replayed > 10
