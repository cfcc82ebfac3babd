"""The log of heartbeats: what each answer ordered, which allocations nodes gave back, and how long the decisions took."""

from __future__ import annotations

from collections.abc import Callable, Collection

from headrace.ids import AllocationId, OperationId
from headrace.obs import tracing
from headrace.obs.logging import Logger
from headrace.obs.tracing import SpanKind
from headrace.runtime.engine import Figure
from headrace.runtime.shell import LengthsOfTime
from headrace.wire import subjects
from headrace.wire.heartbeat import Heartbeat, Orders
from headrace.wire.trace import has_span, placement_span, read_trace


class HeartbeatLog:
    """Writes log lines about heartbeats, and records the durations of decisions."""

    def __init__(self, log: Logger, trace_of: Callable[[OperationId], str]) -> None:
        """`trace_of` returns the trace of a known operation."""
        self._log = log
        self._trace_of = trace_of
        self._decisions = LengthsOfTime("heartbeat_decisions", "Durations of decisions on heartbeats.")

    def note(self, heartbeat: Heartbeat, orders: Orders | None, took_ms: float) -> None:
        """Record the decision on a heartbeat, which took `took_ms` milliseconds."""
        self._decisions.note(took_ms)
        if orders is not None:
            if orders.forget.allocations:
                self._note_given_back(heartbeat, orders.forget.allocations)
            self._note_orders(orders)
            if tracing.is_on():
                self._note_placements(orders, tracing.now_ns() - int(took_ms * 1e6))

    def _note_given_back(self, heartbeat: Heartbeat, over: Collection[AllocationId]) -> None:
        """Log the allocations that have ended because the node gave them back by itself."""
        for report in heartbeat.allocations:
            if report.given_back_for and report.id in over:
                ids = {"operation": report.operation, "allocation": report.id, "node": heartbeat.node}
                self._log.info("allocation given back", **ids, why=report.given_back_for)

    def figures(self) -> list[Figure]:
        """Return the metrics of the durations of decisions."""
        return self._decisions.figures()

    def _note_placements(self, orders: Orders, began_ns: int) -> None:
        """Write a span for each allocation that a traced operation got. The heartbeat itself may be traced separately."""
        heartbeat = tracing.current()
        for start in orders.start:
            operation = read_trace(self._trace_of(start.operation))
            if operation is None or not any(map(has_span, start.slots)):
                continue
            about = {"operation": start.operation, "node": orders.node, "allocation": start.allocation}
            context = placement_span(operation, orders.node, start.allocation)
            links = [heartbeat] if heartbeat else []
            tracing.record(
                "placement",
                context,
                began_ns,
                about,
                parent=operation,
                links=links,
                kind=SpanKind.PRODUCER,
                subject=subjects.heartbeat("*", "*"),
            )

    def _note_orders(self, orders: Orders) -> None:
        log, node = self._log, orders.node
        for start in orders.start:
            jobs = [slot.index for slot in start.slots]
            log.debug(
                "allocation ordered", operation=start.operation, allocation=start.allocation, node=node, jobs=jobs
            )
        for extend in orders.extend:
            log.debug("allocation extended", allocation=extend.allocation, node=node, jobs=len(extend.slots))
        for take_back in orders.take_back:
            log.debug("allocation taken back", allocation=take_back.allocation, node=node, reason=take_back.reason)
