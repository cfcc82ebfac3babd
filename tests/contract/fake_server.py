"""A server that only greets, answers pings and writes down what it is sent: for what a real one cannot be made to show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

__all__ = ["Recorder", "fake_server"]


class Recorder:
    """What a client has sent, verb by verb."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.port = 0
        self.received = bytearray()
        self.connections = 0
        self.greets = True
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._writers)

    def hang_up(self) -> None:
        """Ends each connection that there is."""
        for writer in self._writers:
            writer.close()

    def verbs(self) -> list[str]:
        """First words of the lines, in the order in which they came; those of payloads as well."""
        return [line.split(b" ", 1)[0].decode() for line in bytes(self.received).split(b"\r\n") if line]

    def say(self, line: bytes) -> None:
        """Sends a line of the protocol to everybody who is connected."""
        for writer in self._writers:
            writer.write(line + b"\r\n")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        info = {"server_id": "X", "version": self.version, "max_payload": 1 << 20, "headers": True, "proto": 1}
        if self.greets:
            writer.write(b"INFO " + msgspec.json.encode(info) + b"\r\n")
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                self.received += data
                writer.write(b"PONG\r\n" * data.count(b"PING\r\n"))
        self._writers.remove(writer)
        writer.close()


@asynccontextmanager
async def fake_server(version: str = "2.15.1") -> AsyncIterator[Recorder]:
    """Listens on a free port of loopback."""
    recorder = Recorder(version)
    listening = await asyncio.start_server(recorder.serve, "127.0.0.1", 0)
    recorder.port = listening.sockets[0].getsockname()[1]
    try:
        yield recorder
    finally:
        listening.close()
        await listening.wait_closed()
