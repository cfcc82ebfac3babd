"""Watches: consumers that push messages, by which a mirror learns of changes."""

from __future__ import annotations

import asyncio
from typing import Final

import anyio

from headrace.bus.nats.streams.api import JetStream, Stored, delivered, seconds_ns
from headrace.bus.nats.streams.consumer import Consumer
from headrace.bus.protocol import Message, RequestTimeout

#: Seconds between heartbeats of an idle consumer. Each heartbeat wakes the server and the service, for every watch of every
#: service.
IDLE_HEARTBEAT_S: Final = 2.0
#: Seconds without a message after which a watch is replaced at the next check of the bucket.
_SILENCE_S = 5.0
#: Seconds after which the server removes a consumer that nobody listens to.
_FORGOTTEN_S = 10.0
#: Status of a heartbeat. Every other status means that something is wrong.
_IDLE: Final = "100"
_LAST_DELIVERY: Final = "nats-last-consumer"


class Watch(Consumer):
    """A consumer that pushes messages, and the messages that it has delivered. `broken` is True if the watch may miss messages.

    A watch first delivers the newest message of each subject, and then new messages as they are written. New messages may arrive between
    messages of the initial content. The messages of each subject arrive in order.
    """

    def __init__(self, jetstream: JetStream, stream: str) -> None:
        super().__init__(jetstream, stream)
        self._arrived: list[Stored] = []
        self._wake = asyncio.Event()
        self._gap = False
        self._idle = False
        self._heard_s = 0.0
        #: Called on the loop when a change has arrived, or when a change is missing. It must not wait or raise.
        self.on_arrival = self._nothing

    async def open(self, filter_subject: str) -> None:
        """Start the watch. Raises `BusError`."""
        self._heard_s = anyio.current_time()
        config = {
            "deliver_subject": self._inbox,
            "deliver_policy": "last_per_subject",
            "filter_subject": filter_subject,
            "idle_heartbeat": seconds_ns(IDLE_HEARTBEAT_S),
        }
        await self.begin(config, forgotten_s=_FORGOTTEN_S)

    async def first(self) -> list[Stored]:
        """Return the messages that the bucket had when the watch began. Raises `RequestTimeout` if not all of them arrive."""
        items: list[Stored] = []
        complete = self._awaited == 0
        while not complete:
            self._wake.clear()
            for item in self.take():
                items.append(item)
                complete = complete or item.pending == 0 or len(items) >= self._awaited
            # An idle consumer has delivered all messages, even if fewer messages than expected have arrived: a message that was replaced by
            # a newer message meanwhile is never delivered.
            if complete or self._idle:
                break
            with anyio.move_on_after(_SILENCE_S) as scope:
                await self._wake.wait()
            if scope.cancelled_caught or self._gap:
                raise RequestTimeout(f"stream {self._stream} could not be read to its end")
        return items

    def take(self) -> list[Stored]:
        """Return the messages that arrived since the last call."""
        items, self._arrived = self._arrived, []
        return items

    @property
    def broken(self) -> bool:
        """True if a delivery is missing, or if the consumer has been silent for too long."""
        return self._gap or anyio.current_time() - self._heard_s > _SILENCE_S

    def on_message(self, message: Message) -> None:
        # The loop's own clock is read, since ten thousand messages may arrive in a few turns of the loop, and
        # `anyio.current_time` costs three times as much.
        self._heard_s = asyncio.get_running_loop().time()
        item = delivered(message)
        if item is None:
            self._idle = message.headers.get("status") == _IDLE
            # A heartbeat says how many messages the consumer has delivered. If fewer messages arrived here, the missing messages were lost
            # with a connection. Nothing else would show this loss.
            lost = int(message.headers.get(_LAST_DELIVERY, "0")) > self._deliveries
            self._gap = self._gap or lost or not self._idle
        else:
            self._gap = self._gap or item.delivery != self._deliveries + 1
            self._deliveries = item.delivery
            self._arrived.append(item)
        self._wake.set()
        # A heartbeat of an idle consumer wakes no reader. Such a heartbeat comes every few seconds for each watched bucket, and shows only
        # that the consumer still exists.
        if item is not None or self._gap:
            self.on_arrival()

    @staticmethod
    def _nothing() -> None:
        return
