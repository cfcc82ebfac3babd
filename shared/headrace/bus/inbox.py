"""Mailboxes: what waits between the transport and a reader, bounded, and counted where it does not fit."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

import anyio

from headrace.bus.protocol import BusClosed, Message

__all__ = ["Mailbox", "MessageInbox"]


class Mailbox:
    """The synchronous part of an inbox: put and take, in order of arrival.

    With a key, the newest of each key stands in the place of the oldest. Full, it drops what has waited longest. A reader that counts
    sequences then meets the gap with the very next message; were the newest dropped, the end of a burst could be missing with nothing
    after it to show that.
    """

    def __init__(self, *, key: Callable[[Message], Hashable] | None = None, pending: int = 10_000) -> None:
        self._key = key
        self._pending = pending
        self._fifo: deque[Message] = deque()
        self._newest: dict[Hashable, Message] = {}
        self.received = 0
        self.dropped = 0
        #: A newer one of the same key took its place.
        self.replaced = 0
        #: The key could not be told.
        self.failed = 0

    def __len__(self) -> int:
        return len(self._fifo) if self._key is None else len(self._newest)

    def put(self, message: Message) -> None:
        """Adds a message. Never waits, never raises."""
        self.received += 1
        if self._key is None:
            if len(self._fifo) >= self._pending:
                self._fifo.popleft()
                self.dropped += 1
            self._fifo.append(message)
            return
        try:
            key = self._key(message)
            known = key in self._newest
        except Exception:
            self.failed += 1
            return
        if known:
            self.replaced += 1
        elif len(self._newest) >= self._pending:
            del self._newest[next(iter(self._newest))]
            self.dropped += 1
        # The place of the older one is kept: a key that is never quiet must not wait for ever behind the others.
        self._newest[key] = message

    def take(self) -> Message | None:
        """The message whose turn it is, or None."""
        if self._key is None:
            return self._fifo.popleft() if self._fifo else None
        if not self._newest:
            return None
        return self._newest.pop(next(iter(self._newest)))

    def statistics(self) -> dict[str, int]:
        return {
            "received": self.received,
            "dropped": self.dropped,
            "replaced": self.replaced,
            "failed": self.failed,
            "pending": len(self),
        }


class MessageInbox:
    """A mailbox to wait at. Several may iterate, and each message goes to one of them."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        self._arrived = anyio.Event()
        self._ended = False
        self._failure: BusClosed | None = None
        self._closers: list[Callable[[], Awaitable[None]]] = []

    def on_message(self, message: Message) -> None:
        """Puts a message and wakes who waits."""
        self.mailbox.put(message)
        self._wake()

    def on_close(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Adds what closing must end besides."""
        self._closers.append(closer)

    def end(self, failure: BusClosed | None = None) -> None:
        """Nothing more will come: iteration ends after what waits, or raises `failure` there."""
        self._ended = True
        self._failure = self._failure or failure
        self._wake()

    async def close(self) -> None:
        self.end()
        closers, self._closers = self._closers, []
        for closer in closers:
            await closer()

    def statistics(self) -> dict[str, int]:
        return self.mailbox.statistics()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        while True:
            message = self.mailbox.take()
            if message is not None:
                return message
            if self._failure is not None:
                raise self._failure
            if self._ended:
                raise StopAsyncIteration
            await self._arrived.wait()

    def _wake(self) -> None:
        if not self._arrived.is_set():
            self._arrived.set()
            self._arrived = anyio.Event()
