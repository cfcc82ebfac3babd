"""Enrolment: the records of nodes in their bucket."""

from __future__ import annotations

import msgspec

from headrace.bus import KeyValue, WrongRevision
from headrace.obs.logging import logger
from headrace.runtime.engine import Moment
from headrace.wire.nodes import Enrol, Enrolled, NodeRecord
from headrace.wire.refusals import Refusal, WrongState

__all__ = ["enrol", "node_record"]


def node_record(request: Enrol, known: NodeRecord | None, moment: Moment) -> NodeRecord | WrongState:
    """The record to keep of a node. A node stays in its tree and keeps its drain."""
    tags = sorted(set(request.tags))
    if known is None:
        return NodeRecord(node=request.node, tree=request.tree, tags=tags, enrolled_at_ms=moment.wall_ms)
    if known.tree != request.tree:
        return WrongState("node", request.node, f"in tree {known.tree}", f"a node of tree {request.tree}")
    return msgspec.structs.replace(known, tags=tags)


async def enrol(nodes: KeyValue, request: Enrol, moment: Moment) -> Enrolled | Refusal:
    """Enrols a node, or finds it enrolled. Raises `BusError`."""
    while True:
        entry = await nodes.get(request.node)
        known = msgspec.json.decode(entry.value, type=NodeRecord) if entry else None
        record = node_record(request, known, moment)
        if not isinstance(record, NodeRecord):
            return record
        if entry is not None and record == known:
            return Enrolled(node=record.node, tree=record.tree, revision=entry.revision)
        value = msgspec.json.encode(record)
        try:
            revision = await nodes.update(request.node, value, entry.revision if entry is not None else 0)
        except WrongRevision:
            continue
        logger().info("node enrolled", node=record.node, tree=record.tree)
        return Enrolled(node=record.node, tree=record.tree, revision=revision)
