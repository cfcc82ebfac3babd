"""Frames on the runner's unix socket: 4 bytes of length, big-endian, then the message in msgpack.

The runner and the agent both use this module. Only `connect` does I/O.
"""

from __future__ import annotations

import os
import socket
from typing import TypeVar

import msgspec

from headrace.errors import HeadraceError

#: Name of the socket in the runner's state folder.
SOCKET_NAME = "runner.sock"
_LENGTH_BYTES = 4

T = TypeVar("T")
_encoder = msgspec.msgpack.Encoder()


class BadFrame(HeadraceError):
    """Bytes on the socket that are not a frame of this protocol."""


class FrameReader:
    """Cuts a stream of bytes into frames. Raises `BadFrame` as soon as a frame announces a length above `largest_bytes`."""

    def __init__(self, largest_bytes: int) -> None:
        self._largest_bytes = largest_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> None:
        self._buffer += data

    def next(self) -> bytes | None:
        """Return the next complete frame, without its length, or None if there is none yet."""
        buffer = self._buffer
        if len(buffer) < _LENGTH_BYTES:
            return None
        size = int.from_bytes(buffer[:_LENGTH_BYTES], "big")
        if size > self._largest_bytes:
            raise BadFrame(f"a frame of {size} bytes, at most {self._largest_bytes} are read")
        end = _LENGTH_BYTES + size
        if len(buffer) < end:
            return None
        frame = bytes(buffer[_LENGTH_BYTES:end])
        del buffer[:end]
        return frame


def pack(message: msgspec.Struct) -> bytes:
    """Return the message as a frame, including its length."""
    payload = _encoder.encode(message)
    return len(payload).to_bytes(_LENGTH_BYTES, "big") + payload


def unpack(frame: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    """Decode a frame that `FrameReader.next` returned. Raises `BadFrame`."""
    try:
        return decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise BadFrame(str(error)) from None


def connect(state_folder: str) -> socket.socket:
    """Return a blocking connection to the runner of this state folder. Raises OSError if no runner listens.

    The folder is opened first and the socket is reached through it, so that a path longer than the 107 bytes of a unix address
    works.
    """
    folder = os.open(state_folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # A frozen runner accepts no connection. Once the queue of its socket is full, a blocking connect would wait as long as the
            # runner is frozen.
            connection.setblocking(False)
            connection.connect(f"/proc/self/fd/{folder}/{SOCKET_NAME}")
            connection.setblocking(True)
        except OSError:
            connection.close()
            raise
        return connection
    finally:
        os.close(folder)
