"""The check of a new node filter: a filter that would put a node in two trees is not stored.

Only a change of a filter is checked, against the nodes enrolled at that time. Nodes that are enrolled later are not checked, because nodes
come and go, whereas filters rarely change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from headrace.bus import BusError, KeyValue
from headrace.pools import TreeOptions
from headrace.pools.tree_conflicts import judge_trees
from headrace.wire.codec import UNREADABLE
from headrace.wire.nodes import NodeRecord
from headrace.wire.refusals import BadRequest, NotReady, Refusal
from headrace_fair_share.configuration.change_decisions import Change
from headrace_fair_share.configuration.store import read_stored


class NodeFilters:
    """The node filters of all trees, and the tags of all nodes."""

    def __init__(self, trees: KeyValue, nodes: Callable[[], Awaitable[KeyValue]]) -> None:
        self._trees = trees
        self._nodes = nodes

    async def refusal(self, change: Change) -> Refusal | None:
        """Refuse a change whose filter would take a node of another tree. Return None if the change is allowed."""
        node_filter = change.tree.options.node_filter
        if node_filter == change.decided_on.options.node_filter:
            return None
        try:
            stored = [read_stored(entry).tree for entry in (await self._trees.entries()).values()]
            records = (await (await self._nodes()).entries()).values()
            nodes = [msgspec.json.decode(entry.value, type=NodeRecord) for entry in records]
        except (BusError, *UNREADABLE) as error:
            return NotReady(f"nodes and trees cannot be read: {error}")
        trees: dict[str, TreeOptions] = {tree.tree: tree.options for tree in stored if tree is not None}
        trees[change.tree.tree] = change.tree.options
        judged = judge_trees(trees, change.tree.tree, {node.node: node.tags for node in nodes})
        if not judged.refused:
            return None
        return BadRequest.because("node_filter", f"each node must belong to one tree; {judged.alerts[0]}")
