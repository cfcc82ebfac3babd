"""Byte budgets: upper bounds of the bytes of specs, events, pages and answers. The code that makes such an object keeps the bound."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.errors import HeadraceError
from headrace.wire.log import Event

#: Largest number of bytes of a spec. It is sent in one event, which must fit into one entry of the log beside other events.
LARGEST_SPEC_BYTES: Final = 128 * 1024
#: Largest number of bytes of a page of live operations or of ephemeral pools. A single larger item has a page of its own.
PAGE_OF_OPERATIONS_BYTES: Final = 256 * 1024
#: Largest number of bytes of a page of all live operations, for services. Requests of users wait while such a page is made.
PAGE_OF_WHOLE_BYTES: Final = 64 * 1024
#: Largest number of bytes of a page of a checkpoint. A single larger record has a page of its own.
CHECKPOINT_PAGE_BYTES: Final = 128 * 1024

#: Largest number of bytes that the records of ended jobs take in one event. The record of one job may contain some kilobytes of text.
ENDS_OF_AN_EVENT_BYTES: Final = 128 * 1024
#: Largest number of bytes of one event. An entry of the log holds at least one event and some bytes around it.
LARGEST_EVENT_BYTES: Final = 250 * 1024

#: Largest number of bytes of log entries that are read for one answer. The answer may be far smaller, since starts are sent without their
#: commands.
MOST_READ_BYTES: Final = 2 * 1024 * 1024
#: Number of bytes that the server sends at a time while the log is read for an answer.
BATCH_BYTES: Final = 1024 * 1024

_encoder = msgspec.msgpack.Encoder()


class EventTooLarge(HeadraceError):
    """An event would not fit into an entry of the log. The state was not changed."""

    def __init__(self, event: Event, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        super().__init__(
            f"{type(event).__name__}: {size_bytes} bytes; an entry of the log holds at most {LARGEST_EVENT_BYTES} bytes"
        )


def encode_event(event: Event) -> bytes:
    """Return an event as it is written in an entry of the log. Raises `EventTooLarge`."""
    data = _encoder.encode(event)
    if len(data) > LARGEST_EVENT_BYTES:
        raise EventTooLarge(event, len(data))
    return data


def size_bytes(message: msgspec.Struct) -> int:
    """Return the size in bytes of a message, or of a part of a message, on the bus."""
    return len(_encoder.encode(message))
