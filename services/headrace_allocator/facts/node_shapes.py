"""Shapes of nodes. A shape is a set of tags with a size; nodes with the same tags and the same size have one shape.

Shapes are numbered, and a set of shapes is an integer with one bit per shape. So a formula over tags is evaluated for all shapes at once,
and sizes are compared in one table. In the worst case each node has a shape of its own.

Invariant (`check`): each node that accepts jobs is listed with its tags and size, and no other node is listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.ids import NodeName
from headrace.pools.node_filter import parse_formula
from headrace.resources import ZERO, Resources
from headrace_allocator.facts.nodes import Node

TagSet = tuple[str, ...]
Shape = tuple[TagSet, Resources]
#: Nodes of one shape.
Nodes = dict[NodeName, Node]
#: Number that stands for no bound. It is larger than the number of jobs on any node.
_UNBOUNDED: Final = 1 << 31
#: Upper bound of the remembered answers of `may_fit`. Answers are used again, because the jobs of many operations have the same size.
_MOST_KEPT: Final = 512


class TagSets:
    """Numbered sets of tags. A formula is answered for all sets at once, as an array of flags by number."""

    def __init__(self) -> None:
        self._every = 0
        self._having: dict[str, int] = {}

    def enter(self, number: int, tags: TagSet) -> None:
        """Enter a set of tags under an unused number."""
        self._every |= 1 << number
        for tag in tags:
            self._having[tag] = self._having.get(tag, 0) | 1 << number

    def leave(self, number: int, tags: TagSet) -> None:
        """Remove a set of tags and its number."""
        self._every &= ~(1 << number)
        for tag in set(tags):
            self._having[tag] &= ~(1 << number)
            if not self._having[tag]:
                del self._having[tag]

    def matching(self, filters: tuple[str, ...], count: int) -> npt.NDArray[np.bool_]:
        """Return flags for the first `count` numbers: True if the tags match all filters."""
        bits = self._every
        for formula in filters:
            bits &= parse_formula(formula)(self._with, self._every)
        packed = np.frombuffer(bits.to_bytes(count // 8 + 1, "little"), np.uint8)
        return np.unpackbits(packed, count=count, bitorder="little").astype(np.bool_)

    def _with(self, tag: str) -> int:
        return self._having.get(tag, 0)


class NodeShapes:
    """The different tags and sizes of the nodes that accept jobs, each with its nodes."""

    def __init__(self) -> None:
        self._shape_of: dict[NodeName, Shape] = {}
        self._numbers: dict[Shape, int] = {}
        self._unused: list[int] = []
        self._tags = TagSets()
        #: Sizes by resource and shape number.
        self._sizes = np.zeros((5, 16), dtype=np.int64)
        #: Number of nodes by shape number.
        self._counts = np.zeros(16, dtype=np.int64)
        #: Nodes by shape number; empty for an unused number.
        self._nodes: list[Nodes] = []
        self._answers: dict[tuple[Resources, tuple[str, ...]], bool] = {}
        #: Counter that rises whenever a node is listed or removed.
        self.changes = 0

    def note(self, node: Node) -> bool:
        """Record that a node's tags or size changed, or whether it accepts jobs. Returns True if the set of shapes changed."""
        name, before = node.record.node, self._shape_of.get(node.record.node)
        shape = _shape(node)
        if shape == before:
            return False
        self.changes += 1
        was_last = before is not None and self._leave(name, before)
        is_first = shape is not None and self._enter(node, shape)
        return was_last or is_first

    def may_fit(self, size: Resources, filters: Iterable[str]) -> bool:
        """True if some node could run a job of this size if the node were empty. Also True if there is no node."""
        asked = (size, tuple(filters))
        answer = self._answers.get(asked)
        if answer is None:
            if len(self._answers) >= _MOST_KEPT:
                self._answers.clear()
            fits = self._at_least(size) & self._matching(asked[1])
            answer = self._answers[asked] = not self._shape_of or bool(fits.any())
        return answer

    def count(self, filters: tuple[str, ...], size: Resources = ZERO) -> int:
        """Return the number of nodes that accept jobs, match all filters and are at least of this size."""
        return int(self._counts[self._matching(filters) & self._at_least(size)].sum())

    def most_memory(self, size: Resources, filters: tuple[str, ...]) -> list[int]:
        """Return a list with the largest memory of any node that matches all filters and is at least of this size; an empty list if there
        is no such node.
        """
        memory = self._sizes[3, np.flatnonzero(self._matching(filters) & self._at_least(size) & (self._counts > 0))]
        return [int(memory.max())] if len(memory) else []

    def jobs_at_once(self, filters: tuple[str, ...], size: Resources, spare: Resources) -> int:
        """Return the number of jobs of this size that the nodes which match all filters could run at once if they were empty.

        No job starts on a node with fewer free resources than `spare`.
        """
        sizes = np.array(size.as_tuple())[:, None]
        left = self._sizes - np.maximum(sizes, np.array(spare.as_tuple())[:, None])
        of_each = np.where(sizes > 0, left // np.maximum(sizes, 1), np.where(left < 0, -1, _UNBOUNDED)).min(axis=0) + 1
        return int((self._counts * np.maximum(of_each, 0))[self._matching(filters)].sum())

    def sizes(self, filters: tuple[str, ...]) -> list[tuple[Resources, int]]:
        """Return the different sizes of the nodes that match all filters, each with the number of its nodes."""
        numbers = np.flatnonzero(self._matching(filters) & (self._counts > 0))
        return [(Resources(*self._sizes[:, at].tolist()), int(self._counts[at])) for at in numbers]

    def most(self, filters: tuple[str, ...]) -> Resources:
        """Return the largest amount of each resource on any node that matches all filters; zero if no node does."""
        sizes = self._sizes[:, self._matching(filters) & (self._counts > 0)]
        return Resources(*sizes.max(axis=1, initial=0).tolist())

    def largest(self, filters: tuple[str, ...]) -> tuple[Resources, NodeName, Resources]:
        """Return the largest amount of each resource on any matching node, and the name and size of the node with the most cpu."""
        numbers = np.flatnonzero(self._matching(filters))
        sizes = self._sizes[:, numbers]
        at = np.lexsort((sizes[3], sizes[1]))[-1]
        name = next(iter(self._nodes[numbers[at]]))
        return Resources(*sizes.max(axis=1).tolist()), name, Resources(*sizes[:, at].tolist())

    def __len__(self) -> int:
        """Return the number of nodes that accept jobs."""
        return len(self._shape_of)

    def check(self, node: Node) -> list[str]:
        """Return a text for each broken invariant; empty if all hold."""
        name, shape = node.record.node, _shape(node)
        number = None if shape is None else self._numbers.get(shape, -1)
        listed = number is None or (number >= 0 and self._nodes[number].get(name) is node)
        same = listed and self._shape_of.get(name) == shape
        return [] if same else [f"node {name}: it is not listed with its tags and size"]

    def _matching(self, filters: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        return self._tags.matching(filters, self._sizes.shape[1])

    def _at_least(self, size: Resources) -> npt.NDArray[np.bool_]:
        return np.asarray((self._sizes >= np.array(size.as_tuple())[:, None]).all(axis=0))

    def _enter(self, node: Node, shape: Shape) -> bool:
        """List a node. Returns True if the node is the first node of its shape."""
        self._shape_of[node.record.node] = shape
        number = self._numbers.get(shape)
        is_first = number is None
        if number is None:
            number = self._numbers[shape] = self._number()
            self._sizes[:, number] = shape[1].as_tuple()
            self._tags.enter(number, shape[0])
            self._answers.clear()
        self._nodes[number][node.record.node] = node
        self._counts[number] += 1
        return is_first

    def _leave(self, name: NodeName, shape: Shape) -> bool:
        """Remove a node from the list. Returns True if the node was the last node of its shape."""
        del self._shape_of[name]
        number = self._numbers[shape]
        del self._nodes[number][name]
        self._counts[number] -= 1
        if self._nodes[number]:
            return False
        del self._numbers[shape]
        self._unused.append(number)
        self._tags.leave(number, shape[0])
        self._answers.clear()
        return True

    def _number(self) -> int:
        """Return an unused shape number."""
        if self._unused:
            return self._unused.pop()
        number = len(self._nodes)
        self._nodes.append({})
        if number == self._sizes.shape[1]:
            self._sizes = np.pad(self._sizes, ((0, 0), (0, number)))
            self._counts = np.pad(self._counts, (0, number))
        return number


class TaggedRooms:
    """For each set of tags, the sum of the resources of the online nodes that have exactly these tags. Fair share limits elements with a
    scheduling tag filter by these sums.

    Invariant (`check`): each node is counted under its tags with all resources that the tree may use of the node.
    """

    def __init__(self) -> None:
        self.of: dict[TagSet, Resources] = {}
        #: Tags whose sum changed. The reader of the changes removes them.
        self.changed: dict[TagSet, None] = {}
        self._counted: dict[NodeName, tuple[TagSet, Resources]] = {}

    def note(self, node: Node) -> None:
        """Record that a node's tags changed, or the resources that the tree may use of the node."""
        name, now = node.record.node, _counted(node)
        before = self._counted.pop(name, None)
        if now is not None:
            self._counted[name] = now
        if now == before:
            return
        if before is not None:
            self._add(before[0], ZERO - before[1])
        if now is not None:
            self._add(*now)

    def check(self, node: Node) -> list[str]:
        """Return a text for each broken invariant; empty if all hold."""
        same = self._counted.get(node.record.node) == _counted(node)
        return [] if same else [f"node {node.record.node}: it is not counted with its tags and resources"]

    def _add(self, tags: TagSet, amount: Resources) -> None:
        self.of[tags] = self.of.get(tags, ZERO) + amount
        if self.of[tags] == ZERO:
            del self.of[tags]
        self.changed[tags] = None


def _shape(node: Node) -> tuple[TagSet, Resources] | None:
    return (tuple(node.record.tags), node.total) if node.accepts_jobs else None


def _counted(node: Node) -> tuple[TagSet, Resources] | None:
    room = node.total
    return (tuple(node.record.tags), room) if room != ZERO else None
