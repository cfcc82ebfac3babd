"""The quick order decides exactly as the plain loop over all operations: 2,000 heartbeats in random trees that change."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from headrace.resources import Resources
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobEnd, JobResult
from headrace.wire.ledger import LiveOperation
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.snapshots import DetailedShare, ElementKind, PreemptionPriority, SchedulingStatus, ShareItem
from headrace_allocator.decide import DueSteps, HeartbeatDecision, decide
from headrace_allocator.decision.extending import extend
from headrace_allocator.decision.placing import Choice, Placement, place, start_regularly
from headrace_allocator.decision.plain_loop import next_in_line_plainly
from headrace_allocator.decision.view import Overlay
from headrace_allocator.decision.walk import next_in_line
from headrace_allocator.preemption.repairs import asked_gracefully
from tests.reference.choosing import may_come_next
from tests.reference.preemption import Judgement, judge
from tests.support.effort import seeds
from tests.support.random_orders import RandomTree

TREES = 34


def started(placed: list[Placement]) -> list[tuple[str, int]]:
    return [(one.operation.id, one.jobs) for one in placed]


def decisions(tree: RandomTree, node: str, choose: Choice, seed: int) -> list[list[tuple[str, int]]]:
    """What starts on a node: in its free room, with some victims taken away, and in each preemptive stage with some room more."""
    plain = tree.overlay(node)
    found = [started(start_regularly(plain, choose))]
    cut = tree.overlay(node)
    tree.random.seed(seed)
    tree.take_victims(cut)
    for priority in (PreemptionPriority.AGGRESSIVE, PreemptionPriority.NORMAL):
        discount = Resources(1, tree.random.choice([0, 100]), 1, tree.random.choice([0, 2**32]))
        found.append(started(place(cut, priority, discount=discount, most=1, choose=choose)))
    found.append(started(place(cut, choose=choose)))
    return found


def decided(tree: RandomTree, node: str, due: DueSteps, choose: Choice) -> HeartbeatDecision:
    """All that is decided on a heartbeat of the node: extensions, starts, preemptive stages, overcommit."""
    return decide(tree.overlay(node), due, choose)


def a_due(random: Random) -> DueSteps:
    return DueSteps(
        extend=random.random() < 0.9,
        start=random.random() < 0.9,
        preempt=random.random() < 0.9,
        preemptive_stages=random.random() < 0.8,
        repair_overcommit=random.random() < 0.3,
    )


def report(tree: RandomTree, node: str) -> None:
    """A heartbeat of the node, on which some jobs ended."""
    reports, ends = [], []
    for each in list(tree.node(node).allocations.values()):
        state = AllocationState.RUNNING
        if tree.random.random() < 0.4:
            state = AllocationState.ENDED
            ends += [
                JobEnd(
                    each.operation, slot.index, slot.attempt, each.id, JobResult.COMPLETED,
                    started_at_ms=1, ended_at_ms=1 + tree.random.choice([300, 1_500, 100_000]),
                )
                for slot in each.slots.values()
            ]  # fmt: skip
        unstarted = [] if ends and state is AllocationState.ENDED else list(each.slots.values())
        reports.append(AllocationReport(each.id, each.operation, state, each.resources, unstarted=unstarted))
    tree.beat(node, allocations=reports, ends=ends)


@pytest.mark.parametrize("seed", seeds(5, 30))
def test_the_decision_on_a_heartbeat_sees_what_the_heartbeat_changed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The places of operations are brought up to date once, after the decision, which must know better until then."""
    random = Random(seed)
    compared = 0

    def compare(overlay: Overlay, due: DueSteps, choose: Choice) -> HeartbeatDecision:
        nonlocal compared
        quick = started(place(Overlay(overlay.view)))
        assert quick == started(place(Overlay(overlay.view), choose=next_in_line_plainly))
        everything = msgspec.structs.replace(overlay.view, restless=overlay.view.allocations)
        assert extend(Overlay(overlay.view)) == extend(Overlay(everything))
        assert list(asked_gracefully(Overlay(overlay.view))) == list(asked_gracefully(Overlay(everything)))
        compared += len(quick)
        return decide(overlay, due, choose)

    monkeypatch.setattr("headrace_allocator.heartbeat_answer.decide", compare)
    for _ in range(TREES):
        tree = RandomTree(random)
        for _ in range(4):
            report(tree, random.choice(list(tree.nodes)))
    assert compared > TREES


