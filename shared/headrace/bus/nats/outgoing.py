"""Outgoing bytes of a connection: how they are written, and how many of them may wait.

nats-py leaves each message to a task, which writes all waiting bytes one turn of the loop later. Here the first message
of a turn is written at once, because a caller waits for it. Further messages of the same turn are written together at
its end. After a turn with many messages, the first message of the next turn is also written at the end of its turn,
because a write that wakes the server costs more than all other work for a message.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel

from headrace.bus.nats.transports import transport_of
from headrace.bus.protocol import MAX_MESSAGE_BYTES, NotConnected, TooLarge
from headrace.errors import BadInput

if TYPE_CHECKING:
    from nats.aio.client import Client

#: Unsent bytes above which a sender waits. nats-py would make the sender wait too, but would swallow a cancellation of the sender.
_HIGH_WATER_BYTES = 1024 * 1024
#: Seconds that a sender waits for free space. After this time the server is assumed to read nothing.
_ROOM_TIMEOUT_S = 2.0
#: If one turn of the loop has at least this number of messages, the first message of the next turn is not written at once.
_MANY_IN_A_TURN: Final = 3
#: Characters not allowed in a subject. A blank or a line break would end the subject, so the rest would be read as another part of the
#: protocol. Halves of surrogate pairs cannot be encoded.
_UNSENDABLE: Final = re.compile(r"[ \t\r\n\ud800-\udfff]")
#: Largest length of a subject in characters. A server closes the connection after a command of more than 4,096 bytes, and then nats-py does
#: not connect again.
_LONGEST_SUBJECT: Final = 1_000
_BREAKS: Final = re.compile(r"[\r\n]")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


class Outgoing:
    """The bytes that one connection has still to write. `check_connected` raises if the connection is broken."""

    def __init__(self, client: Client, check_connected: Callable[[], None]) -> None:
        self._nats = client
        self._check_connected = check_connected
        #: Upper bound of the unsent bytes: the bytes that were unsent when they were last counted, plus all bytes that were passed to
        #: `send` since then.
        self._at_most_bytes = 0
        #: Number of messages in this turn of the loop.
        self._in_turn = 0
        #: True if the previous turn of the loop had many messages.
        self._much_to_send = False

    def framed(self, subject: str, data: bytes, reply: str, headers: Mapping[str, str] | None) -> bytes:
        """Return a message in its form on the wire. Raises `BadInput`, and `TooLarge` if the server would not accept it."""
        for name in (subject, reply) if reply else (subject,):
            check_subject(name)
        block = _header_block(headers) if headers else b""
        # Headers count here, too, while nats-py checks only the payload. If both together exceed the server's limit,
        # the connection is closed for good.
        size, limit = len(block) + len(data), min(MAX_MESSAGE_BYTES, self._nats.max_payload)
        if size > limit:
            raise TooLarge(subject, size, limit)
        command = f"HPUB {subject} {reply} {len(block)} {size}\r\n" if block else f"PUB {subject} {reply} {size}\r\n"
        return b"".join((command.encode(), block, data, b"\r\n"))

    async def send(self, frame: bytes) -> None:
        """Send the bytes that `framed` returned. Waits only while too many bytes are unsent. Raises the errors of
        `check_connected`.
        """
        self._check_connected()
        if not self._has_room_for(frame):
            await self._wait_for_room()
            self._check_connected()
        nats = self._nats
        nats.stats["out_msgs"] += 1
        nats.stats["out_bytes"] += len(frame)
        nats._pending.append(frame)
        nats._pending_data_size += len(frame)
        if transport_of(self._nats) is None:
            # nats-py's own task must write here, since the transport is a websocket, to which only that task can
            # write.
            await nats._flush_pending()
            return
        self._in_turn += 1
        if self._in_turn == 1:
            asyncio.get_running_loop().call_soon(self._end_turn)
            if not self._much_to_send:
                self.write()

    def write(self) -> None:
        """Write all waiting bytes to the transport, including commands of nats-py."""
        nats, transport = self._nats, transport_of(self._nats)
        if transport is not None and nats._pending and nats.is_connected:
            waiting, nats._pending, nats._pending_data_size = nats._pending, [], 0
            transport.writelines(waiting)

    def _has_room_for(self, frame: bytes) -> bool:
        """Return False if so many bytes are unsent that the sender of `frame` must wait."""
        # The transport is asked for its unsent bytes only when the upper bound is too high: asking the transport for
        # each message would cost half as much as all other work for that message.
        self._at_most_bytes += len(frame)
        if self._at_most_bytes > _HIGH_WATER_BYTES:
            self._at_most_bytes = self.unsent_bytes() + len(frame)
        return self._at_most_bytes <= _HIGH_WATER_BYTES

    async def _wait_for_room(self) -> None:
        """Wait while too many bytes are unsent. Raises `NotConnected` if the server reads nothing."""
        with anyio.move_on_after(_ROOM_TIMEOUT_S):
            await anyio.lowlevel.checkpoint()
            while self.unsent_bytes() > _HIGH_WATER_BYTES:
                await anyio.sleep(0.002)
                self._check_connected()
            return
        raise NotConnected("the connection has accepted no data for some time; nothing was sent")

    def unsent_bytes(self) -> int:
        """Return the number of bytes that wait in nats-py and in the transport.

        In some releases of Python 3.12 and 3.13 the transport takes any number of bytes without making the writer wait. In these releases
        nats-py's own count of waiting bytes stays low although the server reads nothing.
        """
        transport = transport_of(self._nats)
        # A closed TLS transport cannot be asked for its buffer size.
        waiting = 0 if transport is None or transport.is_closing() else transport.get_write_buffer_size()
        return int(self._nats.pending_data_size + waiting)

    def _end_turn(self) -> None:
        self._in_turn, self._much_to_send = 0, self._in_turn >= _MANY_IN_A_TURN
        self.write()


def check_subject(name: str) -> None:
    """Raise `BadInput` if a name cannot be sent as a subject, or if sending it would end the connection."""
    if not name or len(name) > _LONGEST_SUBJECT or _UNSENDABLE.search(name):
        expected = f"tokens without blanks, joined by dots, of up to {_LONGEST_SUBJECT:,} characters together"
        raise BadInput("subject", name, expected)


def _header_block(headers: Mapping[str, str]) -> bytes:
    lines = ["NATS/1.0\r\n"]
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise BadInput("header", name, "a name of visible characters")
        # Line breaks are replaced, because a line break would begin another header.
        lines.append(f"{name}: {_BREAKS.sub(' ', value)}\r\n")
    return "".join((*lines, "\r\n")).encode(errors="replace")
