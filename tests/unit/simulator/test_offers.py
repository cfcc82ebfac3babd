"""Which nodes are asked for a heartbeat: each that may start a job, and one of those that are equal while nothing is placed there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import AllocationId, NodeName, OperationId, TreeName
from headrace.resources import Resources
from headrace.wire.nodes import NodeRecord
from headrace_allocator.facts.nodes import Node
from headrace_simulator.offers import Offers, WaitingJobs
from headrace_simulator.outages import outages_of


def a_node(name: str, free: int, tags: tuple[str, ...] = ()) -> Node:
    node = Node(NodeRecord(NodeName(name), TreeName("default"), list(tags)), 0.0)
    node.total = Resources(user_slots=100, cpu=free)
    return node


def asked(nodes: dict[NodeName, Node], least: int, placed_on: set[str]) -> list[str]:
    """The nodes that are asked, where jobs are placed on some of them."""
    offers, found = Offers(nodes), list[str]()
    offers.begin(least)
    while (name := offers.next()) is not None:
        found.append(name)
        if name in placed_on:
            nodes[name].allocations[AllocationId(name)] = object()  # type: ignore[assignment]
    return found


def named(*nodes: Node) -> dict[NodeName, Node]:
    return {node.record.node: node for node in nodes}


def test_one_of_equal_nodes_is_asked_until_something_is_placed() -> None:
    def nodes() -> dict[NodeName, Node]:
        return named(
            a_node("a", 400),
            a_node("b", 400),
            a_node("full", 50),
            a_node("c", 400, ("ssd",)),
            a_node("d", 200),
            a_node("e", 400),
        )

    assert asked(nodes(), 100, set()) == ["a", "c", "d"]
    assert asked(nodes(), 100, {"d"}) == ["a", "c", "d", "e"]
    assert asked(nodes(), 100, {"a", "b", "e"}) == ["a", "b", "c", "d", "e"]
    assert asked(nodes(), 0, set()) == ["a", "full", "c", "d"]


def test_a_node_with_held_places_is_always_asked() -> None:
    nodes = named(a_node("a", 0), a_node("b", 0))
    for node in nodes.values():
        node.holds[AllocationId("held")] = object()  # type: ignore[assignment]

    assert asked(nodes, 100, set()) == ["a", "b"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3), st.integers(-3, 3), st.booleans())))
def test_jobs_that_wait_are_counted_by_their_operations(changes: list[tuple[int, int, int, bool]]) -> None:
    waiting, plain = WaitingJobs(), dict[int, tuple[int, int]]()
    for operation, cpu, more, drops in changes:
        if drops:
            waiting.drop(OperationId(str(operation)))
            plain.pop(operation, None)
            continue
        waiting.change(OperationId(str(operation)), cpu, more)
        count = plain.pop(operation, (0, 0))[0] + more
        if count > 0:
            plain[operation] = (count, cpu)
        assert bool(waiting) == bool(plain)
        if plain:
            assert waiting.least_cpu == min(size for _, size in plain.values())


def test_failures_come_in_order_with_the_mean_that_was_asked_for_and_no_node_fails_while_it_is_away() -> None:
    outages = outages_of([NodeName(str(number)) for number in range(10)], 5_000, 100_000, 7_000, seed=1)
    found = [next(outages) for _ in range(5_000)]

    assert [each.at_ms for each in found] == sorted(each.at_ms for each in found)
    last = dict.fromkeys((each.node for each in found), 5_000)
    gaps_ms = []
    for each in found:
        gaps_ms.append(each.at_ms - last[each.node])
        assert gaps_ms[-1] > 0
        assert each.until_ms == each.at_ms + 7_000
        last[each.node] = each.until_ms
    assert 95_000 < sum(gaps_ms) / len(gaps_ms) < 105_000