class DeepTree(RandomTree):
    """Pools up to four levels deep, graceful and suspended operations, and demands that are nearly covered."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.depth = 4

    def an_operation(self, name: str) -> LiveOperation:
        live = super().an_operation(name)
        mode = self.random.choice([PreemptionMode.NORMAL] * 4 + [PreemptionMode.GRACEFUL])
        spec = msgspec.structs.replace(live.spec, preemption_mode=mode)
        return msgspec.structs.replace(live, spec=spec, suspended=self.random.random() < 0.1)

    def an_item(self, kind: ElementKind, name: str, parent: str) -> ShareItem:
        item = super().an_item(kind, name, parent)
        fair, random = item.fair_share.total, self.random
        nearly = tuple(share * random.choice([1.0, 1.0, 1.2]) for share in fair)
        schedulable = random.random() < 0.9
        return msgspec.structs.replace(
            item,
            # Without any it stands too far back in its fifo pool.
            fair_share=item.fair_share if schedulable or random.random() < 0.3 else DetailedShare(),
            demand_share=nearly if random.random() < 0.3 else item.demand_share,
            schedulable=schedulable,
            scheduling_status=random.choice(list(SchedulingStatus)),
        )


@pytest.mark.parametrize("seed", seeds(2, 100))
def test_always_whoever_comes_next_by_the_specification(seed: int) -> None:
    random = Random(seed)
    chosen = 0
    for _ in range(TREES):
        tree = DeepTree(random)
        for step in range(3):
            for node in tree.nodes:
                overlay = tree.overlay(node)
                for passes in (False, True):
                    overlay.pass_limits(passes)
                    for priority in (None, PreemptionPriority.NORMAL, PreemptionPriority.AGGRESSIVE):
                        room = overlay.room + Resources(1, random.choice([0, 100]), 1, 2**31)
                        found = next_in_line(overlay, room, priority)
                        expected = may_come_next(overlay, room, priority)
                        assert expected == set() if found is None else found.id in expected
                        if found is not None and not passes and overlay.room.dominates(found.spec.resources):
                            overlay.use(found, found.spec.resources, 1)
                            chosen += 1
            tree.beat(random.choice(list(tree.nodes)))
            if step == 1:
                tree.change_shares()
    assert chosen > TREES


@pytest.mark.parametrize("seed", seeds(10, 120))
def test_always_whoever_would_be_chosen_by_looking_at_every_operation(seed: int) -> None:
    random = Random(seed)
    chosen = preempted = 0
    for _ in range(TREES):
        tree = RandomTree(random)
        for node in tree.nodes if random.random() < 0.7 else ():
            # Full of jobs, of which others are owed the room then.
            report(tree, node)
            tree.change_shares()
        for step in range(3):
            for node in tree.nodes:
                at = random.randrange(2**32)
                quick = decisions(tree, node, next_in_line, at)
                assert quick == decisions(tree, node, next_in_line_plainly, at)
                chosen += sum(map(len, quick))
                due = a_due(random)
                made = decided(tree, node, due, next_in_line)
                assert made == decided(tree, node, due, next_in_line_plainly)
                judge(Judgement.before(tree.overlay(node).view), due, made)
                preempted += sum(len(stage.preemptions) for stage in made.stages)
            report(tree, random.choice(list(tree.nodes)))
            if step == 1:
                tree.change_shares()
    assert chosen > TREES
    assert preempted > 2
