"""The way back to the end of the log at a start: a checkpoint, and the entries behind it.

Then an entry of the new term shuts former appenders out.
"""

from __future__ import annotations

from typing import Final

import anyio

from headrace.bus import BusError, KeyValue, Log
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace.runtime.role import Deposed
from headrace.wire.codec import decode
from headrace.wire.log import LogBatch
from headrace_admission.engine import AdmissionEngine
from headrace_admission.log import checkpoint
from headrace_admission.log.recorder import encode_batch

__all__ = ["restore"]

#: Entries that may be appended between reading the log's end and announcing a term, before something is wrong.
_ANNOUNCE_TRIES: Final = 100


async def restore(
    engine: AdmissionEngine, log: Log, checkpoints: KeyValue, clock: Clock, *, term: int, writer: str
) -> int:
    """Brings an engine to the end of the log. Returns the entry that announces the term.

    Raises `Deposed` if entries are missing or of a higher term.
    """
    restored = await checkpoint.load(checkpoints)
    last = restored.sequence
    engine.on_restored(restored.operations, restored.pools, last, clock.moment())
    first, end = await log.bounds()
    if end < last or first > last + 1:
        raise Deposed(
            f"the log holds entries {first} to {end}, the checkpoint covers up to {last}: entries are missing"
        )
    for attempt in range(_ANNOUNCE_TRIES):
        async for entry in log.read(last):
            batch = decode(entry.data, LogBatch)
            if batch.term > term:
                raise Deposed(f"entry {entry.sequence} of the log is of term {batch.term}")
            engine.on_entry(batch.events, entry.sequence, clock.moment())
            last = entry.sequence
        # An empty entry of this term: whoever appended before is refused from here on.
        try:
            announced = await log.append(encode_batch(term, [], writer, -attempt), expected_last=last, timeout_s=5.0)
        except BusError as error:
            logger().info("term not announced yet", term=term, error=str(error))
            await anyio.sleep(0.05)
        else:
            engine.on_entry([], announced, clock.moment())
            return announced
    raise Deposed("another process appends to the log faster than this one can read it")
