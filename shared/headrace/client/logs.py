"""Output of jobs, line by line, read from the agents of the nodes where the jobs ran.

To read a log, a reader asks the agent of the job's node for the bytes after an offset. If there are no new bytes, a follower asks again a
moment later, because an agent keeps no record of readers and so cannot notify them. A follower reads a bounded amount per second. If a job
writes faster, the follower skips bytes, and reports how many. A follower spends at most a tenth of its time on requests for the jobs that
run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import count
from typing import Final, Protocol, TypedDict

import anyio
import msgspec

from headrace.client.asking import Asker
from headrace.client.errors import Unanswered, Unreadable
from headrace.errors import BadInput
from headrace.ids import OperationId
from headrace.wire.logs import LogChunk, LogStream, ReadLog
from headrace.wire.nodes import JobPlace, OperationPlaces
from headrace.wire.operations import FINAL_STATES, JobRow, OperationView
from headrace.wire.refusals import BadRequest, NotFound, Refused

_CHUNK_BYTES: Final = 64 * 1024
_TIMEOUT_S: Final = 5.0
#: Seconds until a log that had nothing new is read again. The pause doubles with each reading that finds nothing new.
_NOTHING_NEW_S: Final = 0.25
#: Longest pause before a log that had nothing new is read again, in seconds.
_LONGEST_PAUSE_S: Final = 2.0
#: The pause before running and ended jobs are requested again, as a multiple of the time that the last requests took.
_PAUSE_OF_LOOKS: Final = 10
#: Seconds without an answer about the operation after which a follower gives up.
_LONGEST_SILENCE_S: Final = 60.0
#: Longest line in bytes. A longer line is yielded in pieces.
_LONGEST_LINE: Final = 1024 * 1024
#: Bytes per second that a follower reads from all logs together.
_FOLLOWED_BYTES_A_S: Final = 4 * 1024 * 1024
#: Largest number of bytes that a follower may be behind the end of a log. If it is further behind, it skips bytes.
_FARTHEST_BEHIND_BYTES: Final = 4 * 1024 * 1024
#: Number of chunks read from one log before the next log is read.
_CHUNKS_A_TURN: Final = 8


class LogWishes(TypedDict, total=False):
    """Options of a reader of logs."""

    #: True: read stderr instead of stdout.
    stderr: bool
    #: True: read both streams; each line carries its stream.
    both: bool
    #: True: yield lines of all jobs as they arrive, until the operation is over and everything was read.
    follow: bool
    #: Number of the attempt whose output is read. If not given: the newest attempt that ended, and the running attempt.
    attempt: int
    #: Number of bytes to read at the end of each stream. The first line may be partial.
    tail_bytes: int


class LogLine(msgspec.Struct, frozen=True):
    """One line of a job's output, without its line end. Bytes that are not UTF-8 are replaced in `text`."""

    index: int
    attempt: int
    node: str
    text: str
    stream: LogStream = LogStream.STDOUT
    #: Number of bytes before this line that the node no longer has, because the output exceeded its cap.
    missing_bytes: int = 0
    #: Number of bytes before this line that a follower skipped to keep up; the node still has them.
    skipped_bytes: int = 0
    #: Why the rest of this job's output cannot be read. The line then has no text.
    trouble: str = ""
    #: The bytes of the line as the job wrote them.
    raw: bytes = b""
    #: False if no line end follows these bytes: they are the end of the output, or a piece of a very long line.
    has_end: bool = True


