"""The free room of all nodes in one table."""

from __future__ import annotations

from headrace.ids import NodeName
from headrace.pools import TreeOptions
from headrace.resources import MOST_OF_A_NODE, Resources
from headrace.wire.nodes import NodeRecord
from tests.support.allocating import Desk, cores


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
