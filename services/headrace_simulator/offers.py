"""The nodes that are asked for a heartbeat because a job may start there, where quiet times are skipped. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final

from headrace.ids import NodeName
from headrace_allocator.facts.nodes import Node

__all__ = ["Offers"]


class Offers:
    """A round of such nodes. A node is left out if nothing was placed on an equal one: a saturated cluster has many equal nodes."""

    def __init__(self, nodes: Mapping[NodeName, Node]) -> None:
        """`nodes` are the nodes that the allocator knows."""
        self._nodes: Final = nodes
        self._left: deque[NodeName] = deque()
        self._barren: set[Hashable] = set()
        #: The node that was asked last, with its shape and what was placed on it then.
        self._asked: tuple[Node, Hashable, int] | None = None

    def begin(self, least_cpu: int) -> None:
        """Begin a round: all nodes with held places, or with room for a job of this many thousandths of a core."""
        self._asked = None
        self._barren.clear()
        self._left.clear()
        least = max(1, least_cpu)
        for name, node in self._nodes.items():
            if node.holds or node.total.cpu >= node.used.cpu + least:
                self._left.append(name)

    def next(self) -> NodeName | None:
        """Return the next node to ask, None at the end of the round. What was placed on the node before it must be known by now."""
        if self._asked is not None:
            node, shape, placed = self._asked
            if _placed(node) != placed:
                # Other jobs may come next in the order now.
                self._barren.clear()
            elif shape is not None:
                self._barren.add(shape)
        self._asked = None
        while self._left:
            name = self._left.popleft()
            node = self._nodes[name]
            shape = _shape(node)
            if shape not in self._barren:
                self._asked = node, shape, _placed(node)
                return name
        return None


def _placed(node: Node) -> int:
    return len(node.allocations) + len(node.holds)


def _shape(node: Node) -> Hashable:
    """Return what decides whether a job may start on a node; None for a node that is equal to no other one."""
    if node.holds or node.reserved is not None:
        return None
    return node.free, node.state, tuple(node.record.tags)
