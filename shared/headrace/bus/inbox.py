"""Mailboxes: what waits between the transport and a reader, bounded, and counted where it does not fit."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AsyncExitStack

from headrace.bus.lines import Waiting
from headrace.bus.protocol import MAX_PENDING_BYTES, BusClosed, Message


class Mailbox:
    """Messages in order of arrival, and a place to wait at. Several may iterate, and each message goes to one of them.

    With a key, the newest of each key stands in the place of the oldest. Full, it drops what has waited longest. A reader that counts
    sequences then meets the gap with the very next message. Were the newest dropped, the end of a burst could be missing with nothing
    after it to show that.
    """

    def __init__(
        self,
        *,
        key: Callable[[Message], Hashable] | None = None,
        pending: int = 10_000,
        longest_wait_s: float = math.inf,
        on_stale: Callable[[Message], None] | None = None,
    ) -> None:
        """Whatever has waited for more than `longest_wait_s` is dropped when its turn comes, and `on_stale` is told of it."""
        self._key = key
        self._pending = pending
        self._longest_wait_s = longest_wait_s
        #: The time of the loop, where it matters. Asked for the loop itself Python asks the kernel who we are, twice a message.
        self._now_s = asyncio.get_running_loop().time if longest_wait_s < math.inf else _no_time
        self._on_stale = on_stale
        self._waiting: OrderedDict[Hashable, Waiting] = OrderedDict()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self.ended = False
        self._failure: BusClosed | None = None
        #: What closing must end besides.
        self.closing = AsyncExitStack()
        self.received = 0
        self.dropped = 0
        #: A newer one of the same key took its place.
        self.replaced = 0
        #: It waited too long.
        self.stale = 0
        #: All together, until their turn came.
        self.waited_s = 0.0
        #: The key could not be told.
        self.failed = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: Message) -> None:
        """Adds a message and wakes who waits. Never waits, never raises."""
        self.received += 1
        try:
            key = self.received if self._key is None else self._key(message)
            older = self._waiting.get(key)
        except Exception:
            self.failed += 1
            return
        # The place of the older one is kept: a key that is never quiet must not wait for ever behind the others.
        self.replaced += older is not None
        self._waiting[key] = Waiting(message, self._now_s())
        self._bytes += len(message.data) - (0 if older is None else len(older.message.data))
        while len(self._waiting) > self._pending or self._bytes > MAX_PENDING_BYTES:
            self._pop()
            self.dropped += 1
        self._arrived.set()

    def take(self) -> Message | None:
        """The message whose turn it is, or None."""
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
        """Drops the messages that wait."""
        self.dropped += len(self._waiting)
        self._waiting.clear()
        self._bytes = 0

    def end(self, failure: BusClosed | None = None) -> None:
        """Takes no more messages. Iteration ends after those that wait, or raises `failure` there."""
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
        """Returns when a message waits, or none will come any more."""
        if not self._waiting and not self.ended:
            self._arrived.clear()
            await self._arrived.wait()

    def _pop(self) -> Waiting:
        waiting = self._waiting.popitem(last=False)[1]
        self._bytes -= len(waiting.message.data)
        return waiting


def _no_time() -> float:
    return 0.0
