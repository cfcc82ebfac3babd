"""Enrolment: the records of nodes in their bucket, and what administrators change of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from headrace.bus import Entry, KeyValue, WrongRevision
from headrace.obs.logging import logger
from headrace.pools.rights import Person
from headrace.runtime.engine import Moment
from headrace.wire.nodes import ChangedNode, ChangeNode, Enrol, Enrolled, GivenUpNode, NodeChange, NodeRecord
from headrace.wire.refusals import NotAllowed, NotFound, Refusal, WrongState


def node_record(request: Enrol, known: NodeRecord | None, moment: Moment) -> NodeRecord | WrongState:
    """The record to keep of a node. A node stays in its tree and keeps its drain."""
    tags = sorted(set(request.tags))
    if known is None:
        return NodeRecord(request.node, request.tree, tags, enrolled_at_ms=moment.wall_ms, machine=request.machine)
    if known.tree != request.tree:
        return WrongState("node", request.node, f"in tree {known.tree}", f"a node of tree {request.tree}")
    return msgspec.structs.replace(known, tags=tags, machine=request.machine or known.machine)


GiveUp = Callable[[NodeRecord, str], Awaitable[GivenUpNode | Refusal]]


async def enrol(nodes: KeyValue, request: Enrol, moment: Moment, give_up: GiveUp) -> Enrolled | Refusal:
    """Enrols a node, or finds it enrolled. Its name passes to another machine once its allocator gave it up. Raises `BusError`."""
    while True:
        entry = await nodes.get(request.node)
        known = _record_in(entry)
        record = node_record(request, known, moment)
        if not isinstance(record, NodeRecord):
            return record
        if entry is not None and record == known:
            return Enrolled(node=record.node, tree=record.tree, revision=entry.revision)
        if known is not None and known.machine and not known.is_of(request.machine):
            given_up = await give_up(known, request.machine)
            if isinstance(given_up, Refusal):
                return given_up
        value = msgspec.json.encode(record)
        try:
            revision = await nodes.update(request.node, value, entry.revision if entry is not None else 0)
        except WrongRevision:
            continue
        logger().info("node enrolled", node=record.node, tree=record.tree)
        return Enrolled(node=record.node, tree=record.tree, revision=revision)


async def change_node(nodes: KeyValue, request: ChangeNode, by: Person, give_up: GiveUp) -> ChangedNode | Refusal:
    """Drains, undrains or removes a node for an administrator. One is removed only once its allocator gave it up. Raises `BusError`."""
    if not by.administrator:
        return NotAllowed(who=by.name, what="change nodes; administrators may")
    while True:
        entry = await nodes.get(request.node)
        record = _record_in(entry)
        if entry is None or record is None:
            return NotFound("node", request.node)
        if request.change is NodeChange.REMOVE:
            given_up = await give_up(record, "")
            if isinstance(given_up, Refusal):
                return given_up
            await nodes.delete(request.node)
            logger().info("node removed", node=record.node, tree=record.tree, lost_jobs=given_up.lost_jobs)
            return ChangedNode(record.node)
        drained = request.change is NodeChange.DRAIN
        try:
            if drained != record.drained:
                value = msgspec.json.encode(msgspec.structs.replace(record, drained=drained))
                await nodes.update(request.node, value, entry.revision)
                logger().info("node changed", node=record.node, drained=drained)
        except WrongRevision:
            continue
        return ChangedNode(record.node)


def _record_in(entry: Entry | None) -> NodeRecord | None:
    """The record of a node, None where there is none that can be read: the node's agent enrols it anew."""
    if entry is None:
        return None
    try:
        return msgspec.json.decode(entry.value, type=NodeRecord)
    except msgspec.DecodeError as error:
        logger().error("record of a node cannot be read", node=entry.key, error=str(error))
        return None
