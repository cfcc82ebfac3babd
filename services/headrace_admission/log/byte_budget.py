"""Byte budgets: everything that grows is cut where it is made, by the limits that stand here."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.errors import HeadraceError
from headrace.wire.log import Event

#: A spec travels in one event, which must fit into one entry of the log beside others.
LARGEST_SPEC_BYTES: Final = 128 * 1024
#: A page of live operations, or of ephemeral pools; a single larger one has a page of its own.
PAGE_OF_OPERATIONS_BYTES: Final = 256 * 1024
#: Of everything live, for services. People's requests wait while a page of it is made.
PAGE_OF_WHOLE_BYTES: Final = 64 * 1024
#: A page of a checkpoint; a single larger record has a page of its own.
CHECKPOINT_PAGE_BYTES: Final = 128 * 1024

#: Ends of jobs in one event; a job may leave some kilobytes of words.
ENDS_OF_AN_EVENT_BYTES: Final = 128 * 1024
#: One event: an entry of the log holds at least one, with some room around it.
LARGEST_EVENT_BYTES: Final = 250 * 1024

#: Entries of the log that one answer reads. What is told of them may be far smaller: a start is told without its command.
MOST_READ_BYTES: Final = 2 * 1024 * 1024
#: Bytes that the server sends at a time to whoever reads the log for an answer.
BATCH_BYTES: Final = 1024 * 1024

_encoder = msgspec.msgpack.Encoder()


class EventTooLarge(HeadraceError):
    """An event would not fit into an entry of the log. Nothing of it took effect."""

    def __init__(self, event: Event, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        super().__init__(f"{type(event).__name__}: {size_bytes} bytes, at most {LARGEST_EVENT_BYTES} fit the log")


def encode_event(event: Event) -> bytes:
    """An event as it stands in an entry of the log. Raises `EventTooLarge`."""
    data = _encoder.encode(event)
    if len(data) > LARGEST_EVENT_BYTES:
        raise EventTooLarge(event, len(data))
    return data


def size_bytes(message: msgspec.Struct) -> int:
    """The size of a message, or of a part of one, on the bus."""
    return len(_encoder.encode(message))
