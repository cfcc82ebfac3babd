"""Mailboxes: bounded queues between the transport and a reader. They count the messages that they drop."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AsyncExitStack

from headrace.bus.protocol import MAX_PENDING_BYTES, BusClosed, Message
from headrace.bus.sender_queues import Waiting


class Mailbox:
    """A queue of messages in order of arrival. Several readers may iterate, and each message goes to one reader.

    With a key, a newer message replaces the waiting message of the same key and takes its position in the queue. A full mailbox drops the
    message that has waited longest, so that a reader which counts sequence numbers notices the gap at the next message. If the newest
    message were dropped, the end of a burst could be missing without any later message to show it.
    """

    def __init__(
        self,
        *,
        key: Callable[[Message], Hashable] | None = None,
        pending: int = 10_000,
        longest_wait_s: float = math.inf,
        on_stale: Callable[[Message], None] | None = None,
    ) -> None:
        """If a message has waited more than `longest_wait_s` when its turn comes, it is dropped, and `on_stale` is called with it.
        `on_stale` is also called with each message that a full mailbox drops.
        """
        self._key = key
        self._pending = pending
        self._longest_wait_s = longest_wait_s
        #: The clock of the event loop, or a function that returns 0 if `longest_wait_s` is infinite. The loop's method is stored here,
        #: because looking up the running loop twice for each message would make Python ask the kernel for the process id each time.
        self._now_s = asyncio.get_running_loop().time if longest_wait_s < math.inf else _no_time
        self._on_stale = on_stale
        self._waiting: OrderedDict[Hashable, Waiting] = OrderedDict()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self.ended = False
        self._failure: BusClosed | None = None
        #: Callbacks to run when this mailbox is closed.
        self.closing = AsyncExitStack()
        self.received = 0
        self.dropped = 0
        #: Number of messages that were replaced by a newer message of the same key.
        self.replaced = 0
        #: Number of messages that were dropped because they waited too long.
        self.stale = 0
        #: Seconds that all messages together have waited until their turn came.
        self.waited_s = 0.0
        #: Number of messages whose key could not be computed.
        self.failed = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: Message) -> None:
        """Add a message and wake the readers. Never waits, never raises."""
        self.received += 1
        try:
            key = self.received if self._key is None else self._key(message)
            older = self._waiting.get(key)
        except Exception:
            self.failed += 1
            return
        # The newer message takes the position of the older message. If it went to the end of the queue, a key that always gets new messages
        # would wait for ever behind other keys.
        self.replaced += older is not None
        self._waiting[key] = Waiting(message, self._now_s())
        self._bytes += len(message.data) - (0 if older is None else len(older.message.data))
        while len(self._waiting) > self._pending or self._bytes > MAX_PENDING_BYTES:
            dropped = self._pop().message
            self.dropped += 1
            if self._on_stale is not None:
                self._on_stale(dropped)
        self._arrived.set()

    def take(self) -> Message | None:
        """Return the next message, or None."""
        while self._waiting:
            waiting = self._pop()
            waited_s = self._now_s() - waiting.since_s
            self.waited_s += waited_s
            if waited_s <= self._longest_wait_s:
                return waiting.message
            self.stale += 1
            if self._on_stale is not None:
                self._on_stale(waiting.message)
        return None

    def clear(self) -> None:
        """Drop the waiting messages."""
        self.dropped += len(self._waiting)
        self._waiting.clear()
        self._bytes = 0

    def end(self, failure: BusClosed | None = None) -> None:
        """Accept no more messages. After the messages that wait now, iteration ends, or raises `failure` if it is given."""
        self.ended = True
        self._failure = self._failure or failure
        self._arrived.set()

    async def close(self) -> None:
        self.end()
        await self.closing.aclose()

    def statistics(self) -> dict[str, int]:
        return {
            "received": self.received,
            "dropped": self.dropped,
            "replaced": self.replaced,
            "stale": self.stale,
            "waited_ms": int(self.waited_s * 1000),
            "failed": self.failed,
            "pending": len(self._waiting),
        }

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        while (message := self.take()) is None:
            if self._failure is not None:
                raise self._failure
            if self.ended:
                raise StopAsyncIteration
            await self.arrival()
        return message

    async def arrival(self) -> None:
        """Return when a message waits, or when the mailbox has ended."""
        if not self._waiting and not self.ended:
            self._arrived.clear()
            await self._arrived.wait()

    def _pop(self) -> Waiting:
        waiting = self._waiting.popitem(last=False)[1]
        self._bytes -= len(waiting.message.data)
        return waiting


def _no_time() -> float:
    return 0.0
