"""The shapes of nodes, by which is known whether some node could ever run a job."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.pools.node_filter import matches
from headrace.resources import Resources
from headrace_allocator.facts.nodes import Node

__all__ = ["NodeShapes"]


class NodeShapes:
    """The different tags and sizes of nodes that accept jobs."""

    def __init__(self) -> None:
        self._shapes: frozenset[tuple[tuple[str, ...], Resources]] = frozenset()

    def note(self, nodes: Iterable[Node]) -> None:
        """Looks at all nodes anew."""
        self._shapes = frozenset((tuple(node.record.tags), node.total) for node in nodes if node.accepts_jobs)

    def may_fit(self, size: Resources, filters: Iterable[str]) -> bool:
        """True if some node could run a job of this size, were the node empty. Without any node nothing is known."""
        formulas = list(filters)
        return not self._shapes or any(
            shape.dominates(size) and all(matches(formula, tags) for formula in formulas)
            for tags, shape in self._shapes
        )
