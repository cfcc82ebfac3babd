"""One connection to a real nats-server, over which thousands of simulated nodes speak.

The services see what ten thousand agents would send. Only the sockets are fewer: a client library of ten thousand connections in one
process would cost more than all that is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

__all__ = ["NodesConnection"]

_HELLO: Final = (
    b'CONNECT {"verbose":false,"pedantic":false,"name":"fleet","lang":"python","version":"1","protocol":1,'
    b'"headers":true,"no_responders":true}\r\n'
)
_LISTENED: Final = ("_INBOX.node.>", "headrace.v1.cmd.*.nudge")

OnMessage = Callable[[str, bytes], None]


class NodesConnection(asyncio.Protocol):
    """Publishes, and hands on all that is said to any node: the words of NATS for that, and no others.

    That nobody listens where a request was sent is handed on as an answer without a byte.
    """

    def __init__(self, on_message: OnMessage, on_lost: Callable[[], None]) -> None:
        self._on_message = on_message
        self._on_lost = on_lost
        self._received = bytearray()
        self._to_send: list[bytes] = []
        self._transport: asyncio.WriteTransport | None = None
        self.greeted = asyncio.Event()

    @classmethod
    async def to(cls, port: int, on_message: OnMessage, on_lost: Callable[[], None]) -> NodesConnection:
        """Connects. When it returns the server has taken all subscriptions."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(on_message, on_lost), "127.0.0.1", port)
        await asyncio.wait_for(connection.greeted.wait(), 10)
        return connection

    def request(self, subject: str, reply_to: str, data: bytes) -> None:
        """Sends a request with the next `flush`."""
        self._to_send.append(f"PUB {subject} {reply_to} {len(data)}\r\n".encode())
        self._to_send.append(data)
        self._to_send.append(b"\r\n")

    def flush(self) -> None:
        """Writes what was asked for since the last time, in one piece."""
        if self._to_send and self._transport is not None:
            self._transport.write(b"".join(self._to_send))
            self._to_send.clear()

    def close(self) -> None:
        """Says no more and hears no more."""
        self._on_lost = _nothing
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        subscriptions = "".join(f"SUB {subject} {number}\r\n" for number, subject in enumerate(_LISTENED, 1))
        transport.write(_HELLO + subscriptions.encode() + b"PING\r\n")

    def connection_lost(self, error: Exception | None) -> None:
        self._on_lost()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        at = 0
        while (end := received.find(b"\r\n", at)) >= 0:
            line = received[at:end]
            if line.startswith((b"MSG ", b"HMSG ")):
                words = line.split(b" ")
                begin, size = end + 2, int(words[-1])
                after = begin + size + 2
                if len(received) < after:
                    break
                if line.startswith(b"H"):
                    begin += int(words[-2])
                self._on_message(words[1].decode(), bytes(received[begin : end + 2 + size]))
                at = after
                continue
            at = end + 2
            if line == b"PING":
                self._to_send.append(b"PONG\r\n")
            elif line == b"PONG":
                self.greeted.set()
            elif line.startswith(b"-ERR"):
                raise ConnectionError(line.decode())
        del received[:at]
        self.flush()


def _nothing() -> None:
    """Does nothing."""
