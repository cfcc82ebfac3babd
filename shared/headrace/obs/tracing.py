"""Spans of this process: what took how long, in which trace, and because of what.

Off until `begin`: then no span is made, and no message gets a header. OpenTelemetry's own library takes 0.2 s of a process's start,
so it is loaded only where spans go to a collector. Attributes name operations, pools, nodes and the like. Commands and environments
hold secrets, and are never among them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from typing import Final, Protocol

import msgspec

from headrace.runtime.clock import SystemClock
from headrace.wire.trace import SpanContext, read_trace

#: Lower-case, as the bus has all names of headers.
HEADER: Final = "traceparent"
#: Operations of which one process begins or continues the trace in a second: a flood of them would cost more than it tells.
_MOST_BEGUN_A_SECOND: Final = 20

#: Unix time, which processes and hosts have in common.
SYSTEM_NS: Final = SystemClock().wall_ns

Attributes = Mapping[str, str | int | float | bool]
_NO_ATTRIBUTES: Final[Attributes] = {}


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """One span, when it is over. Times are nanoseconds of Unix time."""

    trace_id: str
    span_id: str
    name: str
    service: str
    start_ns: int
    end_ns: int
    #: Empty: the root of its trace.
    parent_id: str = ""
    attributes: Attributes = {}
    #: Spans of other traces that this one is a consequence of.
    links: list[SpanContext] = []
    #: The kind of the failure that ended it.
    error: str = ""


class Sink(Protocol):
    """A place that spans go to."""

    def write(self, span: Span) -> None:
        """Takes a span. Never waits for long, never raises."""
        ...

    def close(self) -> None:
        """Sends what is left, within seconds."""
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
    """Turns tracing on. `sample_ratio` is the part of operations that are traced, whoever began their trace."""
    global _tracing
    _tracing = _Tracing(sink, service, sample_ratio, wall_ns)


def end() -> None:
    """Turns tracing off, and sends what is left."""
    global _tracing
    ended, _tracing = _tracing, None
    if ended is not None:
        ended.sink.close()


def is_on() -> bool:
    """True if spans of this process go anywhere."""
    return _tracing is not None


def now_ns() -> int:
    """The time by which spans are placed: Unix time, which processes and hosts have in common. 0 while tracing is off."""
    return _tracing.wall_ns() if _tracing is not None else 0


def current() -> SpanContext | None:
    """The span in which this is called, or that of whoever sent the message which is handled."""
    return _current.get()


def with_trace(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Headers of a message with the span in which it is sent. Those given, outside of all spans."""
    context = _current.get()
    return headers if context is None else {**(headers or {}), HEADER: context.header()}


@contextmanager
def received(headers: Mapping[str, str]) -> Iterator[None]:
    """Handles a message as a part of its sender's span."""
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
    """Handles a message as a part of no span, whatever its sender says."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def may_continue() -> bool:
    """True if a trace that somebody else began may be continued here, which few of them in a second may."""
    return _tracing is not None and _is_one_of_few(_tracing)


def sender_of(headers: Mapping[str, str]) -> SpanContext | None:
    """The span in which a message was sent. None if it names none, and while tracing is off."""
    return read_trace(headers[HEADER]) if headers and _tracing is not None and HEADER in headers else None


@contextmanager
def span(
    name: str,
    attributes: Attributes = _NO_ATTRIBUTES,
    *,
    parent: SpanContext | None = None,
    links: Sequence[SpanContext] = (),
) -> Iterator[SpanContext | None]:
    """Makes a span of what is done inside: of the trace of `parent`, else of a new trace. None while tracing is off."""
    if _tracing is None:
        yield None
        return
    context = SpanContext(parent.trace_id if parent else secrets.token_hex(16), secrets.token_hex(8))
    start_ns, error, token = now_ns(), "", _current.set(context)
    try:
        yield context
    except BaseException as failure:
        error = type(failure).__name__
        raise
    finally:
        _current.reset(token)
        record(name, context, start_ns, attributes, parent=parent, links=links, error=error)


@contextmanager
def child(name: str, attributes: Attributes = _NO_ATTRIBUTES) -> Iterator[SpanContext | None]:
    """Makes a span of what is done inside, where it is done in another span. Else none."""
    parent = _current.get()
    if parent is None:
        yield None
        return
    with span(name, attributes, parent=parent) as context:
        yield context


@contextmanager
def linked(name: str, headers: Mapping[str, str]) -> Iterator[SpanContext | None]:
    """Makes a trace of what is done with a published message, linked to the span that published it. None if there was none."""
    sender = sender_of(headers)
    if sender is None:
        yield None
        return
    with span(name, links=[sender]) as context:
        yield context


@contextmanager
def start_of_operation(name: str, operation: str, trace: str) -> Iterator[str]:
    """Yields the trace that an operation is to have: the current span, else a new one of its start.

    That is part of `trace`, which the caller brought, or else begins one. An operation that is not sampled has none.
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
    with span(name, {"operation": operation}, parent=parent) as context:
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
) -> None:
    """Writes a span that is over now, or was at `end_ns`."""
    if _tracing is None:
        return
    over_ns = end_ns or now_ns()
    parent_id = parent.span_id if parent else ""
    service = _tracing.service
    ids = context.trace_id, context.span_id
    _tracing.sink.write(Span(*ids, name, service, start_ns, over_ns, parent_id, attributes, [*links], error))


def _sampled(tracing: _Tracing, operation: str) -> bool:
    """True if a trace of this operation is to be begun. Every process chooses the same operations."""
    share = int.from_bytes(blake2b(operation.encode(), digest_size=4).digest()) / 2**32
    return share < tracing.sample_ratio and _is_one_of_few(tracing)


def _is_one_of_few(tracing: _Tracing) -> bool:
    second = tracing.wall_ns() // 1_000_000_000
    if tracing.second != second:
        tracing.second, tracing.begun = second, 0
    tracing.begun += 1
    return tracing.begun <= _MOST_BEGUN_A_SECOND
