"""The shapes of nodes: which tags and sizes there are, and which nodes are alike.

Whether some node could ever run a job is known from the largest sizes alone, and questions about all nodes are answered from the shapes.
Invariant (`check`): each node that accepts jobs is listed with its tags and size, and no other is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from headrace.ids import NodeName
from headrace.pools.node_filter import matches
from headrace.resources import ZERO, Resources
from headrace_allocator.facts.nodes import Node

Tags = tuple[str, ...]
#: Nodes of one shape.
Nodes = dict[NodeName, Node]
#: Answers that are kept. There are few sizes of jobs, which are asked for again with each operation.
_MOST_KEPT: Final = 512


class NodeShapes:
    """The different tags and sizes of nodes that accept jobs, each with its nodes."""

    def __init__(self) -> None:
        self._shape_of: dict[NodeName, tuple[Tags, Resources]] = {}
        self._nodes: dict[Tags, dict[Resources, Nodes]] = {}
        #: The sizes of nodes with these tags, without those that have no more of anything than another.
        self._largest: dict[Tags, list[Resources]] = {}
        self._answers: dict[tuple[Resources, tuple[str, ...]], bool] = {}

    def note(self, node: Node) -> None:
        """The tags or the size of a node changed, or whether it accepts jobs."""
        name, before = node.record.node, self._shape_of.get(node.record.node)
        shape = _shape(node)
        if shape == before:
            return
        if before is not None:
            self._leave(name, *before)
        if shape is not None:
            self._enter(node, *shape)

    def may_fit(self, size: Resources, filters: Iterable[str]) -> bool:
        """True if some node could run a job of this size, were the node empty. Without any node nothing is known."""
        asked = (size, tuple(filters))
        answer = self._answers.get(asked)
        if answer is None:
            if len(self._answers) >= _MOST_KEPT:
                self._answers.clear()
            answer = self._answers[asked] = not self._nodes or any(
                any(largest.dominates(size) for largest in self._largest_with(tags))
                for tags in self._nodes
                if matching_tags(tags, asked[1])
            )
        return answer

    def matching(self, filters: tuple[str, ...]) -> Iterator[tuple[Resources, Nodes]]:
        """The sizes of nodes that accept jobs and match these filters, each with the nodes that have it."""
        for tags, sizes in self._nodes.items():
            if matching_tags(tags, filters):
                yield from sizes.items()

    def __len__(self) -> int:
        """The number of nodes that accept jobs."""
        return len(self._shape_of)

    def check(self, node: Node) -> list[str]:
        """Broken invariants in words, none if all hold."""
        name, shape = node.record.node, _shape(node)
        listed = shape is None or self._nodes.get(shape[0], {}).get(shape[1], {}).get(name) is node
        same = listed and self._shape_of.get(name) == shape
        return [] if same else [f"node {name}: it is not listed with its tags and size"]

    def _enter(self, node: Node, tags: Tags, size: Resources) -> None:
        name = node.record.node
        self._shape_of[name] = (tags, size)
        alike = self._nodes.setdefault(tags, {}).setdefault(size, {})
        alike[name] = node
        if len(alike) == 1:
            self._change(tags)

    def _leave(self, name: NodeName, tags: Tags, size: Resources) -> None:
        del self._shape_of[name]
        sizes = self._nodes[tags]
        del sizes[size][name]
        if not sizes[size]:
            del sizes[size]
            self._change(tags)
        if not sizes:
            del self._nodes[tags]

    def _change(self, tags: Tags) -> None:
        self._largest.pop(tags, None)
        self._answers.clear()

    def _largest_with(self, tags: Tags) -> list[Resources]:
        found = self._largest.get(tags)
        if found is None:
            found = self._largest[tags] = []
            # Who comes later has less of something, so that no one before can be less than it in all.
            for size in sorted(self._nodes[tags], key=Resources.as_tuple, reverse=True):
                if not any(largest.dominates(size) for largest in found):
                    found.append(size)
        return found


class TaggedRooms:
    """Sums over the online nodes that have the same tags. Fair share limits by them whoever has a scheduling tag filter.

    Invariant (`check`): each node is counted under its tags with all that the tree may use of it.
    """

    def __init__(self) -> None:
        self.of: dict[Tags, Resources] = {}
        #: Tags whose sum changed; whoever follows them discards them.
        self.changed: dict[Tags, None] = {}
        self._counted: dict[NodeName, tuple[Tags, Resources]] = {}

    def note(self, node: Node) -> None:
        """The tags of a node changed, or what the tree may use of it."""
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
        """Broken invariants in words, none if all hold."""
        same = self._counted.get(node.record.node) == _counted(node)
        return [] if same else [f"node {node.record.node}: it is not counted with its tags and room"]

    def _add(self, tags: Tags, amount: Resources) -> None:
        self.of[tags] = self.of.get(tags, ZERO) + amount
        if self.of[tags] == ZERO:
            del self.of[tags]
        self.changed[tags] = None


def _shape(node: Node) -> tuple[Tags, Resources] | None:
    return (tuple(node.record.tags), node.total) if node.accepts_jobs else None


def _counted(node: Node) -> tuple[Tags, Resources] | None:
    room = node.total
    return (tuple(node.record.tags), room) if room != ZERO else None


@lru_cache(maxsize=_MOST_KEPT)
def matching_tags(tags: Tags, filters: tuple[str, ...]) -> bool:
    """True if tags match all of these filters."""
    return all(matches(formula, tags) for formula in filters)
