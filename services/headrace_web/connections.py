"""Bounds on the connections of strangers, which have not yet shown a secret, and on the connections of each person with a token.

Every account of the machine can connect. Without a bound, one account could use up all file descriptors of the service, and the person for
whom the service acts could no longer connect. In the same way, one person with a token could keep all other persons out.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Upper bound of the connections that have shown no secret. Beyond it the oldest such connection is closed.
MOST_STRANGERS: Final = 64
#: Upper bound of the connections that show tokens of one person. Beyond it, the person's connection that has been without a request for
#: longest is closed.
MOST_OF_PERSON: Final = 128


class Strangers:
    """The connections that have shown no secret, the oldest first, and the connections that have shown the token of a person."""

    def __init__(self) -> None:
        self._transports: dict[object, asyncio.Transport] = {}
        #: Connections by person and address, in the order of their last requests.
        self._of_persons: dict[str, dict[object, asyncio.Transport]] = {}
        self._persons: dict[object, str] = {}

    def add(self, address: object, transport: asyncio.Transport) -> None:
        """Add a new connection. If too many connections have shown no secret, close the oldest of them."""
        self._transports[address] = transport
        if len(self._transports) > MOST_STRANGERS:
            self._transports.pop(next(iter(self._transports))).abort()

    def admit(self, address: object, person: str) -> None:
        """Note that a connection has shown a token of a person. If the person has too many connections, close another of them."""
        transport = self._taken(address)
        if transport is None:
            return
        own = self._of_persons.setdefault(person, {})
        own[address], self._persons[address] = transport, person
        if len(own) > MOST_OF_PERSON:
            oldest = self._taken(next(iter(own)))
            assert oldest is not None
            oldest.abort()

    def remove(self, address: object) -> None:
        """Forget a connection that has shown the secret of this service, or has ended."""
        self._taken(address)

    def _taken(self, address: object) -> asyncio.Transport | None:
        """Forget a connection and return it. None if it is not known."""
        person = self._persons.pop(address, None)
        if person is None:
            return self._transports.pop(address, None)
        own = self._of_persons[person]
        transport = own.pop(address)
        if not own:
            del self._of_persons[person]
        return transport

    def protocol(self) -> type[H11Protocol]:
        """Return the protocol class of the server's connections, which adds each connection here and removes it again."""
        strangers = self

        class Connection(H11Protocol):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                strangers.add(self.client, transport)

            def connection_lost(self, exc: Exception | None) -> None:
                strangers.remove(self.client)
                super().connection_lost(exc)

        return Connection
