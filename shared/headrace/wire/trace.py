"""The trace of an operation: ids that connect the spans of several processes, as in W3C Trace Context.

Only the context of the start travels with an operation. The ids of the spans of its allocations and jobs are computed from that context and
from names that both sides know, so that the sides need not exchange ids.
"""

from __future__ import annotations

import re

# The module `hashlib` would load OpenSSL, which takes 4 MB in the runner of each host.
from _blake2 import blake2b
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from headrace.ids import AllocationId, NodeName

if TYPE_CHECKING:
    from headrace.wire.heartbeat import JobKey, JobSlot

_HEADER: Final = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED: Final = 1
#: Number of jobs of each operation that get spans, namely the jobs with the lowest indexes. More spans of similar jobs would add nothing
#: new.
TRACED_JOBS: Final = 16

#: The trace that an operation is part of, as in a `traceparent` header. Empty: the operation is not traced.
Trace = Annotated[str, msgspec.Meta(max_length=55)]


TraceId = Annotated[str, msgspec.Meta(max_length=32)]
SpanId = Annotated[str, msgspec.Meta(max_length=16)]


def digest(text: str, size_bytes: int) -> bytes:
    """Return the BLAKE2b digest of a text. The digest has `size_bytes` bytes, 1 to 64."""
    return blake2b(text.encode(), digest_size=size_bytes).digest()


class SpanContext(msgspec.Struct, frozen=True):
    """The ids of a span."""

    trace_id: TraceId
    span_id: SpanId

    def header(self) -> str:
        """Return the value of a `traceparent` header for a recorded trace."""
        return f"00-{self.trace_id}-{self.span_id}-01"

    def of(self, *names: object) -> SpanContext:
        """Return a span of the same trace whose id is computed from this span's id and the names."""
        words = "\0".join((self.span_id, *map(str, names)))
        return SpanContext(self.trace_id, digest(words, 8).hex())


def read_trace(text: str) -> SpanContext | None:
    """Return the context that a `traceparent` header names. None if the header is not valid or its trace is not recorded."""
    match = _HEADER.fullmatch(text)
    if match is None or not int(match[3], 16) & _SAMPLED:
        return None
    return SpanContext(match[1], match[2]) if int(match[1], 16) and int(match[2], 16) else None


def append_span(start: SpanContext) -> SpanContext:
    """Return the span in which admission records an operation that was started in the span `start`."""
    return start.of("append to log")


def placement_span(operation: SpanContext, node: NodeName, allocation: AllocationId) -> SpanContext:
    """Return the span of the heartbeat that started an allocation.

    The node's name is part of the span's id, because allocators of two trees may give the same name to an allocation.
    """
    return operation.of("placement", node, allocation)


def job_span(operation: SpanContext, key: JobKey) -> SpanContext:
    """Return the span of one run of a job."""
    return operation.of("job", key.operation, key.index, key.attempt)


def job_trace(trace: str, key: JobKey) -> str:
    """Return the `TRACEPARENT` of a job: the job's own span, or the span of the start if it gets none. Empty if nothing is traced."""
    operation = read_trace(trace)
    return "" if operation is None else (job_span(operation, key) if has_span(key) else operation).header()


def has_span(job: JobKey | JobSlot) -> bool:
    """True if runs of the job have spans when its operation is traced."""
    return job.index < TRACED_JOBS


class TraceHeartbeat(msgspec.Struct, frozen=True):
    """person → agent: send a heartbeat now, and trace it."""

    node: NodeName


class HeartbeatTraced(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The traced heartbeat is finished."""

    trace_id: TraceId
