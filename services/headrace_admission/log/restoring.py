"""The way back to the end of the log at a start: a checkpoint, and the entries behind it.

Then an entry of the new term shuts former appenders out.
"""

from __future__ import annotations

from typing import Final

import anyio

from headrace.bus import Bus, BusError, Log, LogEntry
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace.runtime.fenced import KeyFenced
from headrace.runtime.role import Deposed
from headrace.wire import subjects
from headrace.wire.codec import decode
from headrace.wire.log import Event, LogBatch
from headrace_admission.engine import AdmissionEngine
from headrace_admission.log.checkpoint import CheckpointStore, writer_of_checkpoint
from headrace_admission.log.recorder import encode_batch, term_of

__all__ = ["highest_recorded_term", "restore"]

#: Entries that may be appended between reading the log's end and announcing a term, before something is wrong.
_ANNOUNCE_TRIES: Final = 100


async def highest_recorded_term(bus: Bus) -> int:
    """Returns the highest term in what admission wrote, for a bucket of terms that was lost. Raises `BusError`."""
    checkpoints = await bus.key_value(subjects.CHECKPOINT_BUCKET)
    newest = await (await bus.log(subjects.STREAM, subjects.LOG)).last()
    return max(await writer_of_checkpoint(checkpoints), 0 if newest is None else term_of(newest.data) or 0)


async def restore(
    engine: AdmissionEngine, log: Log, checkpoints: CheckpointStore, clock: Clock, *, term: int, writer: str
) -> int:
    """Brings an engine to the end of the log. Returns the entry that announces the term.

    Raises `Deposed` if entries are missing or of a higher term.
    """
    try:
        restored = await checkpoints.claim()
    except KeyFenced as error:
        raise Deposed(str(error)) from error
    last = restored.sequence
    engine.on_restored(restored.operations, restored.pools, restored.allocator_terms, last, clock.moment())
    first, end = await log.bounds()
    if end < last or first > last + 1:
        raise Deposed(
            f"the log holds entries {first} to {end}, the checkpoint covers up to {last}: entries are missing"
        )
    for attempt in range(_ANNOUNCE_TRIES):
        async for entry in log.read(last):
            engine.on_entry(_events_of(entry, term), entry.sequence, clock.moment())
            last = entry.sequence
        # An empty entry of this term: whoever appended before is refused from here on.
        try:
            announced = await log.append(encode_batch(term, [], writer, attempt), expected_last=last, timeout_s=5.0)
        except BusError as error:
            logger().info("term not announced yet", term=term, error=str(error))
            await anyio.sleep(0.05)
        else:
            engine.on_entry([], announced, clock.moment())
            return announced
    raise Deposed("another process appends to the log faster than this one can read it")


def _events_of(entry: LogEntry, term: int) -> list[Event]:
    """Returns the events of an entry. A foreign entry has none and is logged at error."""
    if term_of(entry.data) is None:
        logger().error("foreign entry in the log", sequence=entry.sequence, size_bytes=len(entry.data))
        return []
    batch = decode(entry.data, LogBatch)
    if batch.term > term:
        raise Deposed(f"entry {entry.sequence} of the log is of term {batch.term}")
    return batch.events
