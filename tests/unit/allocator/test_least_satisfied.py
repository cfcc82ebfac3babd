"""The scheduling order and satisfaction."""

from __future__ import annotations

import msgspec
import pytest

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.effective_options import EffectiveOptions
from headrace.pools.pool_config import FifoPoolSchedulingOrder
from headrace.pools.tree_options import AllocationOptions
from headrace.satisfaction import INFINITE_SATISFACTION, local_satisfaction
from headrace.wire.heartbeat import AllocationReport, AllocationState, TakeBackReason
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace_allocator.decision.placing import place
from headrace_allocator.decision.view import Overlay, View
from tests.support.allocating import Desk, a_share, an_operation, cores
from tests.unit.allocator.test_engine import running
from tests.unit.allocator.test_limits import in_pool

NONE = (0.0,) * 5


@pytest.mark.parametrize(
    ("usage", "fair", "demand", "expected"),
    [
        ((0.1, 0.1, 0, 0, 0), NONE, (1, 1, 0, 0, 0), INFINITE_SATISFACTION),
        ((0.1, 0.2, 0, 0, 0), (0.1, 0.4, 0, 0, 0), (0.2, 0.8, 0, 0, 0), 1.0),
        ((0.1, 0.2, 0, 0, 0), (0.2, 0.4, 0, 0, 0), (0.4, 0.8, 0, 0, 0), 0.5),
        # Some usage over its share: the largest ratio, and over nothing at all it is infinite.
        ((0.1, 0.6, 0, 0, 0), (0.2, 0.4, 0, 0, 0), (0.4, 0.8, 0, 0, 0), 1.5),
        ((0.1, 0.1, 0.1, 0, 0), (0.2, 0.4, 0, 0, 0), (0.4, 0.8, 0.2, 0, 0), INFINITE_SATISFACTION),
        # Everything that it asks for is owed to it: the smallest ratio.
        ((0.1, 0.1, 0, 0, 0), (0.2, 0.4, 0, 0, 0), (0.2, 0.4, 0, 0, 0), 0.25),
        # A resource whose demand is covered does not count beside one that is not.
        ((0.2, 0.1, 0, 0, 0), (0.2, 0.4, 0, 0, 0), (0.2, 0.8, 0, 0, 0), 0.25),
    ],
)
def test_satisfaction_is_usage_over_fair_share_by_the_resource_that_tells(
    usage: tuple[float, ...], fair: tuple[float, ...], demand: tuple[float, ...], expected: float
) -> None:
    assert local_satisfaction(usage, fair, demand) == pytest.approx(expected)  # type: ignore[arg-type]


def a_tree(options: EffectiveOptions, *pools: tuple[str, float, float]) -> Desk:
    """A node of four cores, and pools that are owed a share of the cpu and may use another."""
    desk = Desk({"n": cores(4, slots=90)})
    desk.beat("n")
    items = []
    for rank, (name, cpu, limit) in enumerate(pools):
        share = a_share(name, cpu)
        limits = PartialResources(cpu=round(limit * 400)) if limit < 1 else NOTHING
        item = ShareItem(ElementKind.POOL, name, ROOT_POOL, share.fair_share, demand_share=share.demand_share)
        items.append(msgspec.structs.replace(item, options=options, limits=limits, rank=rank))
    desk.tell(items, total=cores(4, slots=90))
    return desk


def names(desk: Desk) -> list[str]:
    return [start.operation for start in desk.beat("n")[0].start]


BY_POOL = EffectiveOptions(use_pool_satisfaction_for_scheduling=True)
BY_LEAF = EffectiveOptions()


