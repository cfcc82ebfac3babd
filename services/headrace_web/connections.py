"""A bound on the connections of strangers: of those that have not yet shown a secret.

Every account of the machine can connect. Without a bound, one account could use up all file descriptors of the service, and the person for
whom the service acts could no longer connect.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Upper bound of the connections that have shown no secret. Beyond it the oldest is closed.
MOST_STRANGERS: Final = 64


class Strangers:
    """The connections that have shown no secret, the oldest first."""

    def __init__(self) -> None:
        self._transports: dict[object, asyncio.Transport] = {}

    def add(self, address: object, transport: asyncio.Transport) -> None:
        """Add a new connection. Close the oldest if there are too many."""
        self._transports[address] = transport
        if len(self._transports) > MOST_STRANGERS:
            self._transports.pop(next(iter(self._transports))).abort()

    def remove(self, address: object) -> None:
        """Forget a connection that has shown a secret, or has ended."""
        self._transports.pop(address, None)

    def protocol(self) -> type[H11Protocol]:
        """Return the protocol of the server's connections, which adds and removes them."""
        strangers = self

        class Connection(H11Protocol):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                strangers.add(self.client, transport)

            def connection_lost(self, exc: Exception | None) -> None:
                strangers.remove(self.client)
                super().connection_lost(exc)

        return Connection
