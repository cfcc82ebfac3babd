"""Group commit: at most one append is in flight, and all events that arrive during this append are sent together in the next append.

Only the expected last sequence number in each append keeps a former writer from adding entries. Several appends in flight, with predicted
sequence numbers, were tried. Then a former writer could add an entry after an entry of its successor. If the answer to an append is lost,
the log itself shows whether the entry was added. The entry after the writer's last known entry is either missing (send the same entry
again), or exactly what was sent (continue), or another writer's (step down). An answer to a request that added no entry must not come from
a former writer either. So `flush` reads the log after the last known entry, and fails if another writer has added an entry there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import anyio
import anyio.lowlevel

from headrace.bus.protocol import (
    AppendRefused,
    AppendUnknown,
    BusClosed,
    BusError,
    Log,
    PermissionRefused,
    TooLarge,
)
from headrace.obs.log_throttle import LogThrottle
from headrace.obs.logging import logger

#: Upper bound of the bytes of all events of one entry.
MAX_GROUP_BYTES = 256 * 1024
#: Bytes that are counted for each event beside its own bytes, because the caller's encoding may add bytes. Otherwise
#: very many tiny events could make a message that is too large for the bus.
_FRAME_BYTES = 8
#: Number of callers that are woken in one turn of the loop. It is small, because each caller then encodes and sends an answer.
_TOLD_IN_A_TURN = 16
_FIRST_RETRY_S = 0.02
_LONGEST_RETRY_S = 1.0
#: Seconds after which a read is repeated. A read from a log without a leader is never answered, and the repeated read
#: gets the answer of the new leader.
_READ_TIMEOUT_S = 1.0


class AppenderFenced(BusError):
    """Another process writes this log now. This process can add nothing more.

    Whether events that still wait in this process are in the log is unknown.
    """


class _Waiting:
    """Log events of one call that go into the same entry, and the result for which the caller waits. A call of `flush` has no
    log events.
    """

    def __init__(self, events: list[bytes], since_s: float) -> None:
        self.events = events
        self.size_bytes = sum(len(event) + _FRAME_BYTES for event in events)
        self.since_s = since_s
        self.done = anyio.Event()
        self.sequence = 0
        self.error: BusError | None = None


class GroupAppender:
    """The single writer of a log. `run` does the work, and `append` waits for it.

    `encode` builds one entry from some events and includes the writer's term. Two writers must never build equal entries. `encode` is
    called once for each entry, in the order of the log. `term_of` reads the term of an entry; it returns None if no appender wrote the
    entry. `term` is this writer's term, used only in the error that says which term took over. `last` is the sequence number of the last
    entry that this writer has read; its own entries follow. `on_durable(events, sequence)` is called for each entry once it is in the log,
    in order, before the callers waiting for it continue. The appender retries without end. Callers watch `waiting` and `oldest_waiting_s`
    and refuse new work in time.
    """

    def __init__(
        self,
        log: Log,
        *,
        encode: Callable[[list[bytes]], bytes],
        term_of: Callable[[bytes], int | None],
        last: int,
        clock: Callable[[], float],
        term: int = 0,
        on_durable: Callable[[list[bytes], int], None] | None = None,
        append_timeout_s: float = 2.0,
    ) -> None:
        self._log = log
        self._encode = encode
        self._term_of = term_of
        self._last = last
        self._term = term
        self._on_durable = on_durable
        self._append_timeout_s = append_timeout_s
        self._clock = clock
        self._queue: deque[_Waiting] = deque()
        self._waiting = 0
        self._sent: list[_Waiting] = []
        self._wake = anyio.Event()
        self._end: BusError | None = None
        self._throttle = LogThrottle(clock)
        self.entries = 0
        self.events = 0
        #: Reason why the log did not take the oldest waiting event at the last try; empty while the log takes everything.
        self.trouble = ""
        #: Number of appends whose outcome had to be read from the log.
        self.doubts = 0
        #: Number of entries that were sent again.
        self.resent = 0
        #: Number of entries in the log that no appender wrote.
        self.foreign = 0

    @property
    def why_waiting(self) -> str:
        """The reason why events wait, in words for a person whose request was not recorded."""
        return self.trouble or "the log is slow, has no leader at present, or its disk is full"

    @property
    def waiting(self) -> int:
        """The number of events that may not be in the log yet."""
        return self._waiting

    def oldest_waiting_s(self, now_s: float) -> float:
        """Return the seconds that the oldest waiting event has waited; 0 if no event waits. `now_s` is the present time of the clock that
        this appender was given.
        """
        oldest = self._sent[0] if self._sent else self._queue[0] if self._queue else None
        return max(0.0, now_s - oldest.since_s) if oldest else 0.0

    def statistics(self) -> dict[str, int]:
        return {
            "last": self._last,
            "entries": self.entries,
            "events": self.events,
            "waiting": self.waiting,
            "doubts": self.doubts,
            "resent": self.resent,
            "foreign": self.foreign,
        }

    async def append(self, events: Sequence[bytes]) -> int:
        """Add events in their order, in one entry if they fit. All are durable when this returns.

        Return the sequence number of the entry that holds the last event. Raises `TooLarge` at once for an event over `MAX_GROUP_BYTES`,
        `AppenderFenced` if another process writes the log, and `AppendUnknown` if the appender was stopped meanwhile. If the caller is
        cancelled while it waits, its events are appended nevertheless.
        """
        items = self._add(events)
        for item in items:
            await _end_of(item)
        return items[-1].sequence if items else self._last

    def add(self, events: Sequence[bytes]) -> None:
        """Add events as `append` does, without waiting for the log. Raises the errors of `append` that are known at once."""
        self._add(events)

    def _add(self, events: Sequence[bytes]) -> list[_Waiting]:
        for event in events:
            if len(event) > MAX_GROUP_BYTES - _FRAME_BYTES:
                raise TooLarge("an event of the log", len(event), MAX_GROUP_BYTES - _FRAME_BYTES)
        if self._end is not None:
            raise self._end
        if not events:
            return []
        items = [_Waiting(part, self._clock()) for part in _split(events)]
        self._queue.extend(items)
        self._waiting += len(events)
        self._wake.set()
        return items

    async def flush(self) -> None:
        """Return when everything appended so far is durable and no other writer has added an entry after it. Raises the
        errors of `append`.

        Without `flush`, a writer that was replaced by another writer would notice the replacement only when it appends its next event.
        """
        if self._end is not None:
            raise self._end
        if not self._queue or self._queue[-1].events:
            self._queue.append(_Waiting([], self._clock()))
            self._wake.set()
        await _end_of(self._queue[-1])

    async def run(self) -> None:
        """Append until cancelled. Raises `AppenderFenced`, or `BusClosed` when the bus is closed for good."""
        end: BusError = AppendUnknown("the appender was stopped; events that waited may or may not be in the log")
        try:
            while True:
                if not self._queue:
                    self._wake = anyio.Event()
                    await self._wake.wait()
                self._take_group()
                events = [event for item in self._sent for event in item.events]
                if events:
                    self._last = await self._commit(self._encode(events))
                else:
                    await self._look_for(None, chain((0.0,), _pauses()))
                await self._tell(self._finish(events))
        except BusError as error:
            end = error
            raise
        finally:
            self._end = end
            for item in (*self._sent, *self._queue):
                item.error = end
                item.done.set()
            self._sent = []
            self._queue.clear()
            self._waiting = 0

    def _take_group(self) -> None:
        size_bytes = 0
        while self._queue and (not self._sent or size_bytes + self._queue[0].size_bytes <= MAX_GROUP_BYTES):
            item = self._queue.popleft()
            size_bytes += item.size_bytes
            self._sent.append(item)

    def _finish(self, events: list[bytes]) -> list[_Waiting]:
        self.trouble = ""
        sent, self._sent = self._sent, []
        if events:
            self.entries += 1
            self.events += len(events)
            self._waiting -= len(events)
            if self._on_durable is not None:
                self._on_durable(events, self._last)
        for item in sent:
            item.sequence = self._last
        return sent

    async def _tell(self, durable: list[_Waiting]) -> None:
        """Wake the callers that wait, a few in each turn of the loop."""
        try:
            for number, item in enumerate(durable, 1):
                item.done.set()
                if not number % _TOLD_IN_A_TURN:
                    await anyio.lowlevel.checkpoint()
        finally:
            for item in durable:
                item.done.set()

    async def _commit(self, entry: bytes) -> int:
        pauses_s = _pauses()
        while True:
            try:
                return await self._log.append(entry, expected_last=self._last, timeout_s=self._append_timeout_s)
            except (AppendRefused, AppendUnknown) as error:
                self.doubts += 1
                self.trouble = str(error)
                self._report("append not confirmed", error)
            if await self._look_for(entry, pauses_s):
                return self._last + 1
            self.resent += 1

    async def _look_for(self, entry: bytes | None, pauses_s: Iterable[float]) -> bool:
        """Read the log after the last known entry. Repeat the read until it succeeds. Return True if `entry` follows the last known entry,
        False if no entry follows it.
        """
        for pause_s in pauses_s:
            await anyio.sleep(pause_s)
            try:
                with anyio.fail_after(_READ_TIMEOUT_S):
                    return await self._is_in_log(entry)
            except TimeoutError:
                self._report("log cannot be read", AppendUnknown("no answer"))
            except (BusClosed, AppenderFenced, PermissionRefused):
                raise
            except BusError as error:
                self._report("log cannot be read", error)
        raise AssertionError("the pauses between retries must never end")

    async def _is_in_log(self, entry: bytes | None) -> bool:
        """True if `entry` follows the last known entry, False if no entry follows it. Raises `AppenderFenced` if an entry of another
        term follows it.

        An entry without a term was not written by an appender, so its writer had no right to write to the log. Such an entry is skipped and
        logged as an error.
        """
        first, last = await self._log.bounds()
        if last < self._last:
            raise AppenderFenced(f"the log ends at {last}, but {self._last} was acknowledged: it lost entries")
        if first > self._last + 1:
            raise AppenderFenced(f"the log has removed the entries that follow entry {self._last}")
        if last == self._last:
            return False
        async for found in self._log.read(self._last):
            if found.data == entry:
                return True
            term = self._term_of(found.data)
            if term is not None:
                whose = f"of term {term}" + (f", and this process has term {self._term}" if self._term else "")
                raise AppenderFenced(f"entry {found.sequence} of the log was not sent by this process; it is {whose}")
            self.foreign += 1
            logger().error("foreign entry in the log", sequence=found.sequence, size_bytes=len(found.data))
            self._last = found.sequence
        return False

    def _report(self, what: str, error: BusError) -> None:
        if self._throttle.due(what):
            logger().warning(what, last=self._last, waiting=self.waiting, error=str(error))


async def _end_of(item: _Waiting) -> None:
    await item.done.wait()
    if item.error is not None:
        raise item.error


def _pauses() -> Iterator[float]:
    """Yield the pauses between retries in seconds, each longer than the one before, up to a bound."""
    pause_s = _FIRST_RETRY_S
    while True:
        yield pause_s
        pause_s = min(_LONGEST_RETRY_S, 2 * pause_s)


def _split(events: Sequence[bytes]) -> list[list[bytes]]:
    parts: list[list[bytes]] = [[]]
    size_bytes = 0
    for event in events:
        size_bytes += len(event) + _FRAME_BYTES
        if size_bytes > MAX_GROUP_BYTES and parts[-1]:
            parts.append([])
            size_bytes = len(event) + _FRAME_BYTES
        parts[-1].append(event)
    return parts
