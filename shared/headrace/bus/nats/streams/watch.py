"""Watches: consumers that push, which a mirror hears of changes by."""

from __future__ import annotations

import asyncio
from typing import Final

import anyio

from headrace.bus.nats.streams.api import JetStream, Stored, delivered, seconds_ns
from headrace.bus.nats.streams.consumer import Consumer
from headrace.bus.protocol import Message, RequestTimeout

#: A consumer says this often that it lives. It wakes server and service, for every watch of every service with nothing to do.
IDLE_HEARTBEAT_S: Final = 2.0
#: So long without a word and it is made anew, at the next look at the bucket.
_SILENCE_S = 5.0
#: A consumer that nobody listens to is gone after this time.
_FORGOTTEN_S = 10.0
#: Status of a heartbeat; every other one is bad news.
_IDLE: Final = "100"
_LAST_DELIVERY: Final = "nats-last-consumer"


class Watch(Consumer):
    """A consumer that pushes, and what it delivered. `broken` says why it can no longer be relied upon.

    First the newest message of each subject, then what is written. An update may come between. Each subject's are in order.
    """

    def __init__(self, jetstream: JetStream, stream: str) -> None:
        super().__init__(jetstream, stream)
        self._arrived: list[Stored] = []
        self._wake = asyncio.Event()
        self._gap = False
        self._idle = False
        self._heard_s = 0.0
        #: Called on the loop when a change came, or is missing; must not wait or raise.
        self.on_arrival = self._nothing

    async def open(self, filter_subject: str) -> None:
        """Begins. Raises `BusError`."""
        self._heard_s = anyio.current_time()
        config = {
            "deliver_subject": self._inbox,
            "deliver_policy": "last_per_subject",
            "filter_subject": filter_subject,
            "idle_heartbeat": seconds_ns(IDLE_HEARTBEAT_S),
        }
        await self.begin(config, forgotten_s=_FORGOTTEN_S)

    async def first(self) -> list[Stored]:
        """Messages that were there at the beginning. Raises `RequestTimeout` when they do not become complete."""
        items: list[Stored] = []
        complete = self._awaited == 0
        while not complete:
            self._wake.clear()
            for item in self.take():
                items.append(item)
                complete = complete or item.pending == 0 or len(items) >= self._awaited
            # A consumer that idles has delivered everything: a message that was superseded meanwhile never comes.
            if complete or self._idle:
                break
            with anyio.move_on_after(_SILENCE_S) as scope:
                await self._wake.wait()
            if scope.cancelled_caught or self._gap:
                raise RequestTimeout(f"stream {self._stream} could not be read to its end")
        return items

    def take(self) -> list[Stored]:
        """Messages that arrived since."""
        items, self._arrived = self._arrived, []
        return items

    @property
    def broken(self) -> bool:
        """True if a delivery is missing, or the consumer has been silent for too long."""
        return self._gap or anyio.current_time() - self._heard_s > _SILENCE_S

    def on_message(self, message: Message) -> None:
        # Ten thousand may come in a few turns of the loop: anyio's own question costs three times as much.
        self._heard_s = asyncio.get_running_loop().time()
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
        # A heartbeat that only says that it lives wakes nobody: there is one a second for each bucket that is watched.
        if item is not None or self._gap:
            self.on_arrival()

    @staticmethod
    def _nothing() -> None:
        return
