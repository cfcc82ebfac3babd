"""Sending of spans to a collector with OpenTelemetry's own SDK and exporter over HTTP. Imported only if a collector is configured.

All environment variables of the SDK and of the exporter work, such as `OTEL_RESOURCE_ATTRIBUTES`, and `OTEL_EXPORTER_OTLP_HEADERS` for a
collector that requires a token.
"""

from __future__ import annotations

import logging
import os
import threading
from importlib.metadata import version
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, Status, StatusCode, TraceFlags, set_span_in_context
from opentelemetry.trace import SpanContext as OtlpContext

from headrace.obs.log_throttle import LogThrottle
from headrace.obs.logging import logger
from headrace.obs.tracing import Span
from headrace.obs.tracing import SpanKind as OwnKind
from headrace.wire.trace import SpanContext

#: Path that is appended to the address of a collector, to send traces there.
TRACES_PATH: Final = "/v1/traces"
#: Seconds for one try to send spans. A process that stops sends its last spans first, which may take this long, too.
_TIMEOUT_S: Final = 2.0
_PERIOD_MS: Final = 500.0
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_SENDS: Final = (OwnKind.CLIENT, OwnKind.PRODUCER)


class OtlpSink:
    """Sends spans in batches from a thread of its own. Spans that the collector does not accept in time are lost."""

    def __init__(self, endpoint: str, service: str) -> None:
        """`endpoint` is the address of a collector, or of its traces if it ends in `/v1/traces`."""
        _log_as_we_do()
        address = endpoint.rstrip("/")
        address = address if address.endswith(TRACES_PATH) else address + TRACES_PATH
        given = os.environ.keys()
        exporter = OTLPSpanExporter(address, timeout=None if "OTEL_EXPORTER_OTLP_TIMEOUT" in given else _TIMEOUT_S)
        batches = BatchSpanProcessor(
            exporter, schedule_delay_millis=None if "OTEL_BSP_SCHEDULE_DELAY" in given else _PERIOD_MS
        )
        self._ids = _GivenIds()
        # Export every span. Headrace chooses the traced operations before a trace begins, so that all processes write
        # the spans of the same operations.
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create({"service.name": f"headrace-{service.replace('_', '-')}"}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(batches)
        self._tracer = self._provider.get_tracer("headrace", version("headrace"))

    def write(self, span: Span) -> None:
        """Put a span into the next batch."""
        parent = _context(SpanContext(span.trace_id, span.parent_id)) if span.parent_id else None
        self._ids.give(span)
        told = self._tracer.start_span(
            span.name,
            context=set_span_in_context(NonRecordingSpan(parent)) if parent else None,
            kind=SpanKind[span.kind.name],
            attributes={**{f"headrace.{name}": value for name, value in span.attributes.items()}, **_of_message(span)},
            links=[Link(_context(link)) for link in span.links],
            start_time=span.start_ns,
        )
        if span.error:
            told.set_status(Status(StatusCode.ERROR, span.error))
        told.end(span.end_ns)

    def close(self) -> None:
        """Send the last batch."""
        self._provider.shutdown()


class _GivenIds(IdGenerator):
    """Gives each span of the SDK the ids of the Headrace span that it stands for, instead of random ids."""

    def __init__(self) -> None:
        self._of = threading.local()

    def give(self, span: Span) -> None:
        """Set the ids of the next span of this thread."""
        self._of.trace_id, self._of.span_id = int(span.trace_id, 16), int(span.span_id, 16)

    def generate_trace_id(self) -> int:
        trace_id: int = self._of.trace_id
        return trace_id

    def generate_span_id(self) -> int:
        span_id: int = self._of.span_id
        return span_id


def _of_message(span: Span) -> dict[str, str]:
    """Return the attributes that OpenTelemetry's conventions require for messages. Empty for a span that neither sends
    nor handles a message.
    """
    if span.kind is OwnKind.INTERNAL:
        return {}
    return {
        "messaging.system": "nats",
        "messaging.operation.type": "send" if span.kind in _SENDS else "process",
        "messaging.operation.name": span.name,
        "messaging.destination.name": span.subject,
    }


def _context(context: SpanContext) -> OtlpContext:
    return OtlpContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote=True, trace_flags=_SAMPLED)


def _log_as_we_do() -> None:
    """Send the log lines of the OpenTelemetry library to this process's own logger. It does not show these lines to the user of a
    command.
    """
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
