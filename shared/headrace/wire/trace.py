"""The trace of an operation: ids by which spans of several processes find each other, as in W3C Trace Context.

Only the context of the start travels with an operation. The spans of its places and jobs have ids made from it and from names that
both sides know, so that neither side needs to tell the other.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from headrace.ids import AllocationId, NodeName

if TYPE_CHECKING:
    from headrace.wire.heartbeat import JobKey, JobSlot

_HEADER: Final = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED: Final = 1
#: Jobs of an operation that have spans, by their index: of a million, each would say the same.
TRACED_JOBS: Final = 16

#: The trace that an operation is part of, as a `traceparent` header names it. Empty: it is not traced.
Trace = Annotated[str, msgspec.Meta(max_length=55)]


TraceId = Annotated[str, msgspec.Meta(max_length=32)]
SpanId = Annotated[str, msgspec.Meta(max_length=16)]


class SpanContext(msgspec.Struct, frozen=True):
    """The ids of a span."""

    trace_id: TraceId
    span_id: SpanId

    def header(self) -> str:
        """The value of a `traceparent` header, of a trace that is recorded."""
        return f"00-{self.trace_id}-{self.span_id}-01"

    def of(self, *names: object) -> SpanContext:
        """A span of the same trace, with an id made from this one and from names."""
        words = "\0".join((self.span_id, *map(str, names)))
        return SpanContext(self.trace_id, blake2b(words.encode(), digest_size=8).hexdigest())


def read_trace(text: str) -> SpanContext | None:
    """The context that a `traceparent` header names. None if it names none, or one that is not recorded."""
    match = _HEADER.fullmatch(text)
    if match is None or not int(match[3], 16) & _SAMPLED:
        return None
    return SpanContext(match[1], match[2]) if int(match[1], 16) and int(match[2], 16) else None


def placement_span(operation: SpanContext, node: NodeName, allocation: AllocationId) -> SpanContext:
    """The span of the heartbeat by which an operation got an allocation. Allocators of two trees may name one alike."""
    return operation.of("placement", node, allocation)


def job_span(operation: SpanContext, key: JobKey) -> SpanContext:
    """The span of one run of a job."""
    return operation.of("job", key.operation, key.index, key.attempt)


def job_trace(trace: str, key: JobKey) -> str:
    """The `TRACEPARENT` of a job: its own span, or that of the start for jobs without a span. Empty if nothing is traced."""
    operation = read_trace(trace)
    return "" if operation is None else (job_span(operation, key) if has_span(key) else operation).header()


def has_span(job: JobKey | JobSlot) -> bool:
    """True if runs of the job have spans, should its operation be traced."""
    return job.index < TRACED_JOBS


class TraceHeartbeat(msgspec.Struct, frozen=True):
    """person → agent: send a heartbeat now, and trace it."""

    node: NodeName


class HeartbeatTraced(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The heartbeat is over."""

    trace_id: TraceId
