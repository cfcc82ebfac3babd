"""Nodes that are asked for a heartbeat at once because an operation changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation

__all__ = ["nodes_to_nudge"]

#: Nodes that one operation's news may nudge at once.
_MOST_NUDGES: Final = 200


def nodes_to_nudge(operation: Operation, nodes: Iterable[Node]) -> list[Node]:
    """As many nodes with room as the operation can use, without those that were nudged already."""
    wanted = operation.slots.ready_count
    nudged: list[Node] = []
    for node in nodes:
        if wanted <= 0 or len(nudged) >= _MOST_NUDGES:
            break
        places = operation.spec.resources.times_that_fit(node.free) if node.accepts_jobs else 0
        wanted -= places
        if places and not node.nudged:
            nudged.append(node)
    return nudged
