"""Logs of jobs: the conversation of a person with the agent of the node where the job ran.

A log is a stream of bytes that only grows. Its beginning may have been rotated away. Offsets count from the first byte that the job
ever wrote. A reader that follows a log asks again with the `next_offset` of the last answer.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from headrace.ids import OperationId
from headrace.wire.version import Counter

#: Largest number of bytes of a log in one answer.
MOST_LOG_BYTES = 256 * 1024


class LogStream(enum.StrEnum):
    """The two output streams of a job."""

    STDOUT = "stdout"
    STDERR = "stderr"


class ReadLog(msgspec.Struct, frozen=True):
    """person → agent: ask for bytes of a job's output."""

    operation: OperationId
    index: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    #: Attempt; null: the newest attempt on this node.
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None = None
    stream: LogStream = LogStream.STDOUT
    #: Offset in bytes from the beginning; if negative, from the end.
    offset: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] = 0
    #: Largest number of bytes in the answer.
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_LOG_BYTES)] = 64 * 1024


class AskLogReader(msgspec.Struct, frozen=True):
    """agent → admission: ask whether a person may read the output of an operation's jobs."""

    operation: Annotated[OperationId, msgspec.Meta(max_length=200)]
    user: Annotated[str, msgspec.Meta(max_length=200)]
    #: Tree of the agent, if the person wants a session with a job; a tree can refuse sessions. Empty: the person wants to read output.
    session_in: Annotated[str, msgspec.Meta(max_length=200)] = ""


class LogReader(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The person may read the output, or have the session. If not, the answer is a refusal instead, which the agent gives to the person."""

    #: Unix time of the operation's start in milliseconds, as in `JobSpec`. The person may read the output of this operation only, and
    #: not that of an earlier operation with the same id.
    started_at_ms: Counter = 0


class LogChunk(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Bytes of a log. The first byte has the offset `next_offset - len(data)`.

    If the wanted bytes were rotated away, the answer has the oldest bytes that are left.
    """

    data: Annotated[bytes, msgspec.Meta(max_length=MOST_LOG_BYTES)]
    #: Offset of the first byte after `data`.
    next_offset: Counter
    #: Attempt that wrote the bytes.
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    #: True if the job has ended and this is the end of its output.
    ended: bool
    #: Number of bytes that the job has written so far. Agents of former versions report 0.
    written: Counter = 0
