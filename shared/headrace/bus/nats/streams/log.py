"""Logs: streams of one subject with one writer at a time, fenced by the expected last sequence number."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from headrace.bus.nats.streams.api import (
    WRONG_LAST_SEQUENCE,
    JetStream,
    JetStreamRefused,
    Stored,
    standard_stream,
)
from headrace.bus.nats.streams.pulling import pulled
from headrace.bus.protocol import (
    AppendRefused,
    AppendUnknown,
    LogEntry,
    NoResponders,
    NotConnected,
    RequestTimeout,
)
from headrace.errors import BadInput

_NAME = re.compile(r"[A-Za-z0-9_-]+\Z")


class NatsLog:
    """Implements `headrace.bus.protocol.Log`."""

    def __init__(self, jetstream: JetStream, name: str, subject: str) -> None:
        self._jetstream = jetstream
        self._name = name
        self._subject = subject

    @classmethod
    async def open(cls, jetstream: JetStream, name: str, subject: str) -> NatsLog:
        """Open a stream, and create it if it is missing. Raises `WrongConfiguration` if the existing stream could lose entries."""
        if not _NAME.match(name):
            raise BadInput("log", name, "letters, digits, - and _")
        wanted = standard_stream(name, subject, replicas=jetstream.replicas)
        await jetstream.stream_or_new(
            wanted, "retention", "max_age", "max_msgs", "max_msgs_per_subject", "allow_direct"
        )
        return cls(jetstream, name, subject)

    async def append(self, data: bytes, *, expected_last: int, timeout_s: float) -> int:
        # No message id is sent: the server remembers ids only briefly, and the expected sequence number alone keeps an entry from being
        # added twice.
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
        return None if stored is None else self._entry(stored)

    async def bounds(self) -> tuple[int, int]:
        state = (await self._jetstream.existing(self._name)).state
        return (state.first_seq if state.messages else state.last_seq + 1, state.last_seq)

    async def size_bytes(self) -> int:
        return (await self._jetstream.existing(self._name)).state.bytes

    async def read(self, after: int, *, batch_bytes: int | None = None) -> AsyncGenerator[LogEntry, None]:
        """Yield the entries after `after`, in order, up to the last entry at the time of the call.

        If entries after `after` are no longer kept, reading begins at the first kept entry. Raises `BusError` midway if the server goes
        away. A caller that then reads again after the last entry that it received misses no entry.
        """
        first, last = await self.bounds()
        if max(first, after + 1) > last:
            return
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(first, after + 1)}
        async with aclosing(pulled(self._jetstream, self._name, start, last, batch_bytes)) as entries:
            async for entry in entries:
                yield self._entry(entry)

    async def forget(self, up_to: int) -> None:
        await self._jetstream.ask(f"STREAM.PURGE.{self._name}", {"seq": up_to + 1})

    def _entry(self, stored: Stored) -> LogEntry:
        is_foreign = self._jetstream.foreign.is_foreign(self._name, stored, self._subject)
        return LogEntry(sequence=stored.sequence, data=b"" if is_foreign else stored.data)
