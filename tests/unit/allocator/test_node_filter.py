"""The tree's node filter: which nodes have room for it."""

from __future__ import annotations

import pytest

from headrace.errors import BadInput
from headrace.ids import NodeName
from headrace.pools import TreeOptions
from headrace.wire.nodes import ListNodes, NodeRecord
from headrace_allocator.explain.answers import list_nodes
from tests.support.allocating import Desk, an_operation, cores

NODES = {"old": cores(4, slots=10), "new": cores(8, slots=10)}


class Tagged(Desk):
    """Two nodes, of which one has the tag `ssd`, and an operation of many jobs of one core."""

    def __init__(self) -> None:
        super().__init__(NODES)
        self.tag(old=[], new=["ssd"])
        self.start(an_operation("a", 100))
        self.share(a=1.0)

    def tag(self, **tags: list[str]) -> None:
        records = {NodeName(name): NodeRecord(NodeName(name), tags=each) for name, each in tags.items()}
        self.engine.on_nodes(records, self.now)

    def started(self, node: str) -> int:
        return len(self.beat(node)[0].start)

    def total(self) -> float:
        return self.facts.total.cpu / 100


def test_without_a_filter_every_node_is_the_trees() -> None:
    tree = Tagged()

    assert (tree.started("old"), tree.started("new")) == (4, 8)
    assert tree.total() == 12


def test_a_node_that_the_filter_leaves_out_gets_nothing_and_is_no_part_of_the_total() -> None:
    tree = Tagged()
    tree.engine.on_options(TreeOptions(node_filter="ssd"), tree.now)

    assert (tree.started("old"), tree.started("new")) == (0, 8)
    assert tree.total() == 8
    assert [view.state for view in list_nodes(tree.facts, ListNodes(), tree.now).nodes] == ["online", "outside"]


def test_a_filter_that_changes_lets_nodes_in_and_out_at_once_and_what_runs_stays() -> None:
    tree = Tagged()
    assert tree.started("old") == 4
    tree.engine.on_options(TreeOptions(node_filter="ssd"), tree.now)
    without = tree.total()
    held = len(tree.node("old").allocations)
    tree.engine.on_options(TreeOptions(node_filter="!ssd"), tree.now)

    assert (without, held, tree.total()) == (0, 4, 4)
    assert tree.started("new") == 0


def test_tags_that_change_count_at_once() -> None:
    tree = Tagged()
    tree.engine.on_options(TreeOptions(node_filter="ssd"), tree.now)
    tree.started("old")
    tree.tag(old=["ssd"], new=["ssd"])

    assert tree.total() == 4
    assert tree.started("old") == 4


def test_a_filter_that_is_none_is_refused_and_the_one_before_stays() -> None:
    tree = Tagged()
    tree.engine.on_options(TreeOptions(node_filter="ssd"), tree.now)
    with pytest.raises(BadInput, match="ssd & "):
        tree.engine.on_options(TreeOptions(node_filter="ssd & ", pause_starts=True), tree.now)

    assert (tree.started("old"), tree.started("new")) == (0, 8)


def test_why_an_operation_waits_says_that_nodes_are_left_out() -> None:
    tree = Tagged()
    tree.beat("old")
    tree.beat("new")
    tree.engine.on_options(TreeOptions(node_filter="gpu"), tree.now)

    assert tree.reasons("a")[0] == "no node takes jobs (old outside, new outside)"
