"""Drains of nodes: no job starts on a drained node.

A drain begins at once or at a given time, and lasts until a given time or until it is undone.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from headrace.bus import Entry, KeyValue, WrongRevision
from headrace.ids import NodeName
from headrace.obs.logging import logger
from headrace.pools.rights import Person
from headrace.runtime.engine import Moment
from headrace.wire.codec import UNREADABLE
from headrace.wire.nodes import ChangeNode, Drain, NodeChange, NodeRecord
from headrace.wire.refusals import BadRequest


def changed_record(record: NodeRecord, request: ChangeNode, by: Person, now: Moment) -> NodeRecord | BadRequest:
    """Return the record of a node after it is drained or undrained.

    If the node is drained in the same way already, its record stays unchanged.
    """
    if request.change is NodeChange.UNDRAIN:
        undrained = record.undrained + 1
        return msgspec.structs.replace(record, drain=None, drained=False, ends_jobs=False, undrained=undrained)
    if 0 < request.until_ms <= max(now.wall_ms, request.from_ms):
        return BadRequest(
            "until", str(request.until_ms), "a time in the future that is later than the begin of the drain"
        )
    from_ms = request.from_ms if request.from_ms > now.wall_ms else 0
    known = record.drain
    drain = Drain(by.name, now.wall_ms, request.reason, from_ms, request.until_ms, request.abort_after_ms)
    if known is not None and drain == msgspec.structs.replace(known, by=by.name, at_ms=now.wall_ms):
        return record
    return msgspec.structs.replace(record, drain=drain).at(now.wall_ms)


async def write(nodes: KeyValue, entry: Entry, record: NodeRecord, changed: NodeRecord) -> None:
    """Write the record of a node if it changed. Raises `BusError`, `WrongRevision`."""
    if changed != record:
        await nodes.update(record.node, msgspec.json.encode(changed), entry.revision)
        logger().info("node changed", node=record.node, drained=changed.drained, ends_jobs=changed.ends_jobs)


def record_in(entry: Entry | None) -> NodeRecord | None:
    """Return the record of a node, or None if it is missing or unreadable. The node's agent then enrols the node again."""
    if entry is None:
        return None
    try:
        return msgspec.json.decode(entry.value, type=NodeRecord)
    except UNREADABLE as error:
        logger().error("record of a node cannot be read", node=entry.key, error=str(error))
        return None


class Drains:
    """Carries out the drains with set times: at such a time a drain begins or ends, or the jobs of its node end."""

    def __init__(self, nodes: KeyValue) -> None:
        self._nodes = nodes
        #: Unix time in milliseconds of the next change of each node's record.
        self._due_ms: dict[NodeName, int] = {}

    async def read(self) -> None:
        """Read the drains of all nodes. Changes that are overdue count as due now. Raises `BusError`."""
        for entry in (await self._nodes.entries()).values():
            record = record_in(entry)
            if record is not None:
                self.note(record.node, record.drain, 0)

    def note(self, node: NodeName, drain: Drain | None, now_ms: int) -> None:
        """Note when the record of a node must change next, according to its drain. `drain` is None if the node has no drain.

        Only changes after `now_ms`, a Unix time in milliseconds, are noted: the record has the earlier changes already.
        """
        due_ms = None if drain is None else drain.next_change_ms(now_ms)
        if due_ms is None:
            self._due_ms.pop(node, None)
        else:
            self._due_ms[node] = due_ms

    async def apply(self, now: Moment) -> None:
        """Write the records of nodes whose drain has begun or ended by now, or whose jobs must end now. Raises `BusError`."""
        for node in [node for node, due_ms in self._due_ms.items() if due_ms <= now.wall_ms]:
            entry = await self._nodes.get(node)
            record = record_in(entry)
            changed = None if record is None else record.at(now.wall_ms)
            with suppress(WrongRevision):  # The next call looks again.
                if entry is not None and record is not None and changed is not None:
                    await write(self._nodes, entry, record, changed)
                self.note(node, None if changed is None else changed.drain, now.wall_ms)
