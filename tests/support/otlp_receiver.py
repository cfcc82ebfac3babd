"""A collector for tests: takes OTLP over HTTP, and keeps the spans that it decodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.http_receiver import serving

__all__ = ["Received", "Receiver", "otlp_receiver", "service_graph"]

_LIMIT_S = 60.0


class Received(msgspec.Struct, frozen=True):
    """A span as it came."""

    name: str
    service: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    #: Ids of trace and span.
    links: list[tuple[str, str]]
    failed: bool
    #: As OpenTelemetry names it, such as `client`.
    kind: str
    #: Name and version of the library that made it.
    scope: tuple[str, str]
    #: Attributes of the process.
    resource: dict[str, Any]


class Receiver:
    """Spans in the order of their coming, and every byte of them."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[bytes] = []
        self.spans: list[Received] = []
        self._came = threading.Condition()

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        spans = [
            _received(_values(resource.resource.attributes), scope.scope, span)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        with self._came:
            self.bodies.append(body)
            self.spans += spans
            self._came.notify_all()

    def wait_for(self, there: Callable[[list[Received]], bool]) -> list[Received]:
        """Until the spans are such."""
        with self._came:
            assert self._came.wait_for(lambda: there(self.spans), _LIMIT_S), [span.name for span in self.spans]
            return list(self.spans)


@contextmanager
def otlp_receiver() -> Iterator[Receiver]:
    """Listens on a free port of the loopback interface."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            receiver.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with serving(Handler) as receiver.url:
        yield receiver


def service_graph(spans: list[Received]) -> set[tuple[str, str]]:
    """The services that a service graph connects: a client or producer, and a server or consumer that is a part of it elsewhere."""
    senders = {(span.trace_id, span.span_id): span.service for span in spans if span.kind in ("client", "producer")}
    found = set()
    for span in spans:
        sender = senders.get((span.trace_id, span.parent_id))
        if span.kind in ("server", "consumer") and sender not in (None, span.service):
            found.add((sender, span.service))
    return found


def _received(resource: dict[str, Any], scope: Any, span: Any) -> Received:
    return Received(
        span.name,
        resource["service.name"],
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _values(span.attributes),
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        span.status.code == span.status.STATUS_CODE_ERROR,
        span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        (scope.name, scope.version),
        resource,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
