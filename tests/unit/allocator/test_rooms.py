"""The free room of all nodes in one table."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.ids import NodeName
from headrace.pools import TreeOptions
from headrace.resources import MOST_OF_A_NODE, Resources
from headrace.wire.nodes import NodeRecord
from headrace_allocator.facts import free_resources
from headrace_allocator.facts.free_resources import FreeResources
from headrace_allocator.facts.nodes import Node
from tests.support.allocating import Desk, cores


class Counted(FreeResources):
    """Counts the columns that look-ups compare."""

    compared = 0

    def _fits(self, columns: Any, *others: Any) -> Any:
        flags = super()._fits(columns, *others)
        self.compared += flags.size
        return flags

    def compared_by(self, size: Resources, filters: tuple[str, ...] = ()) -> int:
        before = self.compared
        list(self.fitting(size, filters))
        return self.compared - before


def told(rooms: FreeResources, count: int) -> list[Node]:
    nodes = [Node(NodeRecord(NodeName(f"n{number}")), 0.0) for number in range(count)]
    for node in nodes:
        rooms.note(node)
    return nodes


@pytest.mark.parametrize("count", [1_000, 4_000])
def test_each_change_is_compared_once_for_each_size_however_many_nodes_there_are(count: int) -> None:
    rooms = Counted()
    nodes = told(rooms, count)
    assert {rooms.compared_by(cores(1)), rooms.compared_by(cores(2), ("fast",))} == {rooms._free.shape[1]}
    for number in range(2_000):
        rooms.note(nodes[number % 700])
        assert rooms.compared_by(cores(1)) == 1
        if number % 50 == 49:
            assert rooms.compared_by(cores(2), ("fast",)) == 50
            assert rooms.compared_by(cores(2), ("fast",)) == 0

    # A size that was not looked up for long is compared with all nodes once.
    for node in nodes:
        rooms.note(node)
    assert rooms.compared_by(cores(1)) == rooms._free.shape[1]
    assert rooms.compared_by(cores(1)) == 0
    assert len(rooms._log) <= 2 * max(64, rooms._free.shape[1] // 24)


def test_sizes_that_are_looked_up_in_turn_keep_their_columns_and_old_ones_leave_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(free_resources, "_MOST_FITTING_BYTES", 3 * 1_024)
    rooms = Counted()
    nodes = told(rooms, 1_000)
    for _ in range(3):
        compared = [rooms.compared_by(cores(count)) for count in range(5)]
    assert compared == [0, 0, 0, 1_024, 1_024]

    for node in nodes:
        rooms.note(node)
        rooms.compared_by(cores(1))
    assert [rooms.compared_by(cores(count)) for count in (3, 4)] == [1_024, 1_024]
    assert [rooms.compared_by(cores(count)) for count in (3, 4, 1)] == [0, 0, 0]
    assert [rooms.compared_by(cores(count)) for count in (0, 2)] == [1_024, 1_024]


def test_the_room_of_all_online_nodes_is_exact_however_large_they_are() -> None:
    cpu, memory = MOST_OF_A_NODE.cpu, MOST_OF_A_NODE.memory
    largest = Resources(3, cpu, 0, memory - 1, 7)
    desk = Desk({f"n{number}": largest for number in range(5)} | {"silent": cores(8)})
    for number in range(5):
        desk.beat(f"n{number}")

    assert desk.facts.rooms.online() == Resources(15, 5 * cpu, 0, 5 * (memory - 1), 35)
    desk.engine.on_nodes({NodeName("n3"): None}, desk.now)
    desk.tick(desk.now_s + 70)
    assert desk.facts.rooms.online() == desk.facts.total - desk.facts.used
    desk.engine.on_options(TreeOptions(node_filter="ssd"), desk.now)
    assert desk.facts.rooms.online() == Resources()


def test_tags_that_no_node_has_any_more_leave_their_number_to_others() -> None:
    desk = Desk({"n": cores(2), "m": cores(2)})
    rooms, sizes = desk.facts.rooms, []
    for number in range(50):
        for node in desk.nodes:
            tags = [f"rack-{number % 7}-{node}", f"boot-{number}"]
            desk.engine.on_nodes({NodeName(node): NodeRecord(NodeName(node), tags=tags)}, desk.now)
            desk.beat(node)
        found = [node.record.node for node in rooms.fitting(cores(1), (f"boot-{number}",))]
        assert sorted(found) == ["m", "n"]
        sizes.append(len(rooms._tags_of))

    assert max(sizes[10:]) <= max(sizes[:10])