class _Log:
    """One stream of one run of a job, and how far it was read."""

    def __init__(self, index: int, attempt: int, node: str, stream: LogStream, offset: int) -> None:
        self.index = index
        self.attempt = attempt
        self.node = node
        self.stream = stream
        self.offset = offset
        #: True if the run is over according to admission; the agent of the node may not know the job any more.
        self.over = False
        self.read_to_end = False
        #: Time of the next reading, in seconds.
        self.due_s = 0.0
        #: Seconds from a reading that finds nothing new to the next reading.
        self._pause_s = _NOTHING_NEW_S
        #: Number of missing bytes to report with the next line.
        self._missing_bytes = 0
        #: Number of skipped bytes to report with the next line.
        self._skipped_bytes = 0
        self._was_moved = False
        self._rest = b""

    def end(self) -> None:
        if not self.over:
            self.over, self.due_s = True, 0.0

    def add(self, chunk: LogChunk) -> list[LogLine]:
        begin = chunk.next_offset - len(chunk.data)
        jumped = self.offset >= 0 and chunk.data and begin > self.offset
        self._missing_bytes += begin - self.offset if jumped else 0
        # A gap ends the current line: the text before the gap is yielded as a line of its own, and the text after the gap begins a new
        # line.
        before = self.flush(has_end=True) if jumped or self._was_moved else []
        self._was_moved = False
        self.offset = chunk.next_offset
        self.read_to_end = not chunk.data and (chunk.ended or self.over)
        lines = (self._rest + chunk.data).split(b"\n")
        self._rest = lines.pop()
        found = [self._line(line) for line in lines]
        if self.read_to_end or len(self._rest) > _LONGEST_LINE:
            found += self.flush()
        if found and (self._missing_bytes or self._skipped_bytes):
            found[0] = msgspec.structs.replace(
                found[0], missing_bytes=self._missing_bytes, skipped_bytes=self._skipped_bytes
            )
            self._missing_bytes = self._skipped_bytes = 0
        return before + found

    def catch_up(self, written: int) -> None:
        """Skip ahead if the reader is too far behind the end of the log. `written` is the size of the log in bytes."""
        behind_bytes = written - self.offset - _CHUNK_BYTES
        if behind_bytes > _FARTHEST_BEHIND_BYTES:
            self._skipped_bytes += behind_bytes
            self._was_moved = True
            self.offset += behind_bytes

    def rest(self, news: bool, now_s: float) -> None:
        """Set the time of the next reading: at once if `news` is True (new bytes came), otherwise after a pause that grows with each
        reading without new bytes.
        """
        if news:
            self._pause_s = _NOTHING_NEW_S
            return
        self.due_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def give_up(self, why: str) -> LogLine:
        self.read_to_end = True
        return msgspec.structs.replace(self._line(b""), trouble=why)

    def flush(self, *, has_end: bool = False) -> list[LogLine]:
        """Return the text that has no line end yet."""
        rest, self._rest = self._rest, b""
        return [self._line(rest, has_end=has_end)] if rest else []

    def _line(self, raw: bytes, *, has_end: bool = True) -> LogLine:
        text = raw.decode(errors="replace")
        return LogLine(self.index, self.attempt, self.node, text, self.stream, raw=raw, has_end=has_end)


class Questions(Protocol):
    """The requests about an operation that a log reader needs. A `Client` implements them."""

    async def get(self, operation: str) -> OperationView: ...
    def jobs(self, operation: str) -> AsyncIterator[JobRow]: ...
    async def places(self, operation: str) -> OperationPlaces: ...


