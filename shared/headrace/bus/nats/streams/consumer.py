"""Consumers: the state that a server keeps for one reader of a stream."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.bus.nats.listener import Listener
from headrace.bus.nats.streams.api import JetStream, seconds_ns
from headrace.bus.protocol import BusError, Message


class _SequencePair(msgspec.Struct):
    consumer_seq: int = 0


class _ConsumerInfo(msgspec.Struct):
    num_pending: int = 0
    delivered: _SequencePair = msgspec.field(default_factory=_SequencePair)


class Consumer:
    """A consumer that the server keeps in memory while it is used. Its messages are passed to `on_message`."""

    def __init__(self, jetstream: JetStream, stream: str) -> None:
        self._jetstream = jetstream
        self._stream = stream
        self._inbox = jetstream.link.new_inbox()
        self._name = f"h{secrets.token_hex(8)}"
        self._listener: Listener | None = None
        #: Number of messages that waited for the consumer when it was created.
        self._awaited = 0
        #: Number of messages that the consumer has delivered.
        self._deliveries = 0

    async def begin(self, config: Mapping[str, Any], *, forgotten_s: float) -> None:
        """Create the consumer. The server removes it if nobody has listened for `forgotten_s` seconds. Raises `BusError`."""
        self._listener = await self._jetstream.link.listen(self._inbox, self.on_message)
        standard = {
            "name": self._name,
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": seconds_ns(forgotten_s),
        }
        body = {"stream_name": self._stream, "config": standard | dict(config)}
        answer = await self._jetstream.ask(f"CONSUMER.CREATE.{self._stream}.{self._name}", body)
        info = msgspec.json.decode(answer, type=_ConsumerInfo)
        # Delivered messages are added, because the consumer may have begun to deliver before the server answered.
        self._awaited = info.num_pending + info.delivered.consumer_seq

    def on_message(self, message: Message) -> None:
        """Take a message or a status of the consumer. Must not wait or raise."""
        raise NotImplementedError

    async def close(self) -> None:
        """End the consumer. If the server cannot be reached, it removes the consumer a little later. May be called twice."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        await listener.close()
        try:
            await self._jetstream.ask(f"CONSUMER.DELETE.{self._stream}.{self._name}", {})
        except BusError:
            return
