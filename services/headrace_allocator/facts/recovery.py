"""Recovering: from the start of an allocator until every node that counted then has reported, or lost its lease.

A node has reported once a heartbeat shows that it obeyed this allocator's term: only that is surely no late word of before.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.ids import NodeName
from headrace.wire.snapshots import Recovering

__all__ = ["Recovery"]


class Recovery:
    """The nodes whose word is missing."""

    def __init__(self) -> None:
        self.operations_known = False
        self.nodes_known = False
        self.done = False
        #: Nodes that lost their lease without a word, so that nobody knows what they ran.
        self.lost_nodes: list[NodeName] = []
        self._enrolled = 0
        self._unheard: set[NodeName] = set()

    def begin(self, enrolled: Iterable[NodeName]) -> None:
        """Starts to wait for the nodes that are enrolled and not drained. Only the first call counts."""
        if not self.nodes_known:
            self._unheard = set(enrolled)
            self._enrolled = len(self._unheard)
            self.nodes_known = True

    def awaits(self, node: NodeName) -> bool:
        """True while this node's word is missing."""
        return node in self._unheard

    def settle(self, node: NodeName, *, lost: bool) -> None:
        """A node reported in full, or lost its lease."""
        if node in self._unheard:
            self._unheard.discard(node)
            if lost:
                self.lost_nodes.append(node)

    def finish(self) -> bool:
        """True once: at the moment when recovering is over."""
        if self.done or not (self.operations_known and self.nodes_known) or self._unheard:
            return False
        self.done = True
        return True

    def progress(self) -> Recovering:
        """Counts the awaited nodes that have reported."""
        return Recovering(heard=self._enrolled - len(self._unheard), enrolled=self._enrolled)
