"""The history of one operation, read from the log on request.

The log keeps entries behind the checkpoint for this purpose. A page reads a bounded number of entries, and decodes those that
contain the operation's id.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

import anyio.lowlevel

from headrace.bus import BusError, Log
from headrace.wire.codec import BadMessage
from headrace.wire.happenings import GetOperationHistory, OperationHistory, happenings_of
from headrace.wire.log import concerned
from headrace.wire.refusals import NotFound, NotReady
from headrace_admission.log.byte_budget import BATCH_BYTES, MOST_READ_BYTES, size_bytes
from headrace_admission.log.recorder import batch_of
from headrace_admission.queries import not_found
from headrace_admission.state.state import State

#: Bytes from which on a page is full. One more entry, of at most 256 KiB, still fits into the message.
_PAGE_BYTES: Final = 128 * 1024
_MOST_ENTRIES: Final = 5_000


async def history_answer(
    log: Log, state: State, request: GetOperationHistory
) -> OperationHistory | NotFound | NotReady:
    """Return the page of an operation's history, or the refusal if the log cannot be read."""
    try:
        return await history_page(log, state, request)
    except (BusError, BadMessage) as error:
        return NotReady(f"the log cannot be read: {error}")


async def history_page(log: Log, state: State, request: GetOperationHistory) -> OperationHistory | NotFound:
    """Read the entries about an operation, from its first to its last. Raises `BusError` and `BadMessage`."""
    operation = state.operations.get(request.operation)
    if operation is None:
        return not_found(state, request.operation)
    name, until = operation.id.encode(), operation.sequence
    after = max(request.after, operation.first_sequence - 1)
    oldest, _ = await log.bounds()
    told = OperationHistory(operation.id, [], begins_late=oldest > after + 1)
    page_bytes = read = read_bytes = 0
    async with aclosing(log.read(after, batch_bytes=BATCH_BYTES)) as entries:
        async for entry in entries:
            if entry.sequence > until:
                break
            if name in entry.data:
                for event in batch_of(entry).events:
                    told.happenings.extend(happenings_of(event) if concerned(event) == operation.id else ())
                page_bytes = size_bytes(told)
            read += 1
            read_bytes += len(entry.data)
            is_full = page_bytes >= _PAGE_BYTES or read_bytes >= MOST_READ_BYTES or read >= _MOST_ENTRIES
            if is_full and entry.sequence < until:
                return OperationHistory(told.operation, told.happenings, entry.sequence, told.begins_late)
            await anyio.lowlevel.checkpoint()
    return told
