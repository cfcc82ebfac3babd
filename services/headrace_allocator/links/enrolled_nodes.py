"""The enrolled nodes of one tree, read from their bucket whenever an entry changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from headrace.bus import Entry
from headrace.ids import NodeName, TreeName
from headrace.runtime.endpoints import Endpoints
from headrace.wire import subjects
from headrace.wire.codec import UNREADABLE
from headrace.wire.nodes import NodeRecord


class EnrolledNodes:
    """The records of the tree's enrolled nodes, by node name."""

    def __init__(self, tree: TreeName, endpoints: Endpoints) -> None:
        self._tree = tree
        self._endpoints = endpoints
        self.records: dict[NodeName, NodeRecord] = {}

    def read(self, entries: Mapping[str, Entry], keys: Collection[str]) -> dict[NodeName, NodeRecord | None]:
        """Read entries of the bucket. Returns the nodes of this tree that changed, with None for a node that left the tree."""
        changed: dict[NodeName, NodeRecord | None] = {}
        for key in keys:
            name, record = NodeName(key), self._record(key, entries.get(key))
            if record is not None:
                changed[name] = self.records[name] = record
            elif self.records.pop(name, None) is not None:
                changed[name] = None
        return changed

    def _record(self, key: str, entry: Entry | None) -> NodeRecord | None:
        if entry is None:
            return None
        try:
            record = msgspec.json.decode(entry.value, type=NodeRecord)
        except UNREADABLE as error:
            self._endpoints.report_malformed(f"bucket {subjects.NODES_BUCKET}", key, str(error))
            return None
        return record if record.tree == self._tree and record.node == key else None
