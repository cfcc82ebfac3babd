"""The free room of all nodes as one table, to find at once those where a job may start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.ids import NodeName
from headrace.resources import LARGEST_SUM, Resources
from headrace_allocator.facts.node_shapes import Tags, TagSets
from headrace_allocator.facts.nodes import Node

#: Nodes that are entered at once, some 1 ms.
_MOST_CHANGED: Final = 500
#: The bits of half an amount.
_HALF: Final = 32
#: Filters of which the matching tags are kept.
_MOST_KEPT: Final = 512


class Rooms:
    """The free room of nodes. What changed is entered when somebody next looks, or once it is much."""

    def __init__(self) -> None:
        self._nodes: list[Node | None] = []
        self._columns: dict[NodeName, int] = {}
        self._unused: list[int] = []
        #: Amounts by resource and column; of a column that is not used less than nothing, where no job fits.
        self._free = np.full((5, 16), -1)
        #: The number of a node's tags by column, 0 where no job may start. A number that no column has may get other tags.
        self._tagged = np.zeros(16, dtype=int)
        #: By column, whether the room counts in the tree.
        self._online = np.zeros(16, dtype=bool)
        self._numbers: dict[Tags, int] = {}
        self._tags_of: list[Tags] = [()]
        self._columns_of = [0]
        self._unused_numbers: list[int] = []
        self._tags = TagSets()
        #: By filters: whether tags match, by their number. Until there are others.
        self._matching: dict[tuple[str, ...], npt.NDArray[np.bool_]] = {}
        self._changed: dict[NodeName, Node] = {}

    def note(self, node: Node) -> None:
        """The room of a node, what is used of it, its tags, or whether it accepts jobs changed."""
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
            self._tag(column, 0)
            self._online[column] = 0
            self._unused.append(column)

    def fitting(self, size: Resources, filters: tuple[str, ...] = ()) -> Iterator[Node]:
        """The nodes that accept jobs and match these filters, where a job of this size fits."""
        fits = self._admitting(filters) & (self._free >= np.array(size.as_tuple())[:, None]).all(axis=0)
        return (node for column in np.flatnonzero(fits) if (node := self._nodes[column]) is not None)

    def emptiest(self, filters: tuple[str, ...]) -> Resources:
        """The free room of the node with the most free cpu, of those that accept jobs and match these filters."""
        free = self._free[:, self._admitting(filters)]
        u, c, g, m, n = map(int, free[:, np.lexsort((free[3], free[1]))[-1]])
        return Resources(u, c, g, m, n)

    def online(self) -> Resources:
        """The free room of all online nodes together, to the last byte."""
        self._enter_changed()
        free = self._free[:, self._online]
        # In halves, since a few nodes that say they have the most the wire carries would not fit a sum.
        upper, lower = (free >> _HALF).sum(axis=1).tolist(), (free & (1 << _HALF) - 1).sum(axis=1).tolist()
        u, c, g, m, n = ((more << _HALF) + less for more, less in zip(upper, lower, strict=True))
        return Resources(u, c, g, m, n)

    def check(self, node: Node) -> list[str]:
        """Broken invariants in words, none if all hold."""
        column = self._columns.get(node.record.node)
        if node.record.node in self._changed or column is None:
            return []
        number = self._numbers.get(tuple(node.record.tags), -1) if node.accepts_jobs else 0
        tagged = int(self._tagged[column]) == number
        same = tagged and bool(self._online[column]) is node.online
        same = same and tuple(self._free[:, column].tolist()) == _entered(node.free)
        return [] if same else [f"node {node.record.node}: its free room or its tags differ from the table"]

    def _admitting(self, filters: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        """Flags that tell if jobs with these filters may start on the node of each column."""
        self._enter_changed()
        matching = self._matching.get(filters)
        if matching is None:
            if len(self._matching) >= _MOST_KEPT:
                self._matching.clear()
            matching = self._matching[filters] = self._tags.matching(filters, len(self._tags_of))
        return matching[self._tagged]

    def _number(self, node: Node) -> int:
        if not node.accepts_jobs:
            return 0
        tags = tuple(node.record.tags)
        number = self._numbers.get(tags)
        if number is None:
            number = self._unused_numbers.pop() if self._unused_numbers else len(self._tags_of)
            if number == len(self._tags_of):
                self._tags_of.append(tags)
                self._columns_of.append(0)
            self._numbers[tags], self._tags_of[number] = number, tags
            self._tags.enter(number, tags)
            self._matching.clear()
        return number

    def _tag(self, column: int, number: int) -> None:
        """Gives a column the number of its tags. Tags that no column has any more are forgotten."""
        before = int(self._tagged[column])
        self._tagged[column] = number
        self._columns_of[number] += 1
        self._columns_of[before] -= 1
        if before and not self._columns_of[before]:
            tags = self._tags_of[before]
            del self._numbers[tags]
            self._tags.leave(before, tags)
            self._unused_numbers.append(before)
            self._matching.clear()

    def _enter_changed(self) -> None:
        for changed in self._changed.values():
            column = self._column(changed)
            self._free[:, column] = _entered(changed.free)
            self._tag(column, self._number(changed))
            self._online[column] = changed.online
        self._changed.clear()

    def _column(self, node: Node) -> int:
        column = self._columns.get(node.record.node)
        if column is None:
            column = self._unused.pop() if self._unused else len(self._nodes)
            if column == len(self._nodes):
                self._nodes.append(None)
            if column == self._free.shape[1]:
                self._free = np.pad(self._free, ((0, 0), (0, column)), constant_values=-1)
                self._tagged = np.pad(self._tagged, (0, column))
                self._online = np.pad(self._online, (0, column))
            self._columns[node.record.node] = column
            self._nodes[column] = node
        return column


def _entered(free: Resources) -> tuple[int, ...]:
    """Free room as the table holds it: in 64 bits, however much more than it has is used of a node."""
    return tuple(max(amount, -LARGEST_SUM) for amount in free.as_tuple())
