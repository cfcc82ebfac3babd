"""Nodes that are asked for a heartbeat: those where a job fits, as many as can be used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import msgspec
import pytest

from headrace.ids import ROOT_POOL, NodeName
from headrace.pools.amounts import PartialResources
from headrace.pools.node_filter import matches
from headrace.pools.tree_options import AllocationOptions
from headrace.resources import Resources
from headrace.wire.heartbeat import JobEnd, JobResult, Start
from headrace.wire.ledger import LiveOperation
from headrace.wire.nodes import NodeRecord
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace_allocator.decision.nudging import nodes_to_nudge
from headrace_allocator.effects import Effect, NudgeNode
from headrace_allocator.facts.free_resources import FreeResources
from headrace_allocator.facts.nodes import Node
from tests.support.allocating import Desk, a_share, an_operation, cores
from tests.unit.allocator.test_learning import running


def filtered(live: LiveOperation, formula: str) -> LiveOperation:
    return msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, scheduling_tag_filter=formula))


def test_as_many_nodes_are_asked_as_the_operation_can_use() -> None:
    desk = Desk({f"n{number}": cores(number, slots=9) for number in range(1, 5)})
    for node in desk.nodes:
        desk.beat(node)
    desk.start(an_operation("a", 4, cores(2)))
    desk.share(a=0.5)

    assert [desk.node(name).nudged for name in desk.nodes] == [False, True, True, True]
    assert nodes_to_nudge(desk.operation("a"), desk.facts) == []
    desk.beat("n1")
    for name in ("n2", "n3", "n4"):
        desk.node(name).nudged = False
    assert [node.record.node for node in nodes_to_nudge(desk.operation("a"), desk.facts)] == ["n2", "n3", "n4"]


def test_nodes_with_less_room_than_the_tree_spares_are_not_asked() -> None:
    desk = Desk({"n1": cores(1, slots=9), "n2": cores(2, slots=9)})
    desk.options = AllocationOptions(min_spare_allocation_resources_on_node=PartialResources(cpu=200))
    for node in desk.nodes:
        desk.beat(node)
    desk.start(an_operation("a", 40, cores(1)))

    assert [each.node for each in desk.share(a=0.5) if isinstance(each, NudgeNode)] == ["n2"]
    assert [len(desk.beat(node)[0].start) for node in desk.nodes] == [0, 1]


def test_no_node_is_asked_while_heartbeats_wait_for_long() -> None:
    desk = Desk({"n1": cores(4, slots=9)})
    desk.beat("n1")
    desk.start(an_operation("a", 40))
    desk.engine.pace.on_load(100.0, desk.now)

    assert list(desk.share(a=0.5)) == []

    desk.engine.pace.on_load(1.0, desk.now)
    news = desk.start(an_operation("a", 40))
    assert [each.node for each in news if isinstance(each, NudgeNode)] == ["n1"]


def limited(live: LiveOperation, **limits: int) -> LiveOperation:
    return msgspec.structs.replace(
        live, spec=msgspec.structs.replace(live.spec, resource_limits=PartialResources(**limits))
    )


def nudged(effects: Sequence[Effect]) -> list[str]:
    return [each.node for each in effects if isinstance(each, NudgeNode)]


def end_of(start: Start) -> JobEnd:
    return JobEnd(start.operation, start.slots[0].index, start.slots[0].attempt, start.allocation, JobResult.COMPLETED)


def test_an_end_below_the_limit_of_its_operation_asks_another_node_where_its_own_takes_no_job() -> None:
    desk = Desk({f"n{number}": cores(4, slots=9) for number in range(1, 5)})
    for node in desk.nodes:
        desk.beat(node)
    desk.start(limited(an_operation("a", 9), user_slots=2))
    desk.share(a=0.5)
    starts = desk.beat("n1")[0].start
    for node in desk.nodes:
        desk.beat(node, allocations=[running(each) for each in starts if node == "n1"])
    desk.engine.on_nodes({NodeName("n1"): NodeRecord(NodeName("n1"), drained=True)}, desk.now)

    orders, effects = desk.beat("n1", allocations=[running(starts[0])], ends=[end_of(starts[1])])

    assert (len(starts), orders.start) == (2, [])
    assert nudged(effects) == ["n2"]


def test_an_end_below_the_limit_of_a_pool_asks_the_node_on_which_a_job_of_another_operation_fits() -> None:
    desk = Desk({f"n{number}": cores(4, slots=9) for number in range(1, 5)})
    tags = {name: NodeRecord(name, tags=["fast"] if name == "n3" else []) for name in desk.facts.nodes}
    desk.engine.on_nodes(tags, desk.now)
    for node in desk.nodes:
        desk.beat(node)
    desk.start(an_operation("a", 2), filtered(an_operation("b", 9), "fast"))
    pool = ShareItem(ElementKind.POOL, "p", ROOT_POOL, limits=PartialResources(user_slots=2))
    desk.tell([pool, a_share("a", 0.5), a_share("b", 0.5)])
    starts = desk.beat("n1")[0].start
    for node in desk.nodes:
        desk.beat(node, allocations=[running(each) for each in starts if node == "n1"])

    orders, effects = desk.beat("n1", allocations=[running(starts[0])], ends=[end_of(starts[1])])
    on_fast = desk.beat("n3")[0].start

    assert ([each.operation for each in starts], orders.start) == (["a", "a"], [])
    assert nudged(effects) == ["n3"]
    assert [each.operation for each in on_fast] == ["b"]


def test_an_end_below_a_limit_asks_no_node_if_its_own_takes_the_next_job_at_once() -> None:
    desk = Desk({f"n{number}": cores(4, slots=9) for number in range(1, 5)})
    for node in desk.nodes:
        desk.beat(node)
    desk.start(limited(an_operation("a", 9), user_slots=2))
    pool = ShareItem(ElementKind.POOL, "p", ROOT_POOL, limits=PartialResources(cpu=200))
    desk.tell([pool, a_share("a", 0.5)])
    starts = desk.beat("n1")[0].start
    for node in desk.nodes:
        desk.beat(node, allocations=[running(each) for each in starts if node == "n1"])

    orders, effects = desk.beat("n1", allocations=[running(starts[0])], ends=[end_of(starts[1])])

    assert (len(starts), len(orders.start)) == (2, 1)
    assert nudged(effects) == []


def test_where_very_many_wait_below_a_limit_few_are_looked_at_on_the_heartbeat_that_frees_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk({"n1": cores(4, slots=9), "n2": cores(1, slots=1)})
    for node in desk.nodes:
        desk.beat(node)
    waiting = [filtered(an_operation(f"w{number}", 9, cores(4)), f"tag{number}") for number in range(90)]
    desk.start(an_operation("a", 2, cores(2)), *waiting)
    pool = ShareItem(ElementKind.POOL, "p", ROOT_POOL, limits=PartialResources(cpu=400))
    desk.tell([pool, a_share("a", 0.5), *(a_share(each.operation, 0.1) for each in waiting)])
    starts = desk.beat("n1")[0].start
    desk.beat("n1", allocations=[running(each) for each in starts])
    looks: list[Resources] = []
    fitting = FreeResources.fitting

    def counted(rooms: FreeResources, size: Resources, filters: tuple[str, ...] = ()) -> Iterator[Node]:
        looks.append(size)
        return fitting(rooms, size, filters)

    monkeypatch.setattr(FreeResources, "fitting", counted)

    desk.engine.on_nodes({NodeName("n1"): NodeRecord(NodeName("n1"), drained=True)}, desk.now)
    _, effects = desk.beat("n1", ends=[end_of(each) for each in starts])

    assert [each.operation for each in starts] == ["a", "a"]
    assert nudged(effects) == []
    assert 0 < len(looks) <= 16


def test_only_nodes_that_match_the_filter_are_asked() -> None:
    desk = Desk({"n1": cores(4, slots=9), "n2": cores(4, slots=9)})
    desk.engine.on_nodes(
        {name: NodeRecord(name, tags=["fast"] if name == "n2" else []) for name in desk.facts.nodes}, desk.now
    )
    for node in desk.nodes:
        desk.beat(node)
    desk.start(filtered(an_operation("a", 40), "fast"))

    assert [each.node for each in desk.share(a=0.5) if isinstance(each, NudgeNode)] == ["n2"]


def test_an_operation_whose_filter_no_node_matches_has_no_demand_and_is_told_why() -> None:
    desk = Desk({"n1": cores(4, slots=9)})
    desk.beat("n1")
    desk.start(filtered(an_operation("a", 40), "fast"))
    desk.share(a=0.5)
    cut = desk.cut_usage()

    assert desk.reasons("a") == ["no node matches fast: 1 node that takes jobs has other tags"]
    assert [(item.pending_jobs, item.pending) for item in cut.items if item.nodes is None] == [(40, cores(0, slots=0))]

    desk.engine.on_nodes({NodeName("n1"): NodeRecord(NodeName("n1"), tags=["fast"])}, desk.now)
    desk.refresh()
    assert [item.pending != cores(0, slots=0) for item in desk.cut_usage().items if item.nodes is None] == [True]


def test_whoever_filters_by_the_name_of_a_node_is_told_that_filters_are_over_tags() -> None:
    desk = Desk({"n1": cores(4, slots=9)})
    desk.beat("n1")
    desk.start(filtered(an_operation("a", 1), "n1"))
    desk.share(a=0.5)

    hint = "n1 is the name of a node, and a filter compares tags"
    assert desk.reasons("a") == [f"no node matches n1: 1 node that takes jobs has other tags; {hint}"]


def test_always_those_nodes_where_the_job_fits_when_each_is_asked() -> None:
    random = Random(2)
    desk = Desk({f"n{number}": cores(4, slots=9) for number in range(40)})
    for name in desk.nodes:
        desk.beat(name)
    nodes, rooms = list(desk.facts.nodes.values()), FreeResources()
    kept = dict.fromkeys(nodes)
    for each in nodes:
        rooms.note(each)
    for _ in range(500):
        node = random.choice(nodes)
        node.used = cores(random.randint(0, 6), slots=random.randint(0, 12))
        node.record.tags[:] = random.choice([[], ["fast"], ["fast", "old"]])
        node.trouble = random.choice(["", "", "no disk"])
        rooms.note(node)
        kept[node] = None
        if random.random() < 0.2:
            gone = random.choice(nodes)
            rooms.forget(gone)
            kept.pop(gone, None)
        size = Resources(random.randint(0, 9), random.randint(0, 500))
        filters = random.choice([(), ("fast",), ("!fast",), ("fast", "!old")])
        asked = {
            each.record.node
            for each in kept
            if each.free.dominates(size) and each.accepts_jobs
            if all(matches(formula, each.record.tags) for formula in filters)
        }

        assert {each.record.node for each in rooms.fitting(size, filters)} == asked
        assert [words for each in kept for words in rooms.check(each)] == []
