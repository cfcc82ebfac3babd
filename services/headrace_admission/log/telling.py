"""The log as any user may read it: without commands, and without what jobs wrote.

`op list` and `op history` also show every user the operations, their pools and their ends.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

import anyio.lowlevel
import msgspec

from headrace.bus import BusError, Log
from headrace.wire.codec import BadMessage
from headrace.wire.log import Event, JobsEnded, LoggedEnd, OperationStarted
from headrace.wire.refusals import NotReady
from headrace.wire.replay import LogPage, ReadEvents, ToldEntry
from headrace_admission.log.byte_budget import BATCH_BYTES, MOST_READ_BYTES, size_bytes
from headrace_admission.log.recorder import batch_of
from headrace_admission.state.spec_size import without_command

#: Bytes from which on a page is full. One more entry, of at most 256 KiB, still fits into the message.
_PAGE_BYTES: Final = 192 * 1024
_MOST_ENTRIES: Final = 2_000


async def log_page(log: Log, request: ReadEvents) -> LogPage | NotReady:
    """Return the next entries of the log."""
    try:
        return await _read(log, request)
    except (BusError, BadMessage) as error:
        return NotReady(f"the log cannot be read: {error}")


async def _read(log: Log, request: ReadEvents) -> LogPage:
    oldest, last = await log.bounds()
    told: list[ToldEntry] = []
    page_bytes = 0
    read_bytes = 0
    async with aclosing(log.read(request.after, batch_bytes=BATCH_BYTES)) as entries:
        async for entry in entries:
            batch = batch_of(entry)
            read_bytes += len(entry.data)
            told.append(ToldEntry(entry.sequence, batch.term, [_told(event) for event in batch.events]))
            page_bytes += size_bytes(told[-1])
            is_full = page_bytes >= _PAGE_BYTES or read_bytes >= MOST_READ_BYTES or len(told) >= _MOST_ENTRIES
            if is_full and entry.sequence < last:
                return LogPage(told, entry.sequence, oldest)
            await anyio.lowlevel.checkpoint()
    return LogPage(told, None, oldest)


def _told(event: Event) -> Event:
    match event:
        case OperationStarted():
            return msgspec.structs.replace(event, spec=without_command(event.spec))
        case JobsEnded():
            return msgspec.structs.replace(event, ends=[_told_end(logged) for logged in event.ends])
        case _:
            return event


def _told_end(logged: LoggedEnd) -> LoggedEnd:
    end = msgspec.structs.replace(logged.end, stderr_tail="", reason="", account="")
    return msgspec.structs.replace(logged, end=end)
