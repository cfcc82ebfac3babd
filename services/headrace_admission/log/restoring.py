"""The way to the end of the log: a checkpoint, and the entries behind it.

Whoever stands by goes it again and again, so that the rest is short when it leads. Then an entry of the new term shuts former
appenders out.
"""

from __future__ import annotations

from typing import Final

import anyio
import msgspec

from headrace.bus import Bus, BusError, Log
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace.runtime.fenced import KeyFenced
from headrace.runtime.role import Deposed
from headrace.wire import subjects
from headrace.wire.codec import BadMessage
from headrace_admission.engine import AdmissionEngine
from headrace_admission.log.checkpoint import CheckpointStore, writer_of_checkpoint
from headrace_admission.log.recorder import batch_of, encode_batch, term_of

#: Whoever stands by reads the log so often: seldom enough to cost the server nothing.
_FOLLOW_PERIOD_S: Final = 1.0
#: Entries that may be appended between reading the log's end and announcing a term, before something is wrong.
_ANNOUNCE_TRIES: Final = 100


async def highest_recorded_term(bus: Bus) -> int:
    """Returns the highest term in what admission wrote, for a bucket of terms that was lost. Raises `BusError`."""
    checkpoints = await bus.key_value(subjects.CHECKPOINT_BUCKET)
    newest = await (await bus.log(subjects.STREAM, subjects.LOG)).last()
    return max(await writer_of_checkpoint(checkpoints), 0 if newest is None else term_of(newest.data) or 0)


class LogReader:
    """Brings an engine to the end of the log. Trusts nothing but the log: what is published may be forged."""

    def __init__(self, bus: Bus, engine: AdmissionEngine, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self.engine = engine
        self._has_begun = False

    @property
    def sequence(self) -> int:
        """The last entry that is part of the engine's state."""
        return self.engine.state.sequence

    async def follow(self) -> None:
        """Reads what another process writes, until cancelled. Writes nothing."""
        while True:
            try:
                log = await self._bus.log(subjects.STREAM, subjects.LOG)
                # Of no term: it may read, and claims nothing.
                await self._begin(log, CheckpointStore(await self._bus.key_value(subjects.CHECKPOINT_BUCKET), 0))
                await self._read_on(log)
            except (BusError, BadMessage, msgspec.MsgspecError) as error:
                # Pages may go while they are read, when the leader has written newer ones.
                logger().info("log not followed", sequence=self.sequence, error=str(error))
            await anyio.sleep(_FOLLOW_PERIOD_S)

    async def finish(self, log: Log, checkpoints: CheckpointStore, *, term: int, writer: str) -> int:
        """Reads to the end and announces the term. Returns the entry that does.

        Raises `Deposed` if entries are missing or of a higher term.
        """
        try:
            await checkpoints.claim()
        except KeyFenced as error:
            raise Deposed(str(error)) from error
        first, end = await self._begin(log, checkpoints)
        if first > 1 and not self.sequence:
            raise Deposed(
                f"the log begins with entry {first}, and the checkpoint of what was before is lost: put the bucket "
                f"{subjects.CHECKPOINT_BUCKET} back from a backup, or delete the stream {subjects.STREAM} too to begin with no operations"
            )
        if end < self.sequence or first > self.sequence + 1:
            raise Deposed(
                f"the log holds entries {first} to {end}, and we know it up to {self.sequence}: entries are missing"
            )
        for attempt in range(_ANNOUNCE_TRIES):
            await self._read_on(log, term)
            # An empty entry of this term: whoever appended before is refused from here on.
            entry = encode_batch(term, [], writer, attempt)
            try:
                announced = await log.append(entry, expected_last=self.sequence, timeout_s=5.0)
            except BusError as error:
                logger().info("term not announced yet", term=term, error=str(error))
                await anyio.sleep(0.05)
            else:
                self.engine.on_entry([], announced, term, self._clock.moment())
                return announced
        raise Deposed("another process appends to the log faster than this one can read it")

    async def _begin(self, log: Log, checkpoints: CheckpointStore) -> tuple[int, int]:
        """Takes the checkpoint, the first time and where the log has forgotten what comes next. Returns the log's bounds."""
        first, end = await log.bounds()
        if not self._has_begun or first > self.sequence + 1:
            restored = await checkpoints.read()
            self.engine.on_restored(
                restored.operations,
                restored.pools,
                restored.allocator_terms,
                restored.sequence,
                restored.lost_work,
                self._clock.moment(),
            )
            self._has_begun = True
            first, end = await log.bounds()
        return first, end

    async def _read_on(self, log: Log, term: int | None = None) -> None:
        async for entry in log.read(self.sequence):
            if entry.sequence != self.sequence + 1:
                # The log has just forgotten what comes next: a checkpoint covers it.
                return
            batch = batch_of(entry)
            if term is not None and batch.term > term:
                raise Deposed(f"entry {entry.sequence} of the log is of term {batch.term}")
            self.engine.on_entry(batch.events, entry.sequence, batch.term, self._clock.moment())
