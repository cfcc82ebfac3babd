"""Outgoing bytes of a connection: how large a message may be, how much waits, and when a sender must."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from headrace.bus.protocol import MAX_MESSAGE_BYTES, NotConnected, TooLarge

if TYPE_CHECKING:
    from nats.aio.client import Client

#: Waiting to be written; above it a sender waits. nats-py would wait, too, but swallow a cancellation meanwhile.
_HIGH_WATER_BYTES = 1024 * 1024
#: How long a sender waits for room. Longer means that the server takes nothing.
_ROOM_TIMEOUT_S = 2.0
_HEADER_FRAME_BYTES = len("NATS/1.0\r\n\r\n")
#: Of a message beside its data: subjects and a trace. Most take a quarter of it.
_FRAME_BYTES = 512


class Outgoing:
    """The bytes on their way out of one connection. `check_connected` raises what a sender on a broken one gets."""

    def __init__(self, client: Client, check_connected: Callable[[], None]) -> None:
        self._nats = client
        self._check_connected = check_connected
        #: No more than this can be unsent: what was at the last look, and all that was sent since.
        self._at_most_bytes = 0

    def check_size(self, subject: str, data: bytes, headers: Mapping[str, str] | None) -> None:
        """Raises `TooLarge` for a message that the server would not take."""
        # nats-py looks at the payload alone; with headers past the server's limit the connection is closed for good.
        size = len(data)
        if headers:
            size += _HEADER_FRAME_BYTES
            size += sum(len(name.encode()) + len(value.encode()) + 4 for name, value in headers.items())
        limit = min(MAX_MESSAGE_BYTES, self._nats.max_payload)
        if size > limit:
            raise TooLarge(subject, size, limit)

    def has_room_for(self, data: bytes) -> bool:
        """False if so much is unsent that whoever sends this must wait for room."""
        # To ask the transport costs as much as half of all else that is done for a message, so few of them ask.
        self._at_most_bytes += len(data) + _FRAME_BYTES
        if self._at_most_bytes > _HIGH_WATER_BYTES:
            self._at_most_bytes = self.unsent_bytes() + len(data) + _FRAME_BYTES
        return self._at_most_bytes <= _HIGH_WATER_BYTES

    async def wait_for_room(self) -> None:
        """Waits while too much is unsent. Raises `NotConnected` if the server takes nothing."""
        with anyio.move_on_after(_ROOM_TIMEOUT_S):
            await anyio.lowlevel.checkpoint()
            while self.unsent_bytes() > _HIGH_WATER_BYTES:
                await anyio.sleep(0.002)
                self._check_connected()
            return
        raise NotConnected("the connection has taken nothing for a while; nothing was sent")

    def unsent_bytes(self) -> int:
        """The bytes that wait in nats-py and in the transport.

        Some releases of Python 3.12 and 3.13 take any amount of lines into the transport without holding the writer up, so
        nats-py's own figure alone says nothing there.
        """
        transport = self.transport()
        # One of TLS that is closed cannot even be asked.
        waiting = 0 if transport is None or transport.is_closing() else transport.get_write_buffer_size()
        return int(self._nats.pending_data_size + waiting)

    def transport(self) -> asyncio.WriteTransport | None:
        """The transport of the socket, or None while there is none."""
        writer = getattr(getattr(self._nats, "_transport", None), "_io_writer", None)
        return None if writer is None else writer.transport
