"""The jobs that wait, and the nodes that are asked for a heartbeat because one of them may start there. Pure.

Used where quiet times are skipped, in which nodes send no heartbeats by themselves.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Mapping
from typing import Final

from headrace.ids import NodeName, OperationId
from headrace_allocator.facts.nodes import Node

__all__ = ["Offers", "WaitingJobs"]

#: Free slots above this number make no difference between nodes.
_MANY_SLOTS: Final = 64


class WaitingJobs:
    """The number of jobs that wait, of each operation that has any."""

    def __init__(self) -> None:
        self._of: dict[OperationId, tuple[int, int]] = {}
        #: Number of operations that wait, by the cores of their smallest job.
        self._sizes: Counter[int] = Counter()

    def __bool__(self) -> bool:
        return bool(self._of)

    @property
    def least_cpu(self) -> int:
        """The size of the smallest job that waits, in hundredths of a core."""
        return min(self._sizes)

    def change(self, operation: OperationId, cpu: int, more: int) -> None:
        """Count further jobs of an operation, or fewer if `more` is below 0."""
        count, _ = self._of.get(operation, (0, cpu))
        self.drop(operation)
        if count + more > 0:
            self._of[operation] = count + more, cpu
            self._sizes[cpu] += 1

    def drop(self, operation: OperationId) -> None:
        """Forget an operation."""
        known = self._of.pop(operation, None)
        if known is not None:
            self._sizes[known[1]] -= 1
            if not self._sizes[known[1]]:
                del self._sizes[known[1]]


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
        """Begin a round: all nodes with held places, or with room for a job of this many hundredths of a core."""
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
    free = node.free
    slots = min(free.user_slots, _MANY_SLOTS)
    return slots, free.cpu, free.memory, free.gpu, free.network, node.state, tuple(node.record.tags)
