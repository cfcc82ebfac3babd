"""The recorder: appends events to the log, and publishes them when they are durable.

One append is in flight at a time. Events decided meanwhile go into the next entry. This process publishes each durable entry
once, in order. A reader that misses an entry reads it from the stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

import anyio
import msgspec

from headrace.bus import AppenderFenced, Bus, BusError, GroupAppender, Log, LogEntry
from headrace.ids import OperationId, TreeName
from headrace.obs import tracing
from headrace.obs.logging import logger
from headrace.obs.tracing import SpanKind
from headrace.runtime.clock import Clock
from headrace.runtime.engine import Figure, counter, gauge
from headrace.runtime.role import Deposed
from headrace.wire import subjects
from headrace.wire.codec import UNREADABLE, MessageTooLarge, decode, encode
from headrace.wire.happenings import recorded
from headrace.wire.log import Event, LogBatch, OperationStarted, Published
from headrace.wire.trace import SpanContext, append_span
from headrace_admission.log.byte_budget import encode_event

_NO_SPAN: Final = nullcontext()
#: Upper bound of the entries that wait to be published to users.
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
    """Return the term of a log entry; None if admission did not write the entry."""
    try:
        return msgspec.msgpack.decode(data, type=_TermOnly).term
    except UNREADABLE:
        return None


def batch_of(entry: LogEntry) -> LogBatch:
    """Decode an entry.

    An entry that admission did not write has term 0 and no events. Raises `BadMessage` for a damaged entry of admission.
    """
    return LogBatch(0, []) if term_of(entry.data) is None else decode(entry.data, LogBatch)


def encode_batch(term: int, events: list[bytes], writer: str, number: int) -> bytes:
    """Return an entry of the log, made of encoded events."""
    return msgspec.msgpack.encode(_RawBatch(term, [msgspec.Raw(event) for event in events], writer, number))


@contextmanager
def _deposed_if_fenced() -> Iterator[None]:
    try:
        yield
    except AppenderFenced as error:
        raise Deposed(str(error)) from None


class Recorder:
    """The only object that appends to the log in one term."""

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
        """`news` is a separate connection for publications to users; None: `bus` is used."""
        self._bus = bus
        self._news = news or bus
        self._tree = tree
        self._term = term
        self._writer = writer
        self._on_durable = on_durable
        self._number = 0
        #: Events that are not durable yet, in the order of the decisions.
        self._waiting: deque[Event] = deque()
        self._durable_count = 0
        self._durable_bytes = 0
        #: Durable entries that are to be published to services.
        self._to_publish: deque[Published] = deque()
        self._publish_wanted = anyio.Event()
        #: Entries that were published to services and are to be published to users. When the queue is full, the oldest entry is
        #: dropped; readers notice that they missed an entry.
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
        """Return the number of events that this term recorded, and the number of their bytes."""
        return self._durable_count, self._durable_bytes

    @property
    def sequence(self) -> int:
        """Return the sequence of the last durable entry."""
        return self._sequence

    def unrecorded_starts(self) -> set[OperationId]:
        """Return the operations whose start is not durable yet. No client has been informed of these starts."""
        return {event.operation for event in self._waiting if isinstance(event, OperationStarted)}

    async def record(self, events: Sequence[Event]) -> int:
        """Record the events of a decision, and return the sequence of the entry that holds the last event, once they are durable.

        There must be no `await` between the decision and this call, so that the log has the order of the decisions. If the wait is
        cancelled, the events are recorded all the same. Raises `Deposed` if another process writes the log; that process, the
        successor, then answers the request.
        """
        current = tracing.current()
        with _appending(current, events) if current else _NO_SPAN, _deposed_if_fenced():
            return await self.appender.append(self._taken(events))

    def note(self, events: Sequence[Event]) -> None:
        """Record events as `record` does, for decisions without a waiting caller."""
        self.appender.add(self._taken(events))

    async def flush(self) -> None:
        """Return when all earlier decisions are durable and no other term has recorded anything after them.

        Raises `Deposed` if another process writes the log.
        """
        with _deposed_if_fenced():
            await self.appender.flush()

    async def publish(self) -> None:
        """Publish durable events until cancelled."""
        while True:
            while self._to_publish:
                await self._send(self._to_publish.popleft())
            self._publish_wanted = anyio.Event()
            await self._publish_wanted.wait()

    async def publish_to_users(self) -> None:
        """Publish entries to users, until cancelled.

        Publishing to users is a task of its own, so that services do not wait for the connections of users.
        """
        while True:
            while self._to_tell:
                published = self._to_tell.popleft()
                await self._try_publish(self._news, subjects.HAPPENINGS, published.sequence, recorded(published))
            self._tell_wanted = anyio.Event()
            await self._tell_wanted.wait()

    async def tell_position(self) -> None:
        """Publish the sequence of the last entry, without events, so that readers notice entries that they missed."""
        await self._send(Published(self._tree, self._term, self._sequence, self._sequence, announced=self._announced))

    def figures(self) -> list[Figure]:
        """Return the metrics of the log and its appender."""
        statistics = self.appender.statistics()
        return [
            counter("events_recorded", "events", statistics["events"], "Events that were written to the log."),
            counter(
                "log_entries",
                "entries",
                statistics["entries"],
                "Entries that were written to the log, each with a group of events.",
            ),
            gauge(
                "events_waiting_for_log", "events", statistics["waiting"], "Events that the log has not confirmed yet."
            ),
            counter(
                "appends_in_doubt",
                "entries",
                statistics["doubts"],
                "Unconfirmed entries, for which the log was read to see whether it has them.",
            ),
            counter("appends_sent_again", "entries", statistics["resent"], "Entries that were sent to the log again."),
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
        # Publishing comes first once the entry is durable, because the start of a job waits for the published entry.
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
            # The next published message lets readers notice that they missed this entry. Services then read it from the stream.
            logger().info("events not published", subject=subject, sequence=sequence, error=str(error))


def _appending(current: SpanContext, events: Sequence[Event]) -> AbstractContextManager[object]:
    """Return the trace span of an append to the log.

    If the entry contains the start of an operation, processes that read the entry make their own spans children of this span.
    """
    starts = any(isinstance(event, OperationStarted) for event in events)
    return tracing.span(
        "append to log",
        {"events": len(events)},
        context=append_span(current) if starts else None,
        parent=current,
        kind=SpanKind.PRODUCER,
        subject=subjects.LOG,
    )
