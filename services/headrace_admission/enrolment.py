"""Keeping the records of nodes in their bucket."""

from __future__ import annotations

import msgspec

from headrace.bus import KeyValue, WrongRevision
from headrace.obs.logging import logger
from headrace.wire.nodes import Enrol, Enrolled, NodeRecord
from headrace.wire.refusals import Refusal
from headrace_admission.engine import AdmissionEngine

__all__ = ["enrol"]


async def enrol(engine: AdmissionEngine, nodes: KeyValue, request: Enrol, now_ms: int) -> Enrolled | Refusal:
    """Enrols a node, or finds it enrolled. Raises `BusError`."""
    while True:
        entry = await nodes.get(request.node)
        known = msgspec.json.decode(entry.value, type=NodeRecord) if entry else None
        record = engine.on_enrol(request, known, now_ms)
        if not isinstance(record, NodeRecord):
            return record
        if entry is not None and record == known:
            return Enrolled(node=record.node, tree=record.tree, revision=entry.revision)
        value = msgspec.json.encode(record)
        try:
            if entry is None:
                revision = await nodes.create(request.node, value)
            else:
                revision = await nodes.update(request.node, value, entry.revision)
        except WrongRevision:
            continue
        logger().info("node enrolled", node=record.node, tree=record.tree)
        return Enrolled(node=record.node, tree=record.tree, revision=revision)
