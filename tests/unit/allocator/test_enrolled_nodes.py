"""The bucket of nodes, read entry by entry: while ten thousand nodes enrol none is read again for each of the others."""

from __future__ import annotations

import msgspec

from headrace.bus import Entry
from headrace.ids import NodeName, TreeName
from headrace.wire.nodes import NodeRecord
from headrace_allocator.links.enrolled_nodes import EnrolledNodes
from tests.support.tree_services import TREE

N1, N2 = NodeName("n1"), NodeName("n2")


class CountingBorder:
    """Counts what it is told of."""

    def __init__(self) -> None:
        self.malformed: list[str] = []

    def report_malformed(self, _sender: str, subject: str, _defect: str) -> None:
        self.malformed.append(subject)


def entries(*records: NodeRecord) -> dict[str, Entry]:
    return {record.node: Entry(record.node, msgspec.json.encode(record), 1) for record in records}


def enrolled_nodes() -> EnrolledNodes:
    return EnrolledNodes(TREE, CountingBorder())  # type: ignore[arg-type]


def test_only_the_entries_that_changed_are_read() -> None:
    nodes = enrolled_nodes()
    nodes.read(bucket := entries(NodeRecord(N1), NodeRecord(N2)), bucket.keys())
    drained = NodeRecord(N1, drained=True)
    unreadable = Entry(N2, b"", 1)

    assert nodes.read({**entries(drained), N2: unreadable}, [N1]) == {N1: drained}
    assert nodes.records == {N1: drained, N2: NodeRecord(N2)}


def test_a_node_that_is_removed_or_goes_to_another_tree_is_in_this_one_no_more() -> None:
    nodes = enrolled_nodes()
    nodes.read(bucket := entries(NodeRecord(N1), NodeRecord(N2)), bucket.keys())

    moved = entries(NodeRecord(N2, TreeName("other")))
    assert nodes.read(moved, [N1, N2]) == {N1: None, N2: None}
    assert nodes.read(moved, [N1, N2]) == {}


def test_an_entry_that_cannot_be_read_is_reported_and_its_node_is_in_no_tree() -> None:
    endpoints = CountingBorder()
    nodes = EnrolledNodes(TREE, endpoints)  # type: ignore[arg-type]
    nodes.read(bucket := entries(NodeRecord(N1)), bucket.keys())

    assert nodes.read({N1: Entry(N1, b"{", 2)}, [N1]) == {N1: None}
    assert endpoints.malformed == [N1]
