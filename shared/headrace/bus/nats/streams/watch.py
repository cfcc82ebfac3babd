"""Watches: consumers that push, which a mirror hears of changes by."""

from __future__ import annotations

from collections import deque
from typing import Final

import anyio

from headrace.bus.nats.listener import Listener
from headrace.bus.nats.streams.api import Delivered, JetStream, delivered, seconds_ns
from headrace.bus.protocol import Message, RequestTimeout

__all__ = ["Watch"]

#: A consumer says this often that it lives; three times as long without a word and it is made anew.
IDLE_HEARTBEAT_S: Final = 1.0
_SILENCE_S = 3.0
#: Status of a heartbeat; every other one is bad news.
_IDLE: Final = "100"
_LAST_DELIVERY: Final = "nats-last-consumer"


class Watch:
    """A consumer that pushes, and what it delivered. `broken` says why it can no longer be relied upon.

    First the newest message of each subject, then what is written. An update may come between; each subject's are in order.
    """

    def __init__(self, jetstream: JetStream, stream: str) -> None:
        self._jetstream = jetstream
        self._stream = stream
        self._arrived: deque[Delivered] = deque()
        self._wake = anyio.Event()
        self._listener: Listener | None = None
        self._consumer = ""
        self._awaited = 0
        self._deliveries = 0
        self._gap = False
        self._idle = False
        self._heard_s = 0.0
        #: Called on the loop when something came; must not wait or raise.
        self.on_arrival = self._nothing

    async def open(self, filter_subject: str) -> None:
        """Begins. Raises `BusError`."""
        inbox = self._jetstream.link.new_inbox()
        self._heard_s = anyio.current_time()
        self._listener = await self._jetstream.link.listen(inbox, self._on_message)
        self._consumer, self._awaited = await self._jetstream.make_consumer(
            self._stream,
            {
                "deliver_subject": inbox,
                "deliver_policy": "last_per_subject",
                "filter_subject": filter_subject,
                "idle_heartbeat": seconds_ns(IDLE_HEARTBEAT_S),
            },
        )

    async def first(self) -> list[Delivered]:
        """Messages that were there at the beginning. Raises `RequestTimeout` when they do not become complete."""
        items: list[Delivered] = []
        complete = self._awaited == 0
        while not complete:
            wake = self._wake
            for item in self.take():
                items.append(item)
                complete = complete or item.pending == 0 or len(items) >= self._awaited
            # A consumer that idles has delivered everything: a message that was superseded meanwhile never comes.
            if complete or self._idle:
                break
            with anyio.move_on_after(_SILENCE_S) as scope:
                await wake.wait()
            if scope.cancelled_caught or self._gap:
                raise RequestTimeout(f"stream {self._stream} could not be read to its end")
        return items

    def take(self) -> list[Delivered]:
        """Messages that arrived since."""
        items = list(self._arrived)
        self._arrived.clear()
        return items

    @property
    def broken(self) -> bool:
        """A delivery is missing, or the consumer has been silent for too long."""
        return self._gap or anyio.current_time() - self._heard_s > _SILENCE_S

    async def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()
        consumer, self._consumer = self._consumer, ""
        if consumer:
            await self._jetstream.drop_consumer(self._stream, consumer)

    def _on_message(self, message: Message) -> None:
        self._heard_s = anyio.current_time()
        item = delivered(message)
        if item is None:
            self._idle = message.headers.get("status") == _IDLE
            # It says how much was delivered: what is missing here was lost with a connection, and nothing would ever tell.
            lost = int(message.headers.get(_LAST_DELIVERY, "0")) > self._deliveries
            self._gap = self._gap or lost or not self._idle
        else:
            self._gap = self._gap or item.delivery != self._deliveries + 1
            self._deliveries = item.delivery
            self._arrived.append(item)
        self._wake.set()
        self._wake = anyio.Event()
        self.on_arrival()

    @staticmethod
    def _nothing() -> None:
        return
