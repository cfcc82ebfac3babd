"""The free resources of all nodes in one table, to find at once the nodes where a job may start.

A look-up does not examine all nodes. The table remembers, for each size and filters that were looked up lately, in which columns such a job
fits, and keeps a log of the columns that changed. A look-up compares only the columns that changed since the last look-up of the same size
and filters. So each change is compared at most once for each remembered size, however many nodes there are.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.ids import NodeName
from headrace.resources import LARGEST_SUM, Resources
from headrace_allocator.facts.node_shapes import TagSet, TagSets
from headrace_allocator.facts.nodes import Node

#: Number of changed nodes from which on the changes are entered into the table without waiting for a lookup; entering this number takes
#: some 1 ms.
_MOST_CHANGED: Final = 500
#: Number of bits in the lower half of an amount.
_HALF: Final = 32
#: Upper bound of the filters whose matching tags are remembered.
_MOST_KEPT: Final = 512
#: Upper bound of the bytes of the remembered columns of all sizes together; each size takes one byte for each column.
_MOST_FITTING_BYTES: Final = 16 * 1024 * 1024
#: Upper bound of the sizes whose fitting columns are remembered.
_MOST_SIZES: Final = 1_024
#: Least number of changes that the log of changed columns keeps.
_LEAST_LOG: Final = 64
#: The log keeps at least one change for this number of columns. A size that was looked up before the oldest change of the log is compared
#: with all columns, which then takes less time: comparing a column picked by its number takes 10 to 20 times as long.
_COLUMNS_OF_A_CHANGE: Final = 24


class _Fitting:
    """The columns in which a job of one size fits, as of the last look-up."""

    __slots__ = ("flags", "seen")

    def __init__(self, flags: npt.NDArray[np.bool_], seen: int) -> None:
        #: By column, True if the job fits.
        self.flags = flags
        #: Number of changes in the log up to the last look-up.
        self.seen = seen


class FreeResources:
    """The free resources of nodes. Changes are collected, and entered into the table before the next lookup or once there are many."""

    def __init__(self) -> None:
        self._nodes: list[Node | None] = []
        self._columns: dict[NodeName, int] = {}
        self._unused: list[int] = []
        #: Free amounts by resource and column. An unused column has negative amounts, so that no job fits there.
        self._free = np.full((5, 16), -1)
        #: By column, the number that stands for the tags of the node; 0 if the node accepts no jobs. Numbers that no column uses are
        #: reused.
        self._tagged = np.zeros(16, dtype=int)
        #: True if the node of the column is online, so that its resources count in the tree.
        self._online = np.zeros(16, dtype=bool)
        self._numbers: dict[TagSet, int] = {}
        self._tags_of: list[TagSet] = [()]
        self._columns_of = [0]
        self._unused_numbers: list[int] = []
        self._tags = TagSets()
        #: By filters, one flag for each numbered set of tags: True if the tags match all filters. Cleared when a number is given to other
        #: tags.
        self._matching: dict[tuple[str, ...], npt.NDArray[np.bool_]] = {}
        self._changed: dict[NodeName, Node] = {}
        #: By size and filters. The entry that was looked up longest ago is first.
        self._fitting: OrderedDict[tuple[Resources, tuple[str, ...]], _Fitting] = OrderedDict()
        #: The last changed columns in the order of their changes, and the number of changes before them.
        self._log = array("q")
        self._dropped = 0

    def note(self, node: Node) -> None:
        """Record that a node's resources, its usage, its tags or whether it accepts jobs changed."""
        self._changed[node.record.node] = node
        if len(self._changed) >= _MOST_CHANGED:
            self._enter_changed()

    def forget(self, node: Node) -> None:
        """Remove a node from the table."""
        self._changed.pop(node.record.node, None)
        column = self._columns.pop(node.record.node, None)
        if column is not None:
            self._nodes[column] = None
            self._free[:, column] = -1
            self._tag(column, 0)
            self._online[column] = 0
            # The column need not be in the log: a column without a node is skipped, and is logged once another node takes it.
            self._unused.append(column)

    def fitting(self, size: Resources, filters: tuple[str, ...] = ()) -> Iterator[Node]:
        """Return the nodes that accept jobs, match all filters and have free resources for a job of this size, in the order of columns."""
        self._enter_changed()
        # The copy stays as it is if another look-up follows before the last node is taken.
        return self._nodes_in(self._flags(size, filters).tobytes())

    def emptiest(self, filters: tuple[str, ...]) -> Resources:
        """Return the free resources of the node with the most free cpu, among the nodes that accept jobs and match all filters."""
        free = self._free[:, self._admitting(filters)]
        u, c, g, m, n = map(int, free[:, np.lexsort((free[3], free[1]))[-1]])
        return Resources(u, c, g, m, n)

    def online(self) -> Resources:
        """Return the exact sum of the free resources of all online nodes."""
        self._enter_changed()
        free = self._free[:, self._online]
        # The upper and the lower 32 bits of the amounts are summed separately. A plain 64-bit sum would overflow if a few nodes reported
        # the largest amounts that a message can carry.
        upper, lower = (free >> _HALF).sum(axis=1).tolist(), (free & (1 << _HALF) - 1).sum(axis=1).tolist()
        u, c, g, m, n = ((more << _HALF) + less for more, less in zip(upper, lower, strict=True))
        return Resources(u, c, g, m, n)

    def check(self, node: Node) -> list[str]:
        """Return a text for each broken invariant; empty if all hold."""
        column = self._columns.get(node.record.node)
        if node.record.node in self._changed or column is None:
            return []
        number = self._numbers.get(tuple(node.record.tags), -1) if node.accepts_jobs else 0
        tagged = int(self._tagged[column]) == number
        same = tagged and bool(self._online[column]) is node.online
        same = same and tuple(self._free[:, column].tolist()) == _entered(node.free)
        return [] if same else [f"node {node.record.node}: its free resources or its tags differ from the table"]

    def _flags(self, size: Resources, filters: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        """Return a flag for each column: True if a job of this size with these filters fits there."""
        asked, changes, columns = (size, filters), self._dropped + len(self._log), self._free.shape[1]
        known = self._fitting.get(asked)
        if known is None or known.seen < self._dropped or known.flags.size < columns:
            flags = self._fits(slice(None), size, filters)
            if known is not None or self._may_remember_one_more():
                self._fitting[asked] = _Fitting(flags, changes)
                self._fitting.move_to_end(asked)
            return flags
        if known.seen < changes:
            changed = np.array(self._log[known.seen - self._dropped :])
            known.flags[changed] = self._fits(changed, size, filters)
            known.seen = changes
        self._fitting.move_to_end(asked)
        return known.flags

    def _may_remember_one_more(self) -> bool:
        """Return True if the columns of one more size may be remembered. For this an entry is dropped if it is too old to be of use.

        Entries that are of use stay. If the entry looked up longest ago were dropped in any case, no entry would be found again as soon as
        a few more sizes than fit are looked up in turn.
        """
        if len(self._fitting) < min(_MOST_SIZES, _MOST_FITTING_BYTES // self._free.shape[1]):
            return True
        oldest = next(iter(self._fitting), None)
        if oldest is None or self._fitting[oldest].seen >= self._dropped:
            return False
        del self._fitting[oldest]
        return True

    def _fits(
        self, columns: npt.NDArray[np.int_] | slice, size: Resources, filters: tuple[str, ...]
    ) -> npt.NDArray[np.bool_]:
        """Return a flag for each of these columns: True if a job of this size with these filters fits there."""
        needed = np.array(size.as_tuple())[:, None]
        has_room = (self._free[:, columns] >= needed).all(axis=0)
        return np.asarray(self._matches(filters)[self._tagged[columns]] & has_room)

    def _nodes_in(self, flags: bytes) -> Iterator[Node]:
        column = flags.find(1)
        while column >= 0:
            node = self._nodes[column]
            if node is not None:
                yield node
            column = flags.find(1, column + 1)

    def _admitting(self, filters: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        """Return a flag for each column: True if jobs with these filters may start on the node of the column."""
        self._enter_changed()
        return self._matches(filters)[self._tagged]

    def _matches(self, filters: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        """Return a flag for each number that stands for tags: True if nodes with these tags match all filters."""
        matching = self._matching.get(filters)
        if matching is None:
            if len(self._matching) >= _MOST_KEPT:
                self._matching.clear()
            matching = self._matching[filters] = self._tags.matching(filters, len(self._tags_of))
        return matching

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
        """Set the number that stands for the tags of a column. A set of tags that no column has any more is forgotten."""
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
            self._log.append(column)
        self._changed.clear()
        most = max(_LEAST_LOG, self._free.shape[1] // _COLUMNS_OF_A_CHANGE)
        if len(self._log) > 2 * most:
            self._dropped += len(self._log) - most
            del self._log[:-most]

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
    """Return free resources as the table stores them: bounded to 64 bits, however much a node is overcommitted."""
    return tuple(max(amount, -LARGEST_SUM) for amount in free.as_tuple())
