"""The input and the output of a session: streams of bytes in which each byte has an offset. Pure.

Offsets count from the first byte of a stream. They show which bytes arrive twice, late or too early, so that such bytes are ignored.
"""

from __future__ import annotations

from typing import Final

from headrace.wire.sessions import MOST_SESSION_BYTES

#: Largest number of bytes of input that may wait for the process to read them.
_MOST_WAITING_BYTES: Final = 2 * MOST_SESSION_BYTES


class Inflow:
    """Input that the process has not taken yet."""

    def __init__(self) -> None:
        #: Number of bytes that were accepted since the beginning of the stream.
        self.offset = 0
        #: True if no input follows.
        self.is_ended = False
        self.waiting = bytearray()

    def accept(self, offset: int, data: bytes, *, ended: bool) -> None:
        """Accept the bytes of `data` that directly follow the bytes accepted before, as far as there is space.

        If bytes between the accepted bytes and `data` are missing, nothing is accepted.
        """
        known = self.offset - offset
        if self.is_ended or not 0 <= known <= len(data):
            return
        taken = data[known : known + _MOST_WAITING_BYTES - len(self.waiting)]
        self.waiting += taken
        self.offset += len(taken)
        self.is_ended = ended and known + len(taken) == len(data)

    def take(self, count: int) -> None:
        """Record that the process has taken `count` of the waiting bytes."""
        del self.waiting[:count]


class Outflow:
    """Output of one stream that the person has not received yet, at most `MOST_SESSION_BYTES` bytes."""

    def __init__(self) -> None:
        #: Offset of the first byte that is kept.
        self.offset = 0
        self.kept = bytearray()

    @property
    def space_bytes(self) -> int:
        return MOST_SESSION_BYTES - len(self.kept)

    def add(self, data: bytes | memoryview) -> None:
        self.kept += data

    def receive(self, offset: int) -> None:
        """Drop the bytes before `offset`, which the person has received. An offset that is not among the kept bytes changes nothing."""
        if 0 < offset - self.offset <= len(self.kept):
            del self.kept[: offset - self.offset]
            self.offset = offset
