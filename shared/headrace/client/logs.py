"""Output of jobs, line by line, read from the agents of the nodes where they ran.

A log is read by asking its agent for what follows an offset. Following one means to ask again a moment after there was nothing new,
since an agent keeps no record of who reads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import anyio
import msgspec

from headrace.client.asking import Asker
from headrace.ids import OperationId
from headrace.wire.logs import LogChunk, LogStream, ReadLog
from headrace.wire.nodes import JobPlace, OperationPlaces
from headrace.wire.operations import FINAL_STATES, JobRow, OperationView
from headrace.wire.refusals import NotFound, Refused

_CHUNK_BYTES = 64 * 1024
_TIMEOUT_S = 5.0
_NOTHING_NEW_S = 0.25
#: A line that is longer is handed out in pieces.
_LONGEST_LINE = 1024 * 1024


class LogLine(msgspec.Struct, frozen=True):
    """One line of a job's output, without its line end. Bytes that are no UTF-8 are replaced."""

    index: int
    attempt: int
    node: str
    text: str


class _Log:
    """One stream of one run of a job, and how far it was read."""

    def __init__(self, index: int, attempt: int, node: str) -> None:
        self.index = index
        self.attempt = attempt
        self.node = node
        self.offset = 0
        #: The job is over, by what others say; its agent may not know it any more.
        self.over = False
        self.read_to_end = False
        self._rest = b""

    def take(self, chunk: LogChunk) -> list[LogLine]:
        self.offset = chunk.next_offset
        self.read_to_end = not chunk.data and (chunk.ended or self.over)
        lines = (self._rest + chunk.data).split(b"\n")
        self._rest = lines.pop()
        if self._rest and (self.read_to_end or len(self._rest) > _LONGEST_LINE):
            lines.append(self._rest)
            self._rest = b""
        return [LogLine(self.index, self.attempt, self.node, line.decode(errors="replace")) for line in lines]

    def flush(self) -> list[LogLine]:
        """Takes what has no line end yet."""
        rest, self._rest = self._rest, b""
        return [LogLine(self.index, self.attempt, self.node, rest.decode(errors="replace"))] if rest else []


class Questions(Protocol):
    """The questions about an operation that a reader of its logs asks. A `Client` answers them."""

    async def get(self, operation: str) -> OperationView: ...
    def jobs(self, operation: str) -> AsyncIterator[JobRow]: ...
    async def places(self, operation: str) -> OperationPlaces: ...


class JobLogReader:
    """Reads stdout or stderr of an operation's jobs."""

    def __init__(self, client: Questions, asker: Asker, operation: OperationId, *, stderr: bool) -> None:
        self._client = client
        self._asker = asker
        self._operation = operation
        self._stream = LogStream.STDERR if stderr else LogStream.STDOUT
        self._logs: dict[tuple[int, int], _Log] = {}
        self._sequence = -1

    async def read(self, job: int | None, *, follow: bool) -> AsyncIterator[LogLine]:
        """Lines job by job, or with `follow` as they come, until the operation is over.

        Raises `Refused`, `Unanswered`.
        """
        view = await self._client.get(self._operation)
        if job is not None and job >= view.spec.job_count:
            raise Refused(NotFound(what="job", name=f"{job} of {view.spec.job_count}"))
        while True:
            await self._look(view, job)
            news = False
            for log in [log for log in self._logs.values() if not log.read_to_end]:
                async for line in self._read_on(log):
                    news = True
                    yield line
            if not follow:
                break
            if view.state in FINAL_STATES and all(log.read_to_end for log in self._logs.values()):
                return
            if not news:
                await anyio.sleep(_NOTHING_NEW_S)
            view = await self._client.get(self._operation)
        for log in self._logs.values():
            for line in log.flush():
                yield line

    async def _look(self, view: OperationView, job: int | None) -> None:
        """Learns which jobs ran or run where: those that ended when the view changed, those that run each time."""
        if view.state not in FINAL_STATES:
            for place in await self._running():
                if job is None or place.index == job:
                    self._note(place.index, place.attempt, place.node)
        if view.sequence == self._sequence:
            return
        self._sequence = view.sequence
        async for row in self._client.jobs(self._operation):
            if row.result is not None and row.node and (job is None or row.slot.index == job):
                self._note(row.slot.index, row.slot.attempt, row.node).over = True

    async def _running(self) -> list[JobPlace]:
        try:
            return (await self._client.places(self._operation)).running
        except Refused as refused:
            if isinstance(refused.refusal, NotFound):
                return []  # the allocator has not heard of it yet, or it has just ended
            raise

    def _note(self, index: int, attempt: int, node: str) -> _Log:
        return self._logs.setdefault((index, attempt), _Log(index, attempt, node))

    async def _read_on(self, log: _Log) -> AsyncIterator[LogLine]:
        """Reads what the job has written by now."""
        while True:
            request = ReadLog(
                operation=self._operation,
                index=log.index,
                attempt=log.attempt,
                stream=self._stream,
                offset=log.offset,
                limit=_CHUNK_BYTES,
            )
            try:
                chunk = await self._asker.ask(f"job.logs.{log.node}", request, LogChunk, timeout_s=_TIMEOUT_S)
            except Refused as refused:
                if not isinstance(refused.refusal, NotFound):
                    raise
                # It has written nothing yet, or its logs were removed.
                log.read_to_end = log.over
                return
            for line in log.take(chunk):
                yield line
            if not chunk.data:
                return
