"""Spans of the first snapshot of each traced operation: from the event of its start until its share is published."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from headrace.ids import OperationId, TreeName
from headrace.obs import tracing
from headrace.wire.log import Event, OperationStarted
from headrace.wire.snapshots import ShareItem
from headrace.wire.trace import SpanContext, read_trace

#: Operations that wait for their first snapshot. A process that stands by publishes none.
_MOST_WAITING: Final = 1_000


class _Heard(msgspec.Struct, frozen=True):
    start: SpanContext
    at_ns: int


class FirstSnapshots:
    """Knows the traced operations that no snapshot has named yet."""

    def __init__(self, tree: TreeName) -> None:
        self._tree = tree
        self._waiting: dict[OperationId, _Heard] = {}

    def note(self, events: Collection[Event]) -> None:
        """Notes the operations that these events start."""
        if not tracing.is_on():
            return
        for event in events:
            start = read_trace(event.spec.trace) if isinstance(event, OperationStarted) else None
            if start is not None and isinstance(event, OperationStarted) and len(self._waiting) < _MOST_WAITING:
                self._waiting[event.operation] = _Heard(start, tracing.now_ns())

    @contextmanager
    def published(self, changed: Collection[ShareItem], version: str) -> Iterator[None]:
        """Publishes a snapshot. Where it is the first of some operations, it is linked with the traces of all of them."""
        names = [OperationId(item.name) for item in changed if item.kind == "operation"] if self._waiting else []
        first = {name: heard for name in names if (heard := self._waiting.pop(name, None))}
        if not first:
            yield
            return
        with tracing.span(
            "publish shares", {"tree": self._tree, "version": version}, links=[heard.start for heard in first.values()]
        ) as own:
            yield
        for name, heard in first.items():
            about = {"operation": name, "tree": self._tree, "version": version}
            context, links = heard.start.of("first snapshot", self._tree, name), [own] if own else []
            tracing.record("first snapshot", context, heard.at_ns, about, parent=heard.start, links=links)
