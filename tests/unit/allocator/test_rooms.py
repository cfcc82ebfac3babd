"""The free room of all nodes in one table."""

from __future__ import annotations

from headrace.ids import NodeName
from headrace.pools import TreeOptions
from headrace.resources import LARGEST_SUM, Resources
from tests.support.allocating import Desk, cores


def test_the_room_of_all_online_nodes_is_exact_however_large_they_are() -> None:
    largest = Resources(3, LARGEST_SUM, 0, LARGEST_SUM - 1, 7)
    desk = Desk({f"n{number}": largest for number in range(5)} | {"silent": cores(8)})
    for number in range(5):
        desk.beat(f"n{number}")

    assert desk.facts.rooms.online() == Resources(15, 5 * LARGEST_SUM, 0, 5 * (LARGEST_SUM - 1), 35)
    desk.engine.on_nodes({NodeName("n3"): None}, desk.moment)
    desk.tick(desk.now_s + 70)
    assert desk.facts.rooms.online() == desk.facts.total - desk.facts.used
    desk.engine.on_options(TreeOptions(node_filter="ssd"), desk.moment)
    assert desk.facts.rooms.online() == Resources()
