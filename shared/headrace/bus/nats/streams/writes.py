"""Listening to the writes to a bucket. When a stream stores a message, the server also sends it to ordinary
subscribers.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.bus.nats.link import Link
from headrace.bus.nats.listener import Listener
from headrace.bus.nats.streams.api import EXPECTED_REVISION
from headrace.bus.protocol import HeardWrites, Message

_REVISION: Final = re.compile(r"[0-9]{1,19}\Z")
#: Upper bound of the keys whose attempts are kept until they are taken.
_MOST_KEYS: Final = 10_000


class NatsWrites:
    """Implements `headrace.bus.protocol.Writes`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._listener: Listener | None = None
        self._messages = 0
        self._prefix = ""
        self._heard = HeardWrites()
        #: Number of new connections up to the last call of `take`.
        self._connections = 0

    def take(self) -> HeardWrites:
        heard, self._heard = self._heard, HeardWrites()
        heard.unclear += self._link.new_connections - self._connections
        self._connections = self._link.new_connections
        return heard

    async def open(self, bucket: str) -> None:
        """Start listening. Raises the errors of `Link.listen`."""
        self._prefix = f"$KV.{bucket}."
        self._listener = await self._link.listen(f"{self._prefix}>", self._note)

    def statistics(self) -> dict[str, int]:
        return {"received": self._messages}

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()

    def _note(self, message: Message) -> None:
        self._messages += 1
        revision, named = message.headers.get(EXPECTED_REVISION.lower(), ""), self._heard.named
        key = message.subject.removeprefix(self._prefix)
        if _REVISION.match(revision) and (key in named or len(named) < _MOST_KEYS):
            named[key] = max(int(revision), named.get(key, 0))
        else:
            self._heard.unclear += 1