@pytest.mark.parametrize(
    ("options", "expected"), [(BY_POOL, ["big"] * 3 + ["s0"]), (BY_LEAF, ["s0", "s1", "s2", "s3"])]
)
def test_many_small_operations_against_one(options: EffectiveOptions, expected: list[str]) -> None:
    """By the best leaf whoever has no job comes first, and there is always one; by pools three of four cores are delivered."""
    desk = a_tree(options, ("many", 0.25, 1), ("one", 0.75, 1))
    small = [in_pool(an_operation(f"s{number}", 1), "many") for number in range(60)]
    desk.start(*small, in_pool(an_operation("big", 60), "one"))
    desk.tell([*(a_share(each.operation, 0.25 / 60) for each in small)])
    # It has had a job, so that its satisfaction is above zero.
    desk.share(big=0.75)
    started: list[str]
    if options is BY_LEAF:
        desk.operation("big").held = cores(0.01)
        desk.engine.ranking.refresh(desk.operation("big"))
        order = desk.engine.ranking.order
        overlay = Overlay(View.of(desk.facts, desk.node("n"), order, pace_ms=1000))
        started = [str(each.operation.id) for each in place(overlay)]
    else:
        started = names(desk)

    assert sorted(started) == sorted(expected)


def test_on_a_tie_the_pool_comes_first_that_is_owed_more() -> None:
    desk = a_tree(BY_POOL, ("little", 0.1, 1), ("much", 0.9, 1))
    desk.start(in_pool(an_operation("a"), "little"), in_pool(an_operation("b"), "much"))
    desk.share(a=0.1, b=0.9)

    assert names(desk)[0] == "b"


def test_on_a_tie_of_operations_the_one_comes_first_that_is_owed_more_then_the_lower_rank() -> None:
    desk = a_tree(BY_POOL, ("p", 1.0, 1))
    desk.start(*(an_operation(name, 1) for name in ("a", "b", "c")))
    shares = [("a", 0.1, 2), ("b", 0.1, 1), ("c", 0.2, 3)]
    desk.tell([msgspec.structs.replace(a_share(name, cpu), rank=rank) for name, cpu, rank in shares])

    assert names(desk) == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("order", "expected"), [("fifo", ["a", "a", "a", "a"]), ("satisfaction", ["a", "a", "b", "b"])]
)
def test_a_fifo_pool_gives_room_in_its_order_where_the_option_says_so(order: str, expected: list[str]) -> None:
    options = EffectiveOptions(fifo_pool_scheduling_order=FifoPoolSchedulingOrder(order))
    desk = a_tree(options, ("p", 1.0, 1))
    desk.start(an_operation("b"), an_operation("a"))
    shares = [("a", 1), ("b", 2)]
    desk.tell([msgspec.structs.replace(a_share(name, 0.5), rank=rank, fifo_index=rank) for name, rank in shares])

    assert sorted(names(desk)) == expected


def test_another_fifo_order_of_a_pool_places_its_operations_anew() -> None:
    desk = a_tree(BY_LEAF, ("p", 1.0, 1))
    desk.start(an_operation("b"), an_operation("a"))
    desk.tell([msgspec.structs.replace(a_share(name, 0.5), rank=n, fifo_index=n) for n, name in enumerate("ab")])
    pool = desk.facts.pools.pools[PoolName("p")]
    options = EffectiveOptions(fifo_pool_scheduling_order=FifoPoolSchedulingOrder.FIFO)
    desk.tell([msgspec.structs.replace(pool, options=options)], total=cores(4, slots=90))

    assert names(desk) == ["a"] * 4


def test_a_pool_at_its_limit_is_out_of_the_way_and_back_when_it_has_room() -> None:
    desk = a_tree(BY_POOL, ("p", 0.9, 0.5), ("q", 0.1, 1))
    desk.start(an_operation("a", 20), in_pool(an_operation("b", 20), "q"))
    desk.share(a=0.9, b=0.1)

    assert sorted(names(desk)) == ["a", "a", "b", "b"]
    order = desk.engine.ranking.order
    order.settle()
    assert [entry[-1] for entry in order.root.children] == ["q"]
    assert OperationId("a") in order

    desk.facts.pools.use(PoolName("p"), cores(0) - cores(1))
    order.settle()
    assert [entry[-1] for entry in order.root.children] == ["p", "q"]


