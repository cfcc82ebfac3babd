"""Logs: a stream of one subject with a single writer at a time, fenced by the expected last sequence."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator

import anyio
import msgspec

from headrace.bus.jetstream import (
    WRONG_LAST_SEQUENCE,
    JetStream,
    JetStreamRefused,
    StreamConfig,
    delivered,
    seconds_ns,
    standard_stream,
)
from headrace.bus.nats_link import Link
from headrace.bus.nats_listener import Listener
from headrace.bus.protocol import (
    AppendRefused,
    AppendUnknown,
    LogEntry,
    Message,
    NoResponders,
    NotConnected,
    RequestTimeout,
    WrongConfiguration,
)
from headrace.errors import BadInput

__all__ = ["NatsLog"]

_NAME = re.compile(r"[A-Za-z0-9_-]+\Z")
#: One pull: enough to hide the round trip, little enough to hold in memory.
_PULL_ENTRIES = 1_000
_PULL_BYTES = 8 * 1024 * 1024
#: Entries that a reader has not asked for yet may wait this long at its consumer.
_READER_FORGOTTEN_S = 300.0


class NatsLog:
    """Implements `headrace.bus.protocol.Log`."""

    def __init__(self, link: Link, jetstream: JetStream, name: str, subject: str) -> None:
        self._link = link
        self._jetstream = jetstream
        self._name = name
        self._subject = subject

    @classmethod
    async def open(cls, link: Link, jetstream: JetStream, name: str, subject: str) -> NatsLog:
        """Opens a stream, makes it where it is missing. Raises `WrongConfiguration` when what is there could lose entries."""
        if not _NAME.match(name):
            raise BadInput("log", name, "letters, digits, - and _")
        wanted = standard_stream(name, subject, replicas=jetstream.replicas)
        _check(name, (await jetstream.stream_or_new(wanted)).config, wanted)
        return cls(link, jetstream, name, subject)

    async def append(self, data: bytes, *, expected_last: int, timeout_s: float) -> int:
        # No message id: the server's memory of them is short, and the sequence alone says what happened.
        headers = {"Nats-Expected-Stream": self._name, "Nats-Expected-Last-Sequence": str(expected_last)}
        try:
            return await self._jetstream.append(self._subject, data, headers, timeout_s=timeout_s)
        except JetStreamRefused as refusal:
            if refusal.err_code in WRONG_LAST_SEQUENCE:
                raise AppendRefused(f"log {self._name}: its last entry is not {expected_last}") from None
            raise AppendUnknown(str(refusal)) from None
        except (RequestTimeout, NoResponders, NotConnected, msgspec.MsgspecError) as error:
            raise AppendUnknown(f"log {self._name}: {error}") from None

    async def last(self) -> LogEntry | None:
        stored = await self._jetstream.last_message(self._name, self._subject)
        return None if stored is None else LogEntry(sequence=stored.sequence, data=stored.data)

    async def bounds(self) -> tuple[int, int]:
        state = (await self._jetstream.existing(self._name)).state
        return (state.first_seq if state.messages else state.last_seq + 1, state.last_seq)

    async def read(self, after: int) -> AsyncIterator[LogEntry]:
        """The entries after `after` up to the last one there is now, in order, from the first kept one where `after` is older.

        Raises `BusError` midway when the server goes away; reading on after the last entry got loses nothing.
        """
        first, last = await self.bounds()
        if max(first, after + 1) > last:
            return
        pull = _Pull(self._link, self._jetstream, self._name)
        try:
            await pull.open(max(first, after + 1))
            async for entry in pull.entries(last):
                yield entry
        finally:
            with anyio.CancelScope(shield=True):
                await pull.close()

    async def forget(self, up_to: int) -> None:
        await self._jetstream.ask(f"STREAM.PURGE.{self._name}", {"seq": up_to + 1})


class _Pull:
    """A consumer that is asked for batches, so that a slow reader bounds what is on its way."""

    def __init__(self, link: Link, jetstream: JetStream, stream: str) -> None:
        self._link = link
        self._jetstream = jetstream
        self._stream = stream
        self._inbox = link.new_inbox()
        self._arrived: deque[Message] = deque()
        self._wake = anyio.Event()
        self._consumer = ""
        self._awaited = 0
        self._listener: Listener | None = None

    async def open(self, first: int) -> None:
        self._listener = await self._link.listen(self._inbox, self._on_message)
        self._consumer, self._awaited = await self._jetstream.make_consumer(
            self._stream,
            {
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": first,
                "inactive_threshold": seconds_ns(_READER_FORGOTTEN_S),
            },
        )

    async def entries(self, last: int) -> AsyncIterator[LogEntry]:
        if not self._awaited:
            return
        while True:
            await self._ask()
            # A batch that is complete ends without a word; one that is not, with a status.
            for _ in range(_PULL_ENTRIES):
                message = await self._next()
                item = delivered(message)
                if item is None:
                    if self._is_end(message.headers.get("status", "")):
                        return
                    break
                yield LogEntry(sequence=item.sequence, data=item.data)
                if item.sequence >= last or item.pending == 0:
                    return

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        if self._consumer:
            await self._jetstream.drop_consumer(self._stream, self._consumer)

    async def _ask(self) -> None:
        body = {"batch": _PULL_ENTRIES, "max_bytes": _PULL_BYTES, "no_wait": True}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        await self._link.send(subject, msgspec.json.encode(body), reply=self._inbox)

    async def _next(self) -> Message:
        with anyio.move_on_after(self._jetstream.timeout_s):
            while not self._arrived:
                wake = self._wake
                await wake.wait()
            return self._arrived.popleft()
        raise RequestTimeout(f"log {self._stream}: no entry within {self._jetstream.timeout_s:g} s")

    def _is_end(self, status: str) -> bool:
        if status == "503":
            raise NoResponders(f"log {self._stream} cannot be read at the moment")
        # Nothing is left: what was there at the beginning has been forgotten meanwhile.
        return status == "404"

    def _on_message(self, message: Message) -> None:
        self._arrived.append(message)
        self._wake.set()
        self._wake = anyio.Event()


def _check(name: str, found: StreamConfig, wanted: StreamConfig) -> None:
    for field in (
        "subjects",
        "storage",
        "retention",
        "discard",
        "max_age",
        "max_msgs",
        "max_msgs_per_subject",
        "allow_direct",
    ):
        if getattr(found, field) != getattr(wanted, field):
            raise WrongConfiguration(
                f"log {name}: {field} is {getattr(found, field)!r}, must be {getattr(wanted, field)!r}"
            )
