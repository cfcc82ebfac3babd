"""Events on their way to the log, and out of it to everybody.

One append is in flight. Events decided meanwhile travel in the next entry. An entry is published when it is durable, in order, once
by this process. A reader that misses one reads it from the stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final

import anyio
import msgspec

from headrace.bus import AppenderFenced, Bus, BusError, GroupAppender, Log, LogEntry
from headrace.ids import OperationId, TreeName
from headrace.obs import tracing
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace.runtime.engine import Figure, counter, gauge
from headrace.runtime.role import Deposed
from headrace.wire import subjects
from headrace.wire.codec import MessageTooLarge, decode, encode
from headrace.wire.happenings import recorded
from headrace.wire.log import Event, LogBatch, OperationStarted, Published
from headrace_admission.log.byte_budget import encode_event

_NO_SPAN: Final = nullcontext()
#: Entries that persons are still to be told of.
_MOST_TO_TELL: Final = 1_000


class _RawBatch(msgspec.Struct, frozen=True):
    """A `LogBatch` whose events are encoded already."""

    term: int
    events: list[msgspec.Raw]
    writer: str
    number: int


class _TermOnly(msgspec.Struct, frozen=True):
    term: int


def term_of(data: bytes) -> int | None:
    """The term of an entry of the log. None for one that no admission wrote."""
    try:
        return msgspec.msgpack.decode(data, type=_TermOnly).term
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def batch_of(entry: LogEntry) -> LogBatch:
    """Reads an entry. A foreign entry has no term and no events. Raises `BadMessage` for an entry of admission that is damaged."""
    return LogBatch(0, []) if term_of(entry.data) is None else decode(entry.data, LogBatch)


def encode_batch(term: int, events: list[bytes], writer: str, number: int) -> bytes:
    """An entry of the log, made of encoded events."""
    return msgspec.msgpack.encode(_RawBatch(term, [msgspec.Raw(event) for event in events], writer, number))


@contextmanager
def _deposed_if_fenced() -> Iterator[None]:
    try:
        yield
    except AppenderFenced as error:
        raise Deposed(str(error)) from None


class Recorder:
    """The single appender of one term."""

    def __init__(
        self,
        bus: Bus,
        log: Log,
        tree: TreeName,
        *,
        term: int,
        last: int,
        writer: str,
        clock: Clock,
        on_durable: Callable[[list[Event], int], None],
        news: Bus | None = None,
    ) -> None:
        """`news` is the connection for what persons may hear; `bus` where there is none of its own."""
        self._bus = bus
        self._news = news or bus
        self._tree = tree
        self._term = term
        self._writer = writer
        self._on_durable = on_durable
        self._number = 0
        #: Events that are not durable, in the order of the decisions.
        self._waiting: deque[Event] = deque()
        self._durable_count = 0
        self._durable_bytes = 0
        #: Durable and to be published.
        self._to_publish: deque[Published] = deque()
        self._publish_wanted = anyio.Event()
        #: Of what is published, the entries that persons were not told of. A reader sees that it misses those beyond.
        self._to_tell: deque[Published] = deque(maxlen=_MOST_TO_TELL)
        self._tell_wanted = anyio.Event()
        self._sequence = self._announced = last
        self.appender = GroupAppender(
            log,
            encode=self._encode,
            term_of=term_of,
            last=last,
            clock=clock.steady_s,
            on_durable=self._durable,
        )

    @property
    def recorded(self) -> tuple[int, int]:
        """Events that this term recorded, and their bytes."""
        return self._durable_count, self._durable_bytes

    @property
    def sequence(self) -> int:
        """The last entry that is durable."""
        return self._sequence

    def unrecorded_starts(self) -> set[OperationId]:
        """The operations of which not even the start is durable. Nobody was told that they are."""
        return {event.operation for event in self._waiting if isinstance(event, OperationStarted)}

    async def record(self, events: Sequence[Event]) -> int:
        """Records the events of a decision. When it returns the entry that holds the last, they are durable.

        To be called without a pause after the decision, so that the log has the order of the decisions. Cancelling the wait takes
        nothing back. Raises `Deposed` when somebody else writes the log: whoever waits here is answered by the successor.
        """
        with (
            tracing.child("append to log", {"events": len(events)}) if tracing.current() else _NO_SPAN,
            _deposed_if_fenced(),
        ):
            return await self.appender.append(self._taken(events))

    def note(self, events: Sequence[Event]) -> None:
        """Records as `record` does, for decisions whose answer nobody waits for."""
        self.appender.add(self._taken(events))

    async def flush(self) -> None:
        """Returns when everything that was decided before is durable, and no other term has recorded anything behind it.

        Raises `Deposed` as `record` does.
        """
        with _deposed_if_fenced():
            await self.appender.flush()

    async def publish(self) -> None:
        """Publishes durable events until cancelled."""
        while True:
            while self._to_publish:
                await self._send(self._to_publish.popleft())
            self._publish_wanted = anyio.Event()
            await self._publish_wanted.wait()

    async def tell(self) -> None:
        """Tells persons of what was published, until cancelled. The services do not wait for the connections of persons."""
        while True:
            while self._to_tell:
                published = self._to_tell.popleft()
                await self._try_publish(self._news, subjects.HAPPENINGS, published.sequence, recorded(published))
            self._tell_wanted = anyio.Event()
            await self._tell_wanted.wait()

    async def tell_position(self) -> None:
        """Publishes the end of the log, with no events."""
        await self._send(Published(self._tree, self._term, self._sequence, self._sequence, announced=self._announced))

    def figures(self) -> list[Figure]:
        """The figures of the log and its appender."""
        statistics = self.appender.statistics()
        return [
            counter("events_recorded", "events", statistics["events"], "Events in the log."),
            counter("log_entries", "entries", statistics["entries"], "Groups of events in the log."),
            gauge("events_waiting_for_log", "events", statistics["waiting"], "Events whose record is on its way."),
            counter(
                "appends_in_doubt",
                "entries",
                statistics["doubts"],
                "Records of which it had to be found out whether they were in the log.",
            ),
            counter("appends_sent_again", "entries", statistics["resent"], "Records that were sent again."),
        ]

    def _taken(self, events: Sequence[Event]) -> list[bytes]:
        encoded = [encode_event(event) for event in events]
        self._waiting.extend(events)
        return encoded

    def _encode(self, events: list[bytes]) -> bytes:
        self._number += 1
        return encode_batch(self._term, events, self._writer, self._number)

    def _durable(self, encoded: list[bytes], sequence: int) -> None:
        events = [self._waiting.popleft() for _ in encoded]
        self._sequence = sequence
        self._durable_count += len(events)
        self._durable_bytes += sum(map(len, encoded))
        # First of all that follows from the entry: the walk to a process goes on by it, and nobody else is in such a hurry.
        self._to_publish.append(Published(self._tree, self._term, sequence, sequence - 1, events, self._announced))
        self._publish_wanted.set()
        self._on_durable(events, sequence)

    async def _send(self, published: Published) -> None:
        await self._try_publish(self._bus, subjects.EVENTS, published.sequence, published)
        self._to_tell.append(published)
        self._tell_wanted.set()

    async def _try_publish(self, bus: Bus, subject: str, sequence: int, message: msgspec.Struct) -> None:
        try:
            await bus.publish(subject, encode(message))
        except (BusError, MessageTooLarge) as error:
            # A reader sees by the next position that it misses something. A service reads it from the stream.
            logger().info("events not published", subject=subject, sequence=sequence, error=str(error))
