"""Answers people who read the logs of jobs of this host."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import anyio.to_thread

from headrace.errors import BadInput, shortened
from headrace.runtime.border import Caller
from headrace.wire.heartbeat import JobKey
from headrace.wire.logs import LogChunk, ReadLog
from headrace.wire.refusals import BadRequest, NotFound, NotReady
from headrace_agent.job_logs.reader import newest_attempt, read_log


class JobLogs:
    """Answers requests for logs.

    `known_attempt` gives the newest attempt at a job that the agent knows. `runs` says whether a run of it is not over.
    """

    def __init__(
        self, folder: str, known_attempt: Callable[[str, int], int | None], runs: Callable[[JobKey], bool]
    ) -> None:
        self._folder = folder
        self._known_attempt = known_attempt
        self._runs = runs

    async def on_read(self, request: ReadLog, _caller: Caller) -> LogChunk | NotFound | BadRequest | NotReady:
        known = self._known_attempt(request.operation, request.index)
        try:
            return await anyio.to_thread.run_sync(partial(self._read, request, known))
        except BadInput as error:
            return BadRequest(place=error.place, value=shortened(str(error.value)), expected=error.expected)
        except OSError as error:
            return NotReady(why=f"the log cannot be read: {error.strerror}")

    def _read(self, request: ReadLog, known: int | None) -> LogChunk | NotFound:
        written = newest_attempt(self._folder, request.operation, request.index)
        attempt = request.attempt or max(known or 0, written or 0)
        missing = NotFound(what="job", name=f"{request.operation}.{request.index}.{request.attempt or 'newest'}")
        if not attempt:
            return missing
        key = JobKey(request.operation, request.index, attempt)
        # Asked before reading: of a job that ends in between, the next request tells the end.
        runs = self._runs(key)
        chunk = read_log(self._folder, key, request.stream.value, request.offset, request.limit)
        if not chunk.exists and known is None and not os.path.isdir(f"{self._folder}/{request.operation}"):
            return missing
        return LogChunk(
            data=chunk.data,
            next_offset=chunk.next_offset,
            attempt=attempt,
            ended=not runs and chunk.next_offset >= chunk.size,
        )
