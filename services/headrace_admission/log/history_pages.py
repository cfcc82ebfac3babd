"""Answers that are read from the log, one page at a time: the history of one operation, and the log itself.

For this purpose, the log keeps entries that a checkpoint covers already. For each page a bounded number of entries is read. For a
page of a history, only the entries that contain the operation's id are decoded.

Any user may read the log, so commands and the text of jobs are left out. Every user can see the remaining parts anyway, with `op list` and
`op history`: the operations, their pools and their ends.
"""

from __future__ import annotations

from collections.abc import Container
from contextlib import aclosing
from math import inf
from typing import Final

import anyio.lowlevel
import msgspec

from headrace.bus import BusError, Log
from headrace.wire.codec import BadMessage
from headrace.wire.happenings import GetOperationHistory, Happening, JobEnded, OperationHistory, happenings_of
from headrace.wire.log import Event, JobsEnded, LoggedEnd, OperationStarted, concerned
from headrace.wire.refusals import NotFound, NotReady
from headrace.wire.replay import LogPage, ReadEvents, ToldEntry
from headrace_admission.log.byte_budget import BATCH_BYTES, MOST_READ_BYTES, size_bytes
from headrace_admission.log.recorder import batch_of
from headrace_admission.queries import not_found
from headrace_admission.state.spec_size import without_command
from headrace_admission.state.state import State

#: Number of bytes at which a page of a history is full. The bound is checked after each entry, and one more entry, of at most 256
#: KiB, still fits into the message.
_HISTORY_PAGE_BYTES: Final = 128 * 1024
#: Number of bytes at which a page of the log is full.
_LOG_PAGE_BYTES: Final = 192 * 1024
#: Upper bound of the entries that are read for one page of a history.
_MOST_ENTRIES_OF_HISTORY: Final = 5_000
#: Upper bound of the entries that are read for one page of the log.
_MOST_ENTRIES_OF_LOG: Final = 2_000


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
    told = OperationHistory(operation.id, [], begins_late=oldest > after + 1, read_to=max(after, until))
    jobs = frozenset(request.jobs)
    page_bytes = read = read_bytes = 0
    async with aclosing(log.read(after, batch_bytes=BATCH_BYTES)) as entries:
        async for entry in entries:
            if entry.sequence > until:
                break
            if name in entry.data:
                for event in batch_of(entry).events:
                    if concerned(event) == operation.id:
                        told.happenings.extend(each for each in happenings_of(event) if not jobs or _is_of(each, jobs))
                page_bytes = size_bytes(told)
            read += 1
            read_bytes += len(entry.data)
            is_full = (
                page_bytes >= _HISTORY_PAGE_BYTES or read_bytes >= MOST_READ_BYTES or read >= _MOST_ENTRIES_OF_HISTORY
            )
            if is_full and entry.sequence < until:
                return msgspec.structs.replace(told, next=entry.sequence, read_to=entry.sequence)
            await anyio.lowlevel.checkpoint()
    return told


def _is_of(happening: Happening, jobs: Container[int]) -> bool:
    """True if the event is the end of a run of one of these jobs."""
    return isinstance(happening, JobEnded) and happening.slot.index in jobs


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
    after = request.after
    if request.since_ms:
        after = max(after, await _last_before(log, request.since_ms, oldest - 1, last))
    async with aclosing(log.read(after, batch_bytes=BATCH_BYTES)) as entries:
        async for entry in entries:
            batch = batch_of(entry)
            read_bytes += len(entry.data)
            told.append(ToldEntry(entry.sequence, batch.term, [_told(event) for event in batch.events]))
            page_bytes += size_bytes(told[-1])
            is_full = (
                page_bytes >= _LOG_PAGE_BYTES or read_bytes >= MOST_READ_BYTES or len(told) >= _MOST_ENTRIES_OF_LOG
            )
            if is_full and entry.sequence < last:
                return LogPage(told, entry.sequence, oldest)
            await anyio.lowlevel.checkpoint()
    return LogPage(told, None, oldest)


async def _last_before(log: Log, since_ms: int, low: int, high: int) -> int:
    """Return the sequence of an entry before all entries since `since_ms` (Unix time), found by bisection from `low` to `high`."""
    while high - low > 1:
        middle = (low + high) // 2
        if await _time_after(log, middle, high) < since_ms:
            low = middle
        else:
            high = middle
    return low


async def _time_after(log: Log, after: int, until: int) -> float:
    """Return the Unix time in milliseconds of the first entry after `after` that has a time; infinite if none is found up to `until`."""
    async with aclosing(log.read(after, batch_bytes=BATCH_BYTES)) as entries:
        async for entry in entries:
            times = [at_ms for event in batch_of(entry).events if (at_ms := getattr(event, "at_ms", 0))]
            if times:
                return float(max(times))
            if entry.sequence >= until:
                break
    return inf


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