class JobLogReader:
    """Reads the output of one job, or of all jobs, of an operation."""

    def __init__(
        self, client: Questions, asker: Asker, operation: OperationId, job: int | None, wishes: LogWishes
    ) -> None:
        self._client = client
        self._asker = asker
        self._operation = operation
        self._job = job
        self._attempt = wishes.get("attempt")
        self._follow = wishes.get("follow", False)
        self._first_offset = -wishes.get("tail_bytes", 0)
        self._streams: Sequence[LogStream] = list(LogStream)
        if not wishes.get("both"):
            self._streams = [LogStream.STDERR if wishes.get("stderr") else LogStream.STDOUT]
        self._logs: dict[tuple[int, int, LogStream], _Log] = {}
        self._sequence = -1
        self._next_look_s = 0.0
        #: Newest known attempt of the job other than the requested attempt, and its node. Used only if an attempt was
        #: requested.
        self._newest = (0, "")
        #: True if the reader has no right to the output.
        self._is_withheld = False
        #: Time of the last answers of admission and allocator.
        self._heard_s = 0.0
        #: Nodes that did not answer. Without `follow`, nothing more is requested from these nodes.
        self._silent: dict[str, Unanswered] = {}
        #: Why it is unknown where jobs run.
        self._no_places: Unanswered | None = None

    async def read(self) -> AsyncIterator[LogLine]:
        """Yield the lines job by job, or with `follow` the lines of all jobs as they arrive, until the operation is over.

        If the running jobs are unknown or a node does not answer, `Unanswered` is raised after all lines that could be read. Raises
        `Refused`, `Unanswered`, `BadInput`.
        """
        view = await self._look()
        self._heard_s = anyio.current_time()
        if self._attempt is not None and not self._logs:
            if self._no_places is not None:
                raise self._no_places
            self._note_earlier(view, self._attempt)
        while True:
            news = False
            for log in self._due_logs():
                news_of_it = False
                async for line in self._read_on(log):
                    news = news_of_it = True
                    yield line
                log.rest(news_of_it, anyio.current_time())
            if not self._follow:
                break
            if view.state in FINAL_STATES and all(log.read_to_end for log in self._logs.values()):
                return
            if not news:
                await anyio.sleep(_NOTHING_NEW_S)
            if anyio.current_time() >= self._next_look_s:
                view = await self._look_again(view)
        for log in self._logs.values():
            for line in log.flush():
                yield line
        for error in (self._no_places, *self._silent.values()):
            if error is not None:
                raise error

    def _due_logs(self) -> list[_Log]:
        now_s = anyio.current_time()
        return [log for log in self._logs.values() if not log.read_to_end and log.due_s <= now_s]

    async def _look(self) -> OperationView:
        """Read the operation's view and learn which jobs ran or run, and where.

        The running jobs are requested each time, the ended jobs only if the view has changed.
        """
        began_s = anyio.current_time()
        view = await self._client.get(self._operation)
        self._is_withheld = view.is_withheld
        self._check(view.spec.job_count)
        if view.state not in FINAL_STATES:
            for place in await self._running():
                self._note(place.index, place.attempt, place.node)
        if view.sequence != self._sequence:
            self._sequence = view.sequence
            async for row in self._client.jobs(self._operation):
                if row.result is not None and row.node:
                    self._note(row.slot.index, row.slot.attempt, row.node, over=True)
        ended_s = anyio.current_time()
        self._next_look_s = ended_s + _PAUSE_OF_LOOKS * (ended_s - began_s)
        return view

    async def _look_again(self, view: OperationView) -> OperationView:
        """Call `_look` again. While no service answers, return the old view; after a minute without answers, raise `Unanswered`."""
        try:
            view = await self._look()
            self._heard_s = anyio.current_time()
        except Unanswered:
            if anyio.current_time() > self._heard_s + _LONGEST_SILENCE_S:
                raise
        return view

    def _check(self, job_count: int) -> None:
        if self._job is not None and self._job >= job_count:
            known = (
                f"0 to {job_count - 1}, the numbers of the jobs of this operation"
                if job_count > 1
                else "0, the only job of this operation"
            )
            raise Refused(BadRequest("job", str(self._job), known))
        if self._attempt is not None and self._job is None:
            if job_count > 1:
                raise BadInput.because(
                    "attempt", f"each job has its own attempts. Name a job as well, from 0 to {job_count - 1}"
                )
            self._job = 0

    def _note_earlier(self, view: OperationView, attempt: int) -> None:
        """Note a run that is not the newest of its job. Raises `Refused` if the run's node is no longer known."""
        found = [end.node for end in view.last_failures if (end.index, end.attempt) == (self._job, attempt)]
        newest, node = self._newest
        # If the node of this run is unknown, the node of a later run is tried.
        for known in filter(None, [*found, node if attempt < newest else ""]):
            self._note(self._job or 0, attempt, known, over=True)
            return
        known_one = (
            f"at most {newest}, the newest of job {self._job}"
            if attempt > newest
            else "an attempt whose node is still known"
        )
        raise Refused(BadRequest("attempt", str(attempt), known_one))

    async def _running(self) -> list[JobPlace]:
        try:
            return (await self._client.places(self._operation)).running
        except Refused as refused:
            if isinstance(refused.refusal, NotFound):
                return []  # The allocator does not know the operation yet, or the operation has just ended.
            raise
        except Unanswered as error:
            if self._follow:
                raise
            self._no_places = error
            return []

    def _note(self, index: int, attempt: int, node: str, *, over: bool = False) -> None:
        if self._job not in (None, index):
            return
        if self._attempt not in (None, attempt):
            self._newest = max(self._newest, (attempt, node))
            return
        for stream in self._streams:
            key = index, attempt, stream
            log = self._logs.get(key)
            if log is None:
                log = self._logs[key] = _Log(index, attempt, node, stream, self._first_offset)
            if over:
                log.end()

    async def _read_on(self, log: _Log) -> AsyncIterator[LogLine]:
        """Yield what the job has written until now; with `follow` at most `_CHUNKS_A_TURN` chunks of it."""
        if log.node in self._silent:
            yield log.give_up(f"node {log.node} does not answer")
            return
        end = 0
        for turn in count(1):
            try:
                chunk = await self._ask(log)
            except Unreadable as error:
                # Only this log is given up, because the output on other nodes can still be read.
                yield log.give_up(str(error))
                return
            except Unanswered as error:
                if not self._follow:
                    self._silent.setdefault(log.node, error)
                if log.over or not self._follow:
                    yield log.give_up(str(error))
                return
            except Refused as refused:
                # The refusal is raised in two cases: if the reader has no right to the output, because then every other node refuses as
                # well, and if one attempt was requested, because then there is no other log to read. In all other cases the logs on other
                # nodes can still be read.
                if self._is_withheld or self._attempt is not None:
                    raise
                is_gone = isinstance(refused.refusal, NotFound)
                if log.over or not (is_gone or self._follow):
                    gone = f"node {log.node} does not have the output any more"
                    yield log.give_up(gone if is_gone else str(refused))
                return
            if chunk.data and 0 <= chunk.next_offset <= log.offset:
                yield log.give_up(f"node {log.node} answers with bytes that were read before")
                return
            for line in log.add(chunk):
                yield line
            # Reading ends at the size that the log had at the first answer, because the job may write faster than the log is read. Later
            # bytes are left to the next reading.
            end = end or chunk.written
            if not chunk.data or (turn == _CHUNKS_A_TURN if self._follow else 0 < end <= log.offset):
                return
            if self._follow:
                log.catch_up(chunk.written)
                await anyio.sleep(len(chunk.data) / _FOLLOWED_BYTES_A_S)

    async def _ask(self, log: _Log) -> LogChunk:
        request = ReadLog(self._operation, log.index, log.attempt, log.stream, log.offset, _CHUNK_BYTES)
        return await self._asker.ask(f"job.logs.{log.node}", request, LogChunk, timeout_s=_TIMEOUT_S)
