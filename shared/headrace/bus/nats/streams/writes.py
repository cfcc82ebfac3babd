"""Listening to the writes to a bucket. When a stream stores a message, the server also sends it to ordinary
subscribers.
"""

from __future__ import annotations

from headrace.bus.nats.link import Link
from headrace.bus.nats.listener import Listener
from headrace.bus.protocol import Message


class NatsWrites:
    """Implements `headrace.bus.protocol.Writes`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._listener: Listener | None = None
        self._messages = 0

    @property
    def heard(self) -> int:
        return self._messages + self._link.new_connections

    async def open(self, bucket: str) -> None:
        """Start listening. Raises the errors of `Link.listen`."""
        self._listener = await self._link.listen(f"$KV.{bucket}.>", self._count)

    def statistics(self) -> dict[str, int]:
        return {"received": self._messages}

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()

    def _count(self, _message: Message) -> None:
        self._messages += 1
