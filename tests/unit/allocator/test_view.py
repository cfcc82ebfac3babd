"""The overlay: what a decision would change, thrown away without a trace."""

from __future__ import annotations

from random import Random

from headrace.ids import OperationId
from headrace.resources import ZERO
from headrace_allocator.decision.extending import extend
from headrace_allocator.decision.placing import place
from headrace_allocator.decision.view import Overlay, View
from tests.support.allocating import Desk, an_operation, cores
from tests.unit.allocator.test_engine import running
from tests.unit.allocator.test_limits import NODE, Tree, a_pool, in_pool


def a_view(desk: Desk, node: str) -> View:
    return View.of(desk.facts, desk.node(node), desk.engine.ranking.order, pace_ms=1000)


def everything(desk: Desk) -> list[object]:
    """All that a decision could have changed."""
    order = desk.engine.ranking.order
    places = {name: order.entry(name) for name in order}
    operations = [
        (each.held, each.precommit, each.slots.ready_count, each.slots.out(), list(each.allocations))
        for each in desk.facts.operations.values()
    ]
    nodes = [(node.free, list(node.allocations)) for node in desk.facts.nodes.values()]
    limits = [(limit.name, limit.used) for limit in desk.facts.pools.above(desk.operation("a").spec.pool)]
    return [places, operations, nodes, limits, desk.facts.total, desk.facts.used, set(desk.facts.touched)]


def test_a_decision_changes_nothing_before_it_is_applied_and_is_the_same_when_made_again() -> None:
    tree = Tree([a_pool("p", cpu=0.3)], an_operation("a"), an_operation("b"), in_pool(an_operation("c", 20), "q"))
    before = everything(tree)

    decisions = []
    for _ in range(3):
        overlay = Overlay(a_view(tree, "n"))
        extended, placed = extend(overlay), place(overlay)
        decisions.append((extended, placed))

    assert everything(tree) == before
    assert decisions[0] == decisions[1] == decisions[2]
    assert len(decisions[0][1]) == 10


def test_what_was_decided_is_what_is_applied() -> None:
    """Over random trees: the orders are those of a decision made beforehand, and every invariant holds behind them."""
    random = Random(3)
    for _ in range(30):
        pools = [a_pool("p", cpu=random.choice([0.2, 0.5, 1.0])), a_pool("q", cpu=random.choice([0.4, 1.0]))]
        operations = [
            in_pool(an_operation(f"o{number}", random.randint(1, 9), cores(random.choice([0.5, 1, 2]))), pool)
            for number, pool in enumerate(random.choices(["p", "q", "r"], k=8))
        ]
        tree = Tree(pools, an_operation("a"), *operations)
        decided = place(Overlay(a_view(tree, "n")))

        orders, _ = tree.beat("n")

        assert [(one.operation.id, one.jobs) for one in decided] == [
            (start.operation, len(start.slots)) for start in orders.start
        ]


def test_with_a_victim_taken_away_its_room_and_the_limits_above_it_are_free_in_the_overlay_alone() -> None:
    """Preemption looks at what would fit so, and throws the overlay away where it is not enough."""
    tree = Tree([a_pool("p", cpu=0.3), a_pool("q")], in_pool(an_operation("a", 20), "p"))
    tree.beat("n")
    victim = tree.operation("a")
    before = everything(tree)

    overlay = Overlay(a_view(tree, "n"))
    held_before, satisfied_before = overlay.held_back(victim), overlay.satisfaction(victim)
    overlay.use(victim, ZERO - cores(2, slots=2))

    assert held_before is not None
    assert overlay.held_back(victim) is None
    assert overlay.room == NODE - cores(1)
    assert overlay.satisfaction(victim) < satisfied_before
    assert everything(tree) == before


def test_jobs_that_one_allocation_is_given_are_not_given_to_the_next() -> None:
    """Two allocations that run short of jobs, and fewer jobs than both would take."""
    desk = Desk({"n": cores(2, slots=9)})
    desk.start(an_operation("a", jobs=8))
    orders, _ = desk.beat("n")
    desk.operation("a").mean_job_ms = 100.0

    orders, _ = desk.beat("n", allocations=[running(start) for start in orders.start])

    given = [slot.index for one in orders.extend for slot in one.slots]
    assert given == [2, 3, 4, 5, 6, 7]
    assert OperationId("a") not in desk.engine.ranking.order


def test_no_allocation_is_extended_by_nothing_when_more_jobs_wait_than_may_be_given_out() -> None:
    """Five allocations want 64 jobs each; 256 are drawn, so the last of them gets none, and is not told so."""
    desk = Desk({"n": cores(5, slots=9)})
    desk.start(an_operation("a", jobs=1000))
    orders, _ = desk.beat("n")
    desk.operation("a").mean_job_ms = 1.0

    orders, _ = desk.beat("n", allocations=[running(start) for start in orders.start])

    assert [len(one.slots) for one in orders.extend] == [64, 64, 64, 59]
