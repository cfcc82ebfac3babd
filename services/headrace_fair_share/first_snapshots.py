"""Trace spans of an operation's first snapshot. A span lasts from the time at which the operation becomes known here until its share is
published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from headrace.ids import OperationId, TreeName
from headrace.obs import tracing
from headrace.obs.tracing import SpanKind
from headrace.wire import subjects
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import Event, OperationStarted
from headrace.wire.snapshots import ShareItem
from headrace.wire.trace import SpanContext, append_span, read_trace

#: Largest number of operations that wait for their first snapshot. If there are more, the oldest operations are dropped: otherwise a
#: standby, which publishes no snapshots, would keep every operation.
_MOST_WAITING: Final = 1_000
#: Age in milliseconds up to which an operation counts as new; it is longer than a standby takes to become leader.
_NEW_MS: Final = 60_000


class _Heard(msgspec.Struct, frozen=True):
    start: SpanContext
    at_ns: int


class FirstSnapshots:
    """The traced operations that no published snapshot contains yet."""

    def __init__(self, tree: TreeName) -> None:
        self._tree = tree
        self._waiting: dict[OperationId, _Heard] = {}

    def note(self, events: Collection[Event]) -> None:
        """Record the operations that these events start."""
        if tracing.is_on():
            for event in events:
                if isinstance(event, OperationStarted):
                    self._note(event.operation, event.spec.trace)

    def note_known(self, operations: Collection[LiveOperation]) -> None:
        """Record the new operations among all live operations. They may have started while no fair_share process received events.

        If another process already published the share of such an operation, its span is recorded again with the same id.
        """
        if tracing.is_on():
            since_ms = tracing.now_ns() // 1_000_000 - _NEW_MS
            for operation in operations:
                if operation.started_at_ms >= since_ms:
                    self._note(operation.operation, operation.spec.trace)

    def _note(self, name: OperationId, trace: str) -> None:
        start = read_trace(trace)
        if start is None:
            return
        self._waiting[name] = _Heard(start, tracing.now_ns())
        if len(self._waiting) > _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]

    @contextmanager
    def published(self, changed: Collection[ShareItem], version: str) -> Iterator[None]:
        """Trace the publication of a snapshot as a span. If the snapshot is the first that contains some operations, link the span with the
        traces of these operations.
        """
        names = [OperationId(item.name) for item in changed if item.kind == "operation"] if self._waiting else []
        first = {name: heard for name in names if (heard := self._waiting.pop(name, None))}
        if not first:
            yield
            return
        with tracing.span(
            "publish shares",
            {"tree": self._tree, "version": version},
            links=[heard.start for heard in first.values()],
            kind=SpanKind.PRODUCER,
            subject=subjects.share(self._tree),
        ) as own:
            yield
        for name, heard in first.items():
            about = {"operation": name, "tree": self._tree, "version": version}
            context, links = heard.start.of("first snapshot", self._tree, name), [own] if own else []
            tracing.record(
                "first snapshot",
                context,
                heard.at_ns,
                about,
                parent=append_span(heard.start),
                links=links,
                kind=SpanKind.CONSUMER,
                subject=subjects.EVENTS,
            )
