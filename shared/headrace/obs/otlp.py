"""Sending of spans to a collector with OpenTelemetry's own exporter over HTTP. Imported only if a collector is configured.

The exporter's environment variables work too, such as `OTEL_EXPORTER_OTLP_HEADERS` for a collector that requires a token.
"""

from __future__ import annotations

import logging
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Status, StatusCode, TraceFlags
from opentelemetry.trace import SpanContext as OtlpContext

from headrace.obs.log_throttle import LogThrottle
from headrace.obs.logging import logger
from headrace.obs.tracing import Span
from headrace.wire.trace import SpanContext

#: Seconds for one try to send. A process that stops may take this long, too.
_TIMEOUT_S: Final = 2.0
_PERIOD_MS: Final = 500.0
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


class OtlpSink:
    """Sends spans in batches from a thread of its own. Spans that the collector does not accept in time are lost."""

    def __init__(self, endpoint: str, service: str) -> None:
        _log_as_we_do()
        exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=_TIMEOUT_S)
        self._processor = BatchSpanProcessor(exporter, schedule_delay_millis=_PERIOD_MS)
        self._resource = Resource.create({"service.name": f"headrace-{service.replace('_', '-')}"})

    def write(self, span: Span) -> None:
        """Put a span into the next batch."""
        parent = SpanContext(span.trace_id, span.parent_id) if span.parent_id else None
        told = ReadableSpan(
            span.name,
            context=_context(SpanContext(span.trace_id, span.span_id), is_remote=False),
            parent=_context(parent) if parent else None,
            resource=self._resource,
            attributes={f"headrace.{name}": value for name, value in span.attributes.items()},
            links=[Link(_context(link)) for link in span.links],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.start_ns,
            end_time=span.end_ns,
        )
        self._processor.on_end(told)

    def close(self) -> None:
        """Send the last batch."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]


def _context(context: SpanContext, *, is_remote: bool = True) -> OtlpContext:
    return OtlpContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote, _SAMPLED)


def _log_as_we_do() -> None:
    """Write the library's log lines through this process's own logger, which does not show them to the user of a command."""
    throttle = LogThrottle()

    def write_as_ours(record: logging.LogRecord) -> bool:
        if throttle.due(record.name):
            logger().warning("spans not sent", why=record.getMessage())
        return False

    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.addFilter(write_as_ours)
    library = logging.getLogger("opentelemetry")
    library.handlers, library.propagate = [handler], False
