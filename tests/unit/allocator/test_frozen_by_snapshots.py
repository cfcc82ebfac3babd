"""Between two snapshots of shares: the set of operations, and the cluster that shares are parts of, are those of the last one."""

from __future__ import annotations

import msgspec

from headrace.ids import ROOT_POOL, NodeName, OperationId, PoolName
from headrace.pools.amounts import PartialResources
from headrace.resources import RESOURCE_NAMES, Resources
from headrace.wire.heartbeat import Orders
from headrace.wire.log import OperationPlaced
from headrace.wire.placements import TreePlacement
from headrace.wire.snapshots import DetailedShare, ElementKind, ShareItem
from headrace_allocator.decision.least_satisfied import satisfaction
from headrace_allocator.effects import NudgeNode
from headrace_allocator.facts.pool_tree import ShareSnapshot
from tests.support.allocating import TREE, Desk, a_share, an_operation, cores
from tests.unit.allocator.test_engine import running


def names(orders: Orders) -> list[str]:
    return [start.operation for start in orders.start]


def test_nothing_of_an_operation_starts_before_a_snapshot_names_it() -> None:
    """Its pool may be as new as it is: nobody knows yet what limits it, and on which nodes its jobs may run."""
    desk = Desk({"n1": cores(3, slots=9)})
    desk.engine.on_operations([an_operation("op", jobs=9)], desk.now)
    desk.refresh()
    early, _ = desk.beat("n1")
    told = desk.reasons("op")

    limits = ShareItem(ElementKind.POOL, "p", ROOT_POOL, limits=PartialResources(cpu=100))
    effects = desk.tell([limits, a_share("op", 1.0)])
    orders, _ = desk.beat("n1")

    assert early.start == []
    assert told == ["fair_share has not reported a share of the operation in its pool yet; the next snapshot does"]
    assert (names(orders), effects) == (["op"], [NudgeNode(NodeName("n1"))])


def test_nothing_of_an_operation_starts_in_another_pool_before_a_snapshot_names_it_there() -> None:
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("op", jobs=9))
    desk.learn(OperationPlaced(OperationId("op"), TreePlacement(TREE, PoolName("new"), 1)))
    early, _ = desk.beat("n1")

    desk.tell([ShareItem(ElementKind.POOL, "new", ROOT_POOL), a_share("op", 1.0)])
    orders, _ = desk.beat("n1")

    assert (early.start, names(orders)) == ([], ["op"])


def half_of(name: str, resource: str) -> ShareItem:
    """Wants all of one resource and is owed half of it, beside all slots."""
    fair = tuple({"user_slots": 1.0, resource: 0.5}.get(each, 0.0) for each in RESOURCE_NAMES)
    demand = tuple({"user_slots": 1.0, resource: 1.0}.get(each, 0.0) for each in RESOURCE_NAMES)
    share = msgspec.structs.replace(a_share(name, 0.0), fair_share=DetailedShare(total=fair))  # type: ignore[arg-type]
    return msgspec.structs.replace(share, demand_share=demand, dominant_resource=resource)


def test_usage_is_held_against_the_cluster_of_the_snapshot_though_nodes_have_less_by_now() -> None:
    """Three of four cores that it is owed, and one of two gpus: the gpu comes first. By the gpus that are left it had its share."""
    desk = Desk({"n1": Resources(9, 300, 1), "n2": Resources(9, 500, 3)}, most_starts=1)
    sizes = {"gpu": Resources(1, 0, 1), "cpu": Resources(1, 300)}
    desk.start(*(an_operation(name, size=size) for name, size in sizes.items()))
    desk.beat("n2", trouble="no log folder")
    desk.tell([half_of(name, name) for name in sizes])
    first, _ = desk.beat("n1")
    second, _ = desk.beat("n1", allocations=[running(first.start[0])])
    assert {*names(first), *names(second)} == {"gpu", "cpu"}

    desk.nodes["n2"] = Resources(9, 500, 1)
    desk.beat("n2", trouble="no log folder")
    desk.refresh()
    orders, _ = desk.beat("n2")

    assert names(orders) == ["gpu"]


def test_a_snapshot_of_another_cluster_gives_all_a_place_by_it_though_their_shares_are_the_same() -> None:
    desk = Desk({"n1": cores(8, slots=9)})
    desk.start(an_operation("op", jobs=2))
    item = a_share("op", 0.5)
    desk.tell([item])
    desk.beat("n1")

    cut = ShareSnapshot({"op": item}, [], total=cores(16, slots=9), options=desk.options)
    desk.engine.on_shares(cut, desk.now)
    desk.refresh()

    operation = desk.operation("op")
    assert satisfaction(operation, operation.held) == 2 / 8
    assert operation.most_held == cores(15, slots=8)
