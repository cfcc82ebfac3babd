"""Spans of this process: how long a step took, in which trace, and which other span caused it.

Tracing is off until `begin`: until then no span is created, and no message gets a header. OpenTelemetry's own library adds
0.2 s to a process's start, so it is loaded only if spans go to a collector. Attributes name operations, pools, nodes and
the like. They never contain commands or environments, because these hold secrets.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

import msgspec

from headrace.runtime.clock import SystemClock
from headrace.wire.trace import SpanContext, digest, read_trace

#: Name of the header that carries a span, in lower case as all header names on the bus.
HEADER: Final = "traceparent"
#: Largest number of traces that one process begins or continues in a second. Tracing a flood of operations would cost more than
#: it would show.
_MOST_BEGUN_A_SECOND: Final = 20

#: Unix time, which all processes and hosts share.
SYSTEM_NS: Final = SystemClock().wall_ns

Attributes = Mapping[str, str | int | float | bool]
_NO_ATTRIBUTES: Final[Attributes] = {}


class SpanKind(enum.Enum):
    """The kinds of spans of OpenTelemetry. A service graph connects two services if a span of the first service is a client or a producer
    and has a child span in the second service that is a server or a consumer.
    """

    INTERNAL = "internal"
    #: The span sends a request and waits for the answer.
    CLIENT = "client"
    SERVER = "server"
    #: The span sends a message that another process handles later.
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """One span that has ended. Times are Unix time in nanoseconds."""

    trace_id: str
    span_id: str
    name: str
    service: str
    start_ns: int
    end_ns: int
    #: Empty if the span is the root of its trace.
    parent_id: str = ""
    attributes: Attributes = {}
    #: Spans of other traces that caused this span.
    links: list[SpanContext] = []
    #: Name of the exception type that ended the span; empty if it succeeded.
    error: str = ""
    kind: SpanKind = SpanKind.INTERNAL
    #: Subject of the messages that the span sends or handles, with `*` for names; empty if it is internal.
    subject: str = ""


class Sink(Protocol):
    """A destination of spans."""

    def write(self, span: Span) -> None:
        """Take a span. Never waits long, never raises."""
        ...

    def close(self) -> None:
        """Send the remaining spans, within seconds."""
        ...


class _Tracing(msgspec.Struct):
    sink: Sink
    service: str
    sample_ratio: float
    wall_ns: Callable[[], int]
    second: int = 0
    begun: int = 0


_tracing: _Tracing | None = None
_current: ContextVar[SpanContext | None] = ContextVar("span", default=None)


def begin(service: str, sink: Sink, sample_ratio: float, wall_ns: Callable[[], int] = SYSTEM_NS) -> None:
    """Turn tracing on. `sample_ratio` is the fraction of operations that are traced, whichever process began the trace."""
    global _tracing
    _tracing = _Tracing(sink, service, sample_ratio, wall_ns)


def end() -> None:
    """Turn tracing off, and send the remaining spans."""
    global _tracing
    ended, _tracing = _tracing, None
    if ended is not None:
        ended.sink.close()


def is_on() -> bool:
    """True if tracing is on."""
    return _tracing is not None


def now_ns() -> int:
    """Return the current time for spans: Unix time in nanoseconds, which all processes and hosts share. 0 while tracing is off."""
    return _tracing.wall_ns() if _tracing is not None else 0


def current() -> SpanContext | None:
    """Return the current span, or the sender's span while a message is handled. None if there is none."""
    return _current.get()


