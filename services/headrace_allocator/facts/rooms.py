"""The free room of all nodes as one table, in which nodes where a job fits are found at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from headrace.ids import NodeName
from headrace.resources import Resources
from headrace_allocator.facts.nodes import Node

__all__ = ["Rooms"]

#: Nodes that are entered at once, some 1 ms.
_MOST_CHANGED: Final = 500


class Rooms:
    """The free room of nodes. What changed is entered when somebody next looks, or once it is much."""

    def __init__(self) -> None:
        self._nodes: list[Node | None] = []
        self._columns: dict[NodeName, int] = {}
        self._unused: list[int] = []
        #: Amounts by resource and column; of a column that is not used less than nothing, where no job fits.
        self._free = np.full((5, 16), -1)
        self._changed: dict[NodeName, Node] = {}

    def note(self, node: Node) -> None:
        """The room of a node, or what is used of it, changed."""
        self._changed[node.record.node] = node
        if len(self._changed) >= _MOST_CHANGED:
            self._enter_changed()

    def forget(self, node: Node) -> None:
        """The node is no more."""
        self._changed.pop(node.record.node, None)
        column = self._columns.pop(node.record.node, None)
        if column is not None:
            self._nodes[column] = None
            self._free[:, column] = -1
            self._unused.append(column)

    def fitting(self, size: Resources) -> Iterator[Node]:
        """The nodes where a job of this size fits."""
        self._enter_changed()
        columns = np.flatnonzero((self._free >= np.array(size.as_tuple())[:, None]).all(axis=0))
        return (node for column in columns if (node := self._nodes[column]) is not None)

    def emptiest(self, is_meant: Callable[[Node], bool]) -> Resources:
        """The room of the node with the most free cpu, and memory among equals, of those that are meant."""
        self._enter_changed()
        ascending = np.lexsort((self._free[3], self._free[1]))
        used = (int(column) for column in ascending[::-1] if column < len(self._nodes))
        return next(node.free for column in used if (node := self._nodes[column]) is not None and is_meant(node))

    def check(self, node: Node) -> list[str]:
        """Broken invariants in words, none if all hold."""
        column = self._columns.get(node.record.node)
        if node.record.node in self._changed or column is None:
            return []
        same = tuple(self._free[:, column].tolist()) == node.free.as_tuple()
        return [] if same else [f"node {node.record.node}: its free room differs from the table"]

    def _enter_changed(self) -> None:
        for changed in self._changed.values():
            column = self._column(changed)
            self._free[:, column] = changed.free.as_tuple()
        self._changed.clear()

    def _column(self, node: Node) -> int:
        column = self._columns.get(node.record.node)
        if column is None:
            column = self._unused.pop() if self._unused else len(self._nodes)
            if column == len(self._nodes):
                self._nodes.append(None)
            if column == self._free.shape[1]:
                self._free = np.pad(self._free, ((0, 0), (0, column)), constant_values=-1)
            self._columns[node.record.node] = column
            self._nodes[column] = node
        return column
