"""Shapes of nodes: they follow every change of a node, and nobody walks over all nodes for them."""

from __future__ import annotations

from random import Random

import pytest

from headrace.ids import NodeName, OperationId
from headrace.pools import TreeOptions
from headrace.pools.node_filter import matches
from headrace.resources import Resources
from headrace.wire.explanations import ExplainWaiting
from headrace.wire.heartbeat import AllocationReport, AllocationState, NodeState
from headrace.wire.nodes import NodeRecord
from headrace_allocator.facts.node_shapes import TagSets
from headrace_allocator.facts.nodes import Node
from tests.support.allocating import Desk, an_operation, cores


def test_an_operation_fits_where_any_node_of_its_tags_is_large_enough() -> None:
    """The sizes of many nodes, each with more of something, are compared by the largest."""
    desk = Desk({f"n{cpu}": cores(cpu, slots=10 - cpu) for cpu in range(1, 10)})
    for cpu in range(1, 10):
        desk.beat(f"n{cpu}")

    fits = {(c, s): desk.facts.shapes.may_fit(cores(c, slots=s), ()) for c in range(1, 11) for s in range(1, 11)}
    assert fits == {(c, s): c + s <= 10 for c in range(1, 11) for s in range(1, 11)}
    assert not desk.facts.shapes.may_fit(cores(1), ("ssd",))


@pytest.mark.parametrize("seed", range(10))
def test_the_nodes_that_match_are_those_whose_tags_match_one_by_one(seed: int) -> None:
    """Tags come and go, so that their numbers are given anew."""
    random = Random(seed)
    desk = Desk({f"n{number}": cores(2) for number in range(20)})
    desk.engine.check = list  # type: ignore[method-assign]  # at the end is enough
    for _ in range(100):
        name = NodeName(random.choice(list(desk.nodes)))
        tags = random.sample(["a", "b", "c", f"host-{name}"], random.randint(0, 3))
        desk.engine.on_nodes({name: NodeRecord(name, tags=tags)}, desk.now)
        desk.nodes[name] = cores(random.randint(1, 3))
        desk.beat(name)
        accepting = [node for node in desk.facts.nodes.values() if node.accepts_jobs]
        for formula in ("a", "a & !b", "!(a | b) & c", f"host-{name} | b"):
            filters = (formula, "!c")[: random.randint(0, 2)]
            nodes = [node for node in accepting if all(matches(each, node.record.tags) for each in filters)]
            shapes = desk.facts.shapes
            fits = [node for node in nodes if node.total.dominates(cores(2))]
            assert (shapes.count(filters), shapes.count(filters, cores(2))) == (len(nodes), len(fits))
            if nodes:
                most, largest, total = shapes.largest(filters)
                assert most == total == desk.facts.nodes[largest].total == max((one.total for one in nodes), key=cpu)
            assert shapes.may_fit(cores(2), filters) == bool(fits)
            assert set(desk.facts.rooms.fitting(cores(2), filters)) == set(fits)


def cpu(amount: Resources) -> int:
    return amount.cpu


def test_tags_that_no_node_has_any_more_are_forgotten() -> None:
    known = TagSets()
    for number in range(9):
        known.enter(number, ("ssd", f"host-{number}"))
    for number in range(9):
        known.leave(number, ("ssd", f"host-{number}"))

    assert vars(known) == vars(TagSets())


def test_what_fits_only_on_a_node_that_is_drained_for_a_while_asks_for_its_room_again() -> None:
    """The node was never empty, so that its room stayed and nobody looked: the operation was owed nothing for good."""
    desk = Desk({"small": cores(1), "large": cores(8, slots=2)})
    desk.start(an_operation("runs", 1), an_operation("waits", 5, cores(4)))
    desk.share(runs=0.5)
    desk.beat("small")
    started = desk.beat("large")[0].start
    shown = [AllocationReport(one.allocation, one.operation, AllocationState.RUNNING, one.resources) for one in started]

    def asked(*, drained: bool) -> int:
        large = NodeRecord(NodeName("large"), drained=drained)
        desk.engine.on_nodes({large.node: large}, desk.now)
        desk.beat("large", allocations=shown)
        desk.refresh()
        (item,) = (item for item in desk.cut_usage().items if item.operation == "waits")
        return item.pending.cpu

    assert shown
    assert asked(drained=True) == 0
    assert asked(drained=False) > 0


@pytest.mark.parametrize("seed", range(10))
def test_shapes_follow_whatever_happens_to_nodes(seed: int) -> None:
    """Random changes of nodes, after each of which the engine checks itself."""
    random = Random(seed)
    desk = Desk({f"n{number}": cores(2) for number in range(6)})
    desk.start(an_operation("a", 5, cores(4)))
    for _ in range(40):
        name = random.choice(list(desk.nodes))
        tags, drained = random.choice([[], ["ssd"]]), random.random() < 0.2
        record = NodeRecord(NodeName(name), tags=tags, drained=drained)
        change = random.randrange(5)
        if change == 0:
            desk.engine.on_nodes({NodeName(name): record}, desk.now)
        elif change == 1:
            desk.engine.on_nodes({NodeName(name): None}, desk.now)
        elif change == 2:
            desk.engine.on_options(TreeOptions(node_filter=random.choice(["", "ssd", "!ssd"])), desk.now)
        elif change == 3:
            desk.tick(desk.now_s + random.choice([1, 70]))
        elif NodeName(name) in desk.facts.nodes:
            desk.nodes[name] = cores(random.choice([2, 8]))
            desk.beat(name, state=random.choice([NodeState.OPEN, NodeState.OPEN, NodeState.DRAINING]))
        desk.refresh()
        accepting = [node for node in desk.facts.nodes.values() if node.accepts_jobs]
        assert len(desk.facts.shapes) == len(accepting)
        large = [node for node in accepting if node.total.dominates(cores(4))]
        assert desk.facts.shapes.may_fit(cores(4), ()) == (bool(large) or not accepting)
        assert desk.engine.check() == []


def test_neither_a_change_of_one_node_nor_a_question_looks_at_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk({f"n{number}": cores(2) for number in range(200)})
    for name in desk.nodes:
        desk.beat(name)
    desk.start(an_operation("a", 5, cores(4)))
    desk.share(a=1.0)
    looks = 0
    accepts_jobs = vars(Node)["accepts_jobs"]

    def counted(node: Node) -> bool:
        nonlocal looks
        looks += 1
        return bool(accepts_jobs.fget(node))

    monkeypatch.setattr(desk.engine, "check", list)
    monkeypatch.setattr(Node, "accepts_jobs", property(counted))
    desk.nodes["n7"] = cores(8)
    desk.beat("n7")
    desk.refresh()
    desk.engine.on_question(ExplainWaiting(OperationId("a")), desk.now)

    assert desk.operation("a").fits_somewhere
    assert looks < 20
