"""The nodes in which a job fits: at any time those that a plain look at every node finds, in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ids import NodeName
from headrace.pools.node_filter import matches
from headrace.resources import Resources
from headrace.wire.nodes import NodeRecord
from headrace_allocator.facts import free_resources
from headrace_allocator.facts.free_resources import FreeResources
from headrace_allocator.facts.nodes import Node
from tests.support.allocating import cores
from tests.support.effort import few_or_many

SIZES = [cores(count, slots=slots) for count in range(5) for slots in (0, 1)] + [Resources(0, 100, 0, 4_000, 0)]
FILTERS: list[tuple[str, ...]] = [(), ("fast",), ("!fast",), ("fast", "!old"), ("rack-3",)]


class Table:
    """A table of free resources, and the nodes that it was told of."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rooms = FreeResources()
        self.nodes: dict[NodeName, Node] = {}

    def change(self, name: NodeName) -> None:
        """A node comes, changes, or goes."""
        random, node = self.random, self.nodes.get(name)
        if node is not None and random.random() < 0.2:
            self.rooms.forget(self.nodes.pop(name))
            return
        if node is None:
            node = self.nodes[name] = Node(NodeRecord(name), 0.0)
        node.set_room(cores(4, slots=4), online=True, outside=None, drained_empty=False)
        node.used = cores(random.randint(0, 5), slots=random.randint(0, 5))
        node.record.tags[:] = random.choice([[], [], ["fast"], ["fast", "old"], [f"rack-{random.randrange(9)}"]])
        node.trouble = random.choice(["", "", "", "no disk"])
        self.rooms.note(node)

    def plainly(self, size: Resources, filters: tuple[str, ...]) -> list[Node]:
        """Look at every node, in the order of the table."""
        self.rooms.online()
        return [
            node
            for node in sorted(self.nodes.values(), key=lambda each: self.rooms._columns[each.record.node])
            if node.accepts_jobs and node.free.dominates(size)
            if all(matches(formula, node.record.tags) for formula in filters)
        ]


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that the log is cut and not every size is remembered."""
    monkeypatch.setattr(free_resources, "_LEAST_LOG", 6)
    monkeypatch.setattr(free_resources, "_MOST_SIZES", 8)
    monkeypatch.setattr(free_resources, "_MOST_CHANGED", 20)


@settings(max_examples=few_or_many(60, 600), deadline=None)
@given(random=st.randoms(use_true_random=False), most=st.integers(1, 80))
def test_the_same_nodes_in_the_same_order_as_by_a_plain_look_at_every_node(random: Random, most: int) -> None:
    table = Table(random)
    for _ in range(60):
        for _ in range(random.choice([0, 0, 1, 1, 2, 12])):
            table.change(NodeName(f"n{random.randrange(most)}"))
        size, filters = random.choice(SIZES), random.choice(FILTERS)

        assert list(table.rooms.fitting(size, filters)) == table.plainly(size, filters)
        assert [words for node in table.nodes.values() for words in table.rooms.check(node)] == []


@settings(max_examples=few_or_many(20, 200), deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_a_look_that_is_not_over_does_not_see_changes_of_free_resources(random: Random) -> None:
    table = Table(random)
    for number in range(30):
        table.change(NodeName(f"n{number}"))
    expected = table.plainly(SIZES[3], ())
    begun: Iterator[Node] = table.rooms.fitting(SIZES[3])
    first = list(islice(begun, 1))
    for node in expected:
        node.used = cores(99)
        table.rooms.note(node)

    assert list(table.rooms.fitting(SIZES[3])) == []
    assert [*first, *begun] == expected
