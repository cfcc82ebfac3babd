"""Logs of jobs: the conversation of a person with the agent of the node where the job ran.

A log is a stream of bytes that only grows. Its beginning may have been rotated away. Offsets count from the first byte that the job
ever wrote, so a reader that follows a log asks again with the `next_offset` it was told.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from headrace.ids import OperationId
from headrace.wire.version import Counter

#: Of one answer.
MOST_LOG_BYTES = 256 * 1024


class LogStream(enum.StrEnum):
    """The two outputs of a job."""

    STDOUT = "stdout"
    STDERR = "stderr"


class ReadLog(msgspec.Struct, frozen=True):
    """person → agent: bytes of a job's output."""

    operation: OperationId
    index: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    #: Null: the newest on this node.
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None = None
    stream: LogStream = LogStream.STDOUT
    #: Bytes from the beginning; less than 0: so many before the end.
    offset: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] = 0
    #: Bytes in the answer, at most.
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_LOG_BYTES)] = 64 * 1024


class AskLogReader(msgspec.Struct, frozen=True):
    """agent → admission: may a person read what jobs of an operation wrote?"""

    operation: Annotated[OperationId, msgspec.Meta(max_length=200)]
    user: Annotated[str, msgspec.Meta(max_length=200)]


class LogReader(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The person may. Whoever may not is answered by the refusal that they are to get."""


class LogChunk(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Bytes from `next_offset - len(data)` on. Where the wanted ones were rotated away, the oldest that are left."""

    data: Annotated[bytes, msgspec.Meta(max_length=MOST_LOG_BYTES)]
    #: Ask with this for what follows.
    next_offset: Counter
    #: Which attempt this is of.
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    #: The job has ended, and this is the end of its output.
    ended: bool
    #: All that the job has written so far. Agents of former versions say 0.
    written: Counter = 0
