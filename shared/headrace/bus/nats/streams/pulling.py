"""Reading a stream from some place to its end, in batches that the reader asks for.

So a slow reader bounds what is on its way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import anyio
import msgspec

from headrace.bus.nats.link import Link
from headrace.bus.nats.listener import Listener
from headrace.bus.nats.streams.api import Delivered, JetStream, delivered, seconds_ns
from headrace.bus.protocol import Message, NoResponders, RequestTimeout

__all__ = ["pulled"]

#: One pull: enough to hide the round trip, little enough to hold in memory.
_PULL_ENTRIES = 1_000
_PULL_BYTES = 8 * 1024 * 1024
#: Entries that a reader has not asked for yet may wait this long at its consumer.
_READER_FORGOTTEN_S = 300.0


async def pulled(
    link: Link, jetstream: JetStream, stream: str, start: Mapping[str, Any], last: int
) -> AsyncGenerator[Delivered, None]:
    """The messages from `start` (what a consumer is to deliver) up to the sequence `last`, in order.

    Raises `BusError` midway when the server goes away: what ended without one is complete.
    """
    pull = _Pull(link, jetstream, stream)
    try:
        await pull.open(start)
        async for entry in pull.entries(last):
            yield entry
    finally:
        with anyio.CancelScope(shield=True):
            await pull.close()


class _Pull:
    """A consumer that is asked for batches."""

    def __init__(self, link: Link, jetstream: JetStream, stream: str) -> None:
        self._link = link
        self._jetstream = jetstream
        self._stream = stream
        self._inbox = link.new_inbox()
        self._arrived: deque[Message] = deque()
        self._wake = anyio.Event()
        self._consumer = ""
        self._awaited = 0
        self._deliveries = 0
        self._listener: Listener | None = None

    async def open(self, start: Mapping[str, Any]) -> None:
        self._listener = await self._link.listen(self._inbox, self._on_message)
        self._consumer, self._awaited = await self._jetstream.make_consumer(
            self._stream, {**start, "inactive_threshold": seconds_ns(_READER_FORGOTTEN_S)}
        )

    async def entries(self, last: int) -> AsyncIterator[Delivered]:
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
                self._deliveries += 1
                if item.delivery != self._deliveries:
                    raise RequestTimeout(f"stream {self._stream}: messages were lost on their way, with a connection")
                yield item
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
        raise RequestTimeout(f"stream {self._stream}: no message within {self._jetstream.timeout_s:g} s")

    def _is_end(self, status: str) -> bool:
        if status == "503":
            raise NoResponders(f"stream {self._stream} cannot be read at the moment")
        # Nothing is left: what was there at the beginning has been forgotten meanwhile.
        return status == "404"

    def _on_message(self, message: Message) -> None:
        self._arrived.append(message)
        self._wake.set()
        self._wake = anyio.Event()