def test_nothing_starts_on_a_node_with_less_room_than_is_to_be_spared() -> None:
    desk = Desk({"n": cores(4, slots=90)})
    desk.options = AllocationOptions(min_spare_allocation_resources_on_node=PartialResources(cpu=300))
    desk.start(an_operation("a", 20))
    desk.tell([a_share("a", 1.0)], total=cores(4, slots=90))

    assert len(names(desk)) == 2


def test_jobs_go_only_to_nodes_whose_tags_match_the_filter_of_their_operation() -> None:
    desk = Desk({"n": cores(4, slots=90), "fast": cores(4, slots=90)})
    desk.node("fast").record.tags.append("fast")
    live = an_operation("a", 20)
    desk.start(msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, scheduling_tag_filter="fast")))
    desk.share(a=1.0)

    assert [len(desk.beat(node)[0].start) for node in ("n", "fast")] == [0, 4]


def test_a_pool_that_has_its_share_is_named_as_the_reason_why_its_operations_wait() -> None:
    desk = a_tree(BY_POOL, ("p", 0.5, 1), ("q", 0.5, 1))
    desk.start(an_operation("a", 20), an_operation("b", 20))
    desk.share(a=0.25, b=0.25)
    assert sorted(names(desk)) == ["a", "a", "b", "b"]
    behind = "its pool p has 2.00 times its fair share; pools below their fair share go first"
    assert behind not in desk.reasons("a"), "no pool is below its share"

    desk.start(an_operation("a", 20), an_operation("b", 20), in_pool(an_operation("c", 20), "q"))
    desk.share(a=0.25, b=0.25, c=0.5)

    assert desk.reasons("a")[-1] == behind


def test_a_place_is_given_back_for_a_pool_that_has_less_though_its_operation_has_not_too_much() -> None:
    """The operation has its share, since nothing else runs in the pool, and the pool has twice its own."""
    desk = a_tree(BY_POOL, ("p", 0.5, 1), ("q", 0.5, 1))
    desk.start(an_operation("a", 200))
    desk.share(a=1.0)
    orders, _ = desk.beat("n")
    desk.operation("a").mean_job_ms = 100.0
    orders, _ = desk.beat("n", allocations=[running(start) for start in orders.start])
    assert len(orders.extend) == 4
    desk.start(an_operation("a", 200), in_pool(an_operation("b", 200), "q"))
    desk.share(a=1.0, b=0.5)

    reports = [
        AllocationReport(
            each.id, each.operation, AllocationState.RUNNING, each.resources, each.job, list(each.slots.values())[1:]
        )
        for each in desk.node("n").allocations.values()
    ]
    orders, _ = desk.beat("n", allocations=reports)

    assert [one.reason for one in orders.take_back] == [TakeBackReason.GIVEN_BACK] * 4


def test_a_place_is_given_back_within_a_pool_at_its_limit() -> None:
    desk = a_tree(BY_POOL, ("p", 1.0, 0.5))
    desk.start(an_operation("a", 200))
    desk.share(a=0.25)
    orders, _ = desk.beat("n")
    assert len(orders.start) == 2
    desk.operation("a").mean_job_ms = 100.0
    orders, _ = desk.beat("n", allocations=[running(start) for start in orders.start])
    desk.start(an_operation("a", 200), an_operation("b", 200))
    desk.share(a=0.25, b=0.25)

    reports = [
        AllocationReport(
            each.id, each.operation, AllocationState.RUNNING, each.resources, each.job, list(each.slots.values())[1:]
        )
        for each in desk.node("n").allocations.values()
    ]
    orders, _ = desk.beat("n", allocations=reports)

    assert TakeBackReason.GIVEN_BACK in [one.reason for one in orders.take_back]
