"""Records: streams of one subject with a bounded age and size.

The oldest records are removed first.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime

import msgspec

from headrace.bus.nats.streams.api import (
    WRONG_LAST_SEQUENCE,
    JetStream,
    JetStreamRefused,
    Stored,
    seconds_ns,
    standard_stream,
)
from headrace.bus.nats.streams.pulling import pulled
from headrace.bus.protocol import AppendRefused, BusError, LogEntry
from headrace.obs.logging import logger


class NatsRecords:
    """Implements `headrace.bus.protocol.Records`."""

    def __init__(self, jetstream: JetStream, name: str, subject: str) -> None:
        self._jetstream = jetstream
        self._name = name
        self._subject = subject

    @classmethod
    async def open(
        cls, jetstream: JetStream, name: str, subject: str, *, max_age_s: float, max_bytes: int
    ) -> NatsRecords:
        """Open a stream. Create it if it is missing. If it has other bounds and this connection may create stores, change
        its bounds.

        Raises `WrongConfiguration` if a stream of this name keeps something else, and `BusError` if the server lacks the space.
        """
        wanted = msgspec.structs.replace(
            standard_stream(name, subject, replicas=jetstream.replicas),
            discard="old",
            max_age=seconds_ns(max_age_s),
            max_bytes=max_bytes,
        )
        found = await jetstream.stream_or_new(wanted)
        if (found.max_age, found.max_bytes) == (wanted.max_age, wanted.max_bytes):
            return cls(jetstream, name, subject)
        if not jetstream.makes_stores:
            # The bounds of the stream stay as they are: a service has no right to change a stream, because a party with this right could
            # make the stream record any subject.
            logger().warning(
                "the bounds of records differ from the settings: `headrace bus provision` changes them",
                **{"stream": name, "max_age_s": found.max_age // 10**9, "max_bytes": found.max_bytes},
            )
        else:
            await jetstream.change_stream(name, max_age=wanted.max_age, max_bytes=wanted.max_bytes)
        return cls(jetstream, name, subject)

    async def add(self, data: bytes, *, timeout_s: float, expected_last: int | None = None) -> int:
        headers = {"Nats-Expected-Stream": self._name}
        if expected_last is not None:
            headers["Nats-Expected-Last-Sequence"] = str(expected_last)
        try:
            return await self._jetstream.append(self._subject, data, headers, timeout_s=timeout_s)
        except JetStreamRefused as refusal:
            if refusal.err_code in WRONG_LAST_SEQUENCE:
                raise AppendRefused(f"records {self._name}: their last entry is not {expected_last}") from None
            raise
        except msgspec.MsgspecError as error:
            raise BusError(f"records {self._name}: {error}") from None

    async def last(self) -> LogEntry:
        sequence = (await self._jetstream.existing(self._name)).state.last_seq
        stored = await self._jetstream.last_message(self._name, self._subject) if sequence else None
        if stored is None:
            return LogEntry(sequence, b"")
        # A foreign entry is returned too, but without its data: the caller needs the sequence number of the last entry to add the next
        # record after it.
        return LogEntry(max(sequence, stored.sequence), b"" if self._is_foreign(stored) else stored.data)

    async def oldest_ms(self) -> int | None:
        info = await self._jetstream.existing(self._name)
        return _unix_ms(info.state.first_ts) if info.state.messages else None

    async def read(self, *, after: int = 0, since_ms: int = 0) -> AsyncGenerator[LogEntry, None]:
        """Yield records as described in the protocol. Raises `BusError` midway if the server goes away."""
        info = await self._jetstream.existing(self._name)
        last = info.state.last_seq
        if not info.state.messages or after >= last:
            return
        if after > 0:
            start: dict[str, object] = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1}
        else:
            since = datetime.fromtimestamp(since_ms / 1000, UTC)
            start = {"deliver_policy": "by_start_time", "opt_start_time": since.isoformat().replace("+00:00", "Z")}
        async with aclosing(pulled(self._jetstream, self._name, start, last)) as entries:
            async for entry in entries:
                if not self._is_foreign(entry):
                    yield LogEntry(sequence=entry.sequence, data=entry.data)

    def _is_foreign(self, stored: Stored) -> bool:
        return self._jetstream.foreign.is_foreign(self._name, stored, self._subject)


def _unix_ms(timestamp: str) -> int:
    # The server writes nanoseconds. Python's own parser accepts and truncates them from 3.11 on.
    return int(datetime.fromisoformat(timestamp).timestamp() * 1000)
