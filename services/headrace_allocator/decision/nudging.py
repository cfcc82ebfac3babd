"""Nodes that are asked for a heartbeat at once because an operation changed."""

from __future__ import annotations

from typing import Final

from headrace_allocator.decision.holding_back import pool_limit_reached
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation

#: Nodes that one operation's news may nudge at once.
_MOST_NUDGES: Final = 200


def nudge_for(operation: Operation, facts: Facts) -> list[Node]:
    """Notes nodes as nudged that are asked for a heartbeat because more jobs of an operation may start."""
    if max(operation.fair_share) == 0.0 or pool_limit_reached(operation, facts.pools) is not None:
        return []
    nodes = nodes_to_nudge(operation, facts)
    for node in nodes:
        node.nudged = True
    return nodes


def nodes_to_nudge(operation: Operation, facts: Facts) -> list[Node]:
    """The nodes with room, as many as the operation can use, without those that were nudged already."""
    wanted = operation.slots.ready_count
    nudged: list[Node] = []
    if wanted <= 0:
        return nudged
    size, filters = operation.spec.resources, facts.pools.filters_of(operation.spec)
    # With less room than the tree spares nothing starts on a node: on a full cluster that would be most of all heartbeats.
    for node in facts.rooms.fitting(size.or_more(facts.pools.min_spare), filters):
        wanted -= size.times_that_fit(node.free)
        if not node.nudged:
            nudged.append(node)
        if wanted <= 0 or len(nudged) >= _MOST_NUDGES:
            break
    return nudged
