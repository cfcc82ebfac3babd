"""The order of operations in random trees that change: each choice, and each whole decision, is that of the plain reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import msgspec
import pytest

from headrace.pools.tree_options import VictimRules
from headrace.resources import Resources
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobEnd, JobResult
from headrace.wire.ledger import LiveOperation
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.snapshots import DetailedShare, ElementKind, PreemptionPriority, SchedulingStatus, ShareItem
from headrace_allocator.decide import DueSteps, decide
from headrace_allocator.decision.view import Overlay
from headrace_allocator.decision.walk import next_in_line
from headrace_allocator.effects import Effect
from tests.reference.heartbeats.choosing import next_operation
from tests.reference.heartbeats.comparing import compare
from tests.reference.heartbeats.state import State
from tests.support.effort import seeds
from tests.support.random_orders import RandomTree

TREES = 34


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
def test_the_decision_on_a_heartbeat_sees_what_the_heartbeat_changed(seed: int) -> None:
    """The positions of operations are brought up to date once, after the decision, which must know better until then."""
    random = Random(seed)
    started = 0
    for _ in range(TREES):
        tree = RandomTree(random)
        for _ in range(4):
            report(tree, random.choice(list(tree.nodes)))
            started += len(tree.engine.answers.decided.placements)
    assert started > TREES


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


class OlderTree(RandomTree):
    """The older victim rules, by which pools are shielded and lend resources below their limits."""

    def tell(self, shares: Iterable[ShareItem], total: Resources | None = None) -> Sequence[Effect]:
        random = self.random
        self.options = msgspec.structs.replace(
            self.options,
            victim_rules=VictimRules.LEGACY,
            enable_conditional_preemption=random.random() < 0.8,
            preemption_check_starvation=random.random() < 0.5,
            preemption_check_satisfaction=random.random() < 0.5,
        )
        return super().tell(shares, total)


@pytest.mark.parametrize("kind", [RandomTree, DeepTree])
@pytest.mark.parametrize("seed", seeds(2, 100))
def test_the_walk_finds_the_operation_that_comes_first_of_all(seed: int, kind: type[RandomTree]) -> None:
    """In every stage, after any starts and preemptions on the node."""
    random = Random(seed)
    chosen = 0
    for _ in range(TREES):
        tree = kind(random)
        for step in range(3):
            for node in tree.nodes:
                overlay = tree.overlay(node)
                state = State(overlay.view)
                for passes in (False, True):
                    overlay.pass_limits(passes)
                    state.tolerant = passes
                    for priority in (None, PreemptionPriority.NORMAL, PreemptionPriority.AGGRESSIVE):
                        room = overlay.room + Resources(1, random.choice([0, 100]), 1, 2**31)
                        found = next_in_line(overlay, room, priority)
                        assert found is next_operation(state, room, priority)
                        if found is not None and not passes and overlay.room.dominates(found.spec.resources):
                            overlay.use(found, found.spec.resources, 1)
                            state.start(found, found.spec.resources, 1)
                            chosen += 1
                    preempt_some(random, overlay, state)
            report(tree, random.choice(list(tree.nodes)))
            if step == 1:
                tree.change_shares()
    assert chosen > TREES


def preempt_some(random: Random, overlay: Overlay, state: State) -> None:
    for one in overlay.view.allocations:
        operation = overlay.view.operations.get(one.operation)
        if operation is not None and random.random() < 0.2 and one not in overlay.freed:
            overlay.free(operation, one)
            state.free(one)


@pytest.mark.long
@pytest.mark.parametrize("kind", [RandomTree, DeepTree, OlderTree])
@pytest.mark.parametrize("seed", seeds(4, 120))
def test_every_step_of_a_decision_may_be_due_or_not(seed: int, kind: type[RandomTree]) -> None:
    """With fifo pools, batches, several limits, and operations that starve by chance."""
    random = Random(seed)
    started = preempted = 0
    for _ in range(TREES):
        tree = kind(random)
        for node in tree.nodes if random.random() < 0.7 else ():
            # Full of jobs, of which other operations are owed the resources then.
            report(tree, node)
            tree.change_shares()
        for step in range(3):
            for node in tree.nodes:
                overlay, due = tree.overlay(node), a_due(random)
                made = decide(overlay, due)
                compare(overlay.view, due, made)
                started += len(made.placements)
                preempted += sum(len(stage.preemptions) for stage in made.stages)
            report(tree, random.choice(list(tree.nodes)))
            if step == 1:
                tree.change_shares()
    assert started > TREES
    assert preempted > 2
