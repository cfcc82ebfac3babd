"""Reading a stream from some place to its end, in batches that the reader asks for.

So a slow reader bounds what is on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import anyio
import msgspec

from headrace.bus.nats.streams.api import JetStream, Stored, delivered
from headrace.bus.nats.streams.consumer import Consumer
from headrace.bus.protocol import Message, NoResponders, RequestTimeout

#: One pull: enough to hide the round trip, little enough to hold in memory.
_PULL_ENTRIES = 1_000
_PULL_BYTES = 8 * 1024 * 1024
#: Entries that a reader has not asked for yet may wait this long at its consumer.
_READER_FORGOTTEN_S = 300.0


async def pulled(
    jetstream: JetStream, stream: str, start: Mapping[str, Any], last: int, batch_bytes: int | None = None
) -> AsyncGenerator[Stored, None]:
    """The messages from `start` (what a consumer is to deliver) up to the sequence `last`, in order.

    Raises `BusError` midway when the server goes away: what ended without one is complete.
    """
    pull = Pull(jetstream, stream, batch_bytes or _PULL_BYTES)
    try:
        await pull.begin(start, forgotten_s=_READER_FORGOTTEN_S)
        async for entry in pull.entries(last):
            yield entry
    finally:
        with anyio.CancelScope(shield=True):
            await pull.close()


class Pull(Consumer):
    """A consumer that is asked for batches."""

    def __init__(self, jetstream: JetStream, stream: str, batch_bytes: int) -> None:
        super().__init__(jetstream, stream)
        self._batch_bytes = batch_bytes
        # A batch bounds what waits here.
        self._arrived: asyncio.Queue[Message] = asyncio.Queue()

    def on_message(self, message: Message) -> None:
        self._arrived.put_nowait(message)

    async def entries(self, last: int) -> AsyncIterator[Stored]:
        """The messages up to the sequence `last`. Raises `BusError`."""
        while self._awaited:
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

    async def _ask(self) -> None:
        body = {"batch": _PULL_ENTRIES, "max_bytes": self._batch_bytes, "no_wait": True}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        await self._jetstream.link.send(subject, msgspec.json.encode(body), reply=self._inbox)

    async def _next(self) -> Message:
        with anyio.move_on_after(self._jetstream.timeout_s):
            return await self._arrived.get()
        raise RequestTimeout(f"stream {self._stream}: no message within {self._jetstream.timeout_s:g} s")

    def _is_end(self, status: str) -> bool:
        if status == "503":
            raise NoResponders(f"stream {self._stream} cannot be read at the moment")
        # Nothing is left: what was there at the beginning has been forgotten meanwhile.
        return status == "404"
