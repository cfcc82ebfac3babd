"""Reading a stream from a given position to its end, in batches that the reader requests.

So even for a slow reader, at most one batch is on its way.
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

#: Upper bound of the entries of one batch. A batch is large enough that the time between two batches does not matter, and small enough for
#: the memory.
_PULL_ENTRIES = 1_000
#: Upper bound of the bytes of one batch.
_PULL_BYTES = 8 * 1024 * 1024
#: Seconds that a consumer is kept while its reader requests nothing.
_READER_FORGOTTEN_S = 300.0


async def pulled(
    jetstream: JetStream, stream: str, start: Mapping[str, Any], last: int, batch_bytes: int | None = None
) -> AsyncGenerator[Stored, None]:
    """Yield the messages of a stream in order, up to the sequence number `last`. `start` is the consumer's delivery policy.

    Raises `BusError` midway if the server goes away; without an error the result is complete.
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
    """A consumer from which batches are requested."""

    def __init__(self, jetstream: JetStream, stream: str, batch_bytes: int) -> None:
        super().__init__(jetstream, stream)
        self._batch_bytes = batch_bytes
        # The queue needs no bound, because the size of a batch bounds it.
        self._arrived: asyncio.Queue[Message] = asyncio.Queue()

    def on_message(self, message: Message) -> None:
        self._arrived.put_nowait(message)

    async def entries(self, last: int) -> AsyncIterator[Stored]:
        """Yield the messages up to the sequence number `last`. Raises `BusError`."""
        while self._awaited:
            await self._ask()
            # A complete batch ends without a status message; an incomplete batch ends with a status message.
            for _ in range(_PULL_ENTRIES):
                message = await self._next()
                item = delivered(message)
                if item is None:
                    if self._is_end(message.headers.get("status", "")):
                        return
                    break
                self._deliveries += 1
                if item.delivery != self._deliveries:
                    raise RequestTimeout(f"stream {self._stream}: messages were lost with a connection")
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
            raise NoResponders(f"stream {self._stream} cannot be read at present")
        # 404 means that no entry is left: the entries that the stream had when the consumer was created have been removed meanwhile.
        return status == "404"
