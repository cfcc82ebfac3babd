"""Answers users who read the logs of this host's jobs, if admission allows it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from headrace.bus import Bus, BusError
from headrace.errors import BadInput
from headrace.ids import OperationId
from headrace.runtime.clock import Clock
from headrace.runtime.endpoints import Caller
from headrace.wire.codec import BadMessage, MessageTooLarge, encode
from headrace.wire.heartbeat import JobKey
from headrace.wire.logs import AskLogReader, LogChunk, LogReader, ReadLog
from headrace.wire.refusals import BadRequest, NotAllowed, NotFound, NotReady, Refusal, decode_answer
from headrace_agent.job_logs.reader import newest_attempt, read_log
from headrace_agent.runner.files.start_folder import folder_of_start

_ADMISSION_S: Final = 2.0
#: Seconds for which an answer of admission is reused, because a client that follows a log asks many times a second. So a person whose right
#: to read is taken away can read for at most this time longer.
_HOLDS_S: Final = 0.5
#: Seconds for which a permission to read is reused while admission does not answer, for example while a standby takes over.
_HOLDS_UNANSWERED_S: Final = 10.0
_MOST_SAID: Final = 10_000
#: Upper bound of the bytes of output that people can read from this node in a second. A node that sends twice as much is held out.
_MOST_READ_BYTES_PER_S: Final = 32 * 1024 * 1024


class Readers:
    """Asks admission who may read which logs, and who may have sessions."""

    def __init__(self, bus: Bus, clock: Clock, subject: str) -> None:
        self._bus = bus
        self._clock = clock
        self._subject = subject
        #: Answers of admission, each with the time of the answer in seconds.
        self._said: dict[tuple[OperationId, str, str], tuple[LogReader | Refusal, float]] = {}

    async def refusal_of(self, operation: OperationId, user: str, *, session_in: str = "") -> Refusal | None:
        """Return the refusal for a user who may not read the logs of an operation, or None if the user may read them.

        With `session_in` (the tree of this node), the answer says whether the user may have a session with the operation's jobs.
        """
        answer = await self.ask(operation, user, session_in=session_in)
        return None if isinstance(answer, LogReader) else answer

    async def ask(self, operation: OperationId, user: str, *, session_in: str = "") -> LogReader | Refusal:
        """Return admission's answer: the user may read the logs, or a refusal. `session_in` as in `refusal_of`."""
        now_s = self._clock.steady_s()
        said = self._said.get((operation, user, session_in))
        if said is not None and now_s < said[1] + _HOLDS_S:
            return said[0]
        try:
            request = encode(AskLogReader(operation, user, session_in))
            data = await self._bus.request(self._subject, request, timeout_s=_ADMISSION_S)
            answer = decode_answer(data, LogReader)
        except (BusError, BadMessage, MessageTooLarge) as error:
            was_allowed = said is not None and isinstance(said[0], LogReader)
            # A session that admission allowed earlier continues while admission is down, just as the job of the session continues.
            if said is not None and was_allowed and (session_in or now_s < said[1] + _HOLDS_UNANSWERED_S):
                return said[0]
            what = "have a session with the job" if session_in else "read the log"
            return NotReady(f"admission does not say whether {user} may {what}: {error}")
        if isinstance(answer, LogReader | NotAllowed | BadRequest):
            if len(self._said) >= _MOST_SAID:
                self._said.clear()
            self._said[operation, user, session_in] = answer, now_s
        return answer


class AnswerRate:
    """Delays answers that contain output of jobs. Otherwise people who read logs could make this node send so much that it is held out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at_s = 0.0

    async def wait(self, answer_bytes: int) -> None:
        """Wait until an answer of this size may be sent."""
        now_s = self._clock.steady_s()
        wait_s = max(0.0, self._free_at_s - now_s)
        self._free_at_s = now_s + wait_s + answer_bytes / _MOST_READ_BYTES_PER_S
        await anyio.sleep(wait_s)


class JobLogs:
    """Answers requests for logs.

    `known_attempt` returns the newest attempt of a job that the agent knows. `runs` returns whether an attempt is still running.
    `tells_starts_apart` returns whether the runner does, as in its full report.
    """

    def __init__(
        self,
        folder: str,
        readers: Readers,
        rate: AnswerRate,
        known_attempt: Callable[[str, int], int | None],
        runs: Callable[[JobKey], bool],
        tells_starts_apart: Callable[[], bool],
    ) -> None:
        self._folder = folder
        self._readers = readers
        self._rate = rate
        self._known_attempt = known_attempt
        self._runs = runs
        self._tells_starts_apart = tells_starts_apart

    async def on_read(self, request: ReadLog, caller: Caller) -> LogChunk | Refusal:
        reader = await self._readers.ask(request.operation, caller.name)
        if not isinstance(reader, LogReader):
            return reader
        started_at_ms = reader.started_at_ms if self._tells_starts_apart() else 0
        known = self._known_attempt(request.operation, request.index)
        try:
            answer = await anyio.to_thread.run_sync(partial(self._read, request, known, started_at_ms))
            await self._rate.wait(len(answer.data) if isinstance(answer, LogChunk) else 0)
            return answer
        except BadInput as error:
            return BadRequest.of(error)
        except OSError as error:
            return NotReady(why=f"the log cannot be read: {error.strerror}")

    def _read(self, request: ReadLog, known: int | None, started_at_ms: int) -> LogChunk | NotFound:
        written = newest_attempt(self._folder, request.operation, request.index, started_at_ms=started_at_ms)
        attempt = request.attempt or max(known or 0, written or 0)
        missing = NotFound(what="job", name=f"{request.operation}.{request.index}.{request.attempt or 'newest'}")
        if not attempt:
            return missing
        key = JobKey(request.operation, request.index, attempt)
        # The check that the job runs comes before its log is read. If the job ends in between, this answer still says that it runs, and the
        # next answer has the rest of the log and the end.
        runs = self._runs(key)
        offset, limit = request.offset, request.limit
        chunk = read_log(self._folder, key, request.stream.value, offset, limit, started_at_ms=started_at_ms)
        folder = f"{self._folder}/{folder_of_start(request.operation, started_at_ms)}"
        if not chunk.exists and known is None and not os.path.isdir(folder):
            return missing
        return LogChunk(
            data=chunk.data,
            next_offset=chunk.next_offset,
            attempt=attempt,
            ended=not runs and chunk.next_offset >= chunk.size,
            written=chunk.size,
        )