def with_trace(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return `headers` with the current span added, or unchanged if there is no current span."""
    context = _current.get()
    return headers if context is None else {**(headers or {}), HEADER: context.header()}


@contextmanager
def received(headers: Mapping[str, str]) -> Iterator[None]:
    """Handle a message as a part of its sender's span."""
    context = sender_of(headers)
    if context is None:
        yield
        return
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def apart() -> Iterator[None]:
    """Handle a message outside of any span, even if the headers of the message name a span."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def may_continue() -> bool:
    """True if this process may continue a trace that another party began. A process begins or continues only a few traces in each
    second.
    """
    return _tracing is not None and _is_one_of_few(_tracing)


def sender_of(headers: Mapping[str, str]) -> SpanContext | None:
    """Return the span in which a message was sent. None if its headers name no span, or while tracing is off."""
    return read_trace(headers[HEADER]) if headers and _tracing is not None and HEADER in headers else None


@contextmanager
def span(
    name: str,
    attributes: Attributes = _NO_ATTRIBUTES,
    *,
    context: SpanContext | None = None,
    parent: SpanContext | None = None,
    links: Sequence[SpanContext] = (),
    kind: SpanKind = SpanKind.INTERNAL,
    subject: str = "",
) -> Iterator[SpanContext | None]:
    """Record the block as a span, in the trace of `parent` or in a new trace. Yields None while tracing is off.

    The span has new ids unless `context` gives them.
    """
    if _tracing is None:
        yield None
        return
    own = context or SpanContext(parent.trace_id if parent else os.urandom(16).hex(), os.urandom(8).hex())
    start_ns, error, token = now_ns(), "", _current.set(own)
    try:
        yield own
    except BaseException as failure:
        error = type(failure).__name__
        raise
    finally:
        _current.reset(token)
        record(name, own, start_ns, attributes, parent=parent, links=links, error=error, kind=kind, subject=subject)


@contextmanager
def child(
    name: str, attributes: Attributes = _NO_ATTRIBUTES, *, kind: SpanKind = SpanKind.INTERNAL, subject: str = ""
) -> Iterator[SpanContext | None]:
    """Record the block as a span if there is a current span. Otherwise record nothing, and yield None."""
    parent = _current.get()
    if parent is None:
        yield None
        return
    with span(name, attributes, parent=parent, kind=kind, subject=subject) as context:
        yield context


@contextmanager
def linked(name: str, headers: Mapping[str, str], subject: str) -> Iterator[SpanContext | None]:
    """Trace the block that handles a published message, in a new trace that is linked to the publisher's span.

    If the message names no span, the block is not traced, and None is yielded.
    """
    sender = sender_of(headers)
    if sender is None:
        yield None
        return
    with span(name, links=[sender], kind=SpanKind.CONSUMER, subject=subject) as context:
        yield context


@contextmanager
def start_of_operation(
    name: str, operation: str, trace: str, *, kind: SpanKind = SpanKind.INTERNAL, subject: str = ""
) -> Iterator[str]:
    """Yield the trace header for a new operation.

    If there is a current span, its header is yielded. Otherwise the block becomes a new span, in `trace` if it is not
    empty, else in a new trace. If the operation is not sampled, the header is empty.
    """
    if (inside := _current.get()) is not None:
        yield inside.header()
        return
    parent = read_trace(trace)
    if _tracing is None:
        yield trace
        return
    if not _sampled(_tracing, operation):
        yield ""
        return
    with span(name, {"operation": operation}, parent=parent, kind=kind, subject=subject) as context:
        yield context.header() if context else trace


def record(
    name: str,
    context: SpanContext,
    start_ns: int,
    attributes: Attributes = _NO_ATTRIBUTES,
    *,
    end_ns: int | None = None,
    parent: SpanContext | None = None,
    links: Sequence[SpanContext] = (),
    error: str = "",
    kind: SpanKind = SpanKind.INTERNAL,
    subject: str = "",
) -> None:
    """Write a span that ends now, or that ended at `end_ns`."""
    if _tracing is None:
        return
    over_ns = end_ns or now_ns()
    parent_id = parent.span_id if parent else ""
    service = _tracing.service
    ids = context.trace_id, context.span_id
    _tracing.sink.write(
        Span(*ids, name, service, start_ns, over_ns, parent_id, attributes, [*links], error, kind, subject)
    )


def _sampled(tracing: _Tracing, operation: str) -> bool:
    """True if a trace of this operation may begin. The choice depends on the operation's id, so every process chooses the
    same operations.
    """
    share = int.from_bytes(digest(operation, 4)) / 2**32
    return share < tracing.sample_ratio and _is_one_of_few(tracing)


def _is_one_of_few(tracing: _Tracing) -> bool:
    second = tracing.wall_ns() // 1_000_000_000
    if tracing.second != second:
        tracing.second, tracing.begun = second, 0
    tracing.begun += 1
    return tracing.begun <= _MOST_BEGUN_A_SECOND
