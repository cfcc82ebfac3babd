"""Reads the log to its end: first the checkpoint, then the entries after it.

A standby reads the log again and again, so that few entries are left to read when it becomes the leader. The new leader then appends an
entry of its own term. From this entry on, appends of earlier terms are refused.
"""

from __future__ import annotations

from typing import Final

import anyio

from headrace.bus import Bus, BusError, DamagedValue, Log
from headrace.errors import HeadraceError
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace.runtime.engine import Figure, gauge
from headrace.runtime.fenced_writes import KeyFenced
from headrace.runtime.role import Deposed
from headrace.wire import subjects
from headrace.wire.codec import UNREADABLE, BadMessage
from headrace_admission.consumption.store import covered_by_records
from headrace_admission.engine import AdmissionEngine
from headrace_admission.log.checkpoint import CheckpointStore, writer_of_checkpoint
from headrace_admission.log.recorder import batch_of, encode_batch, term_of
from headrace_admission.state.state import Page, Restored

#: Seconds between two reads of the log by a standby: long enough to cost the server almost nothing.
_FOLLOW_PERIOD_S: Final = 1.0
#: Number of facts of consumption above which a standby asks which facts the leader has written.
_MOST_FACTS_OF_STANDBY: Final = 10_000
#: Upper bound of the tries to announce a term. A try fails if another entry was appended after the read.
_ANNOUNCE_TRIES: Final = 100


async def highest_recorded_term(bus: Bus) -> int:
    """Return the highest term in the log and the checkpoint of admission, to restore a lost bucket of terms.

    Raises `BusError`.
    """
    checkpoints = await bus.key_value(subjects.CHECKPOINT_BUCKET)
    newest = await (await bus.log(subjects.STREAM, subjects.LOG)).last()
    return max(await writer_of_checkpoint(checkpoints), 0 if newest is None else term_of(newest.data) or 0)


class LogFollower:
    """Applies the log to an engine, up to the end of the log. Published messages are not used, because they may be forged."""

    def __init__(self, bus: Bus, engine: AdmissionEngine, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self.engine = engine
        self._has_begun = False
        #: Sequence of the last entry that the loaded checkpoint covers.
        self._restored = 0
        #: Number of acknowledged entries that the log had lost at the start.
        self._lost_entries = 0
        #: Text about the lost entries; empty if there are none.
        self._loss = ""

    def trouble(self) -> str:
        """Return a text about entries that the log has lost; empty if it has lost none."""
        return self._loss

    def figures(self) -> list[Figure]:
        """Return the metric of entries that the log has lost."""
        says = "Acknowledged entries that the log of operations had lost when this process became the leader."
        return [gauge("log_entries_lost", "entries", self._lost_entries, says)]

    @property
    def sequence(self) -> int:
        """Return the sequence of the last entry that is part of the engine's state."""
        return self.engine.state.sequence

    @property
    def restored(self) -> int:
        """Return the sequence of the last entry that was not read, because a checkpoint covers it."""
        return self._restored

    async def follow(self) -> None:
        """Read what another process writes, until cancelled. Writes nothing."""
        while True:
            try:
                log = await self._bus.log(subjects.STREAM, subjects.LOG)
                # With term 0 the checkpoint is read but not claimed.
                await self._begin(
                    log, CheckpointStore(await self._bus.key_value(subjects.CHECKPOINT_BUCKET), 0), leads=False
                )
                await self._read_on(log)
                await self._drop_consumption()
            except (BusError, BadMessage, *UNREADABLE) as error:
                # This may happen in normal operation: when the leader has written a newer checkpoint, it removes pages that this
                # process is reading.
                logger().info("log not followed", sequence=self.sequence, error=str(error))
            await anyio.sleep(_FOLLOW_PERIOD_S)

    async def finish(
        self, log: Log, checkpoints: CheckpointStore, *, term: int, writer: str, acknowledged: int = 0
    ) -> int:
        """Read the log to its end, announce the term, and return the sequence of the entry that announces the term.

        `acknowledged` is the last entry that an earlier leader is known to have acknowledged. If the log ends before this entry,
        acknowledged entries are lost; the loss is logged and reported as trouble. Raises `Deposed` if entries are missing that the
        checkpoint does not cover, or if entries have a higher term.
        """
        await self._claim(log, checkpoints)
        first, end = await self._begin(log, checkpoints, leads=True)
        if first > 1 and not self.sequence:
            raise Deposed(_no_checkpoint(first, "is lost"))
        if end < self.sequence == self._restored:
            first, end = await self._go_on_behind_checkpoint(log, end, checkpoints.last_term)
        if end < self.sequence or first > self.sequence + 1:
            raise Deposed(
                f"the log holds entries {first} to {end}, but this process knows entries up to {self.sequence}: entries are missing"
            )
        for attempt in range(_ANNOUNCE_TRIES):
            await self._read_on(log, term)
            kept = self.sequence
            # An empty entry announces the term. Once it is in the log, appends of earlier terms are refused.
            entry = encode_batch(term, [], writer, attempt)
            try:
                announced = await log.append(entry, expected_last=self.sequence, timeout_s=5.0)
            except BusError as error:
                logger().info("term not announced yet", term=term, error=str(error))
                await anyio.sleep(0.05)
            else:
                self.engine.on_entry([], announced, term, self._clock.now())
                self._tell_loss(kept, acknowledged)
                return announced
        raise Deposed("another process appends to the log faster than this one can read it")

    async def _claim(self, log: Log, checkpoints: CheckpointStore) -> None:
        try:
            await checkpoints.claim()
        except KeyFenced as error:
            raise Deposed(str(error)) from error
        except (BadMessage, DamagedValue) as error:
            await self._do_without(log, checkpoints, error)

    async def _do_without(self, log: Log, checkpoints: CheckpointStore, error: HeadraceError) -> None:
        """Continue without a damaged checkpoint.

        Raises `Deposed` if the log lacks entries that only the checkpoint covers.
        """
        first, end = await log.bounds()
        has_all = first == 1 <= end
        if not has_all and not (self._has_begun and first <= self.sequence + 1):
            raise Deposed(_no_checkpoint(first, f"cannot be read ({error})")) from error
        logger().error("checkpoint cannot be read; nothing is lost, since the log has everything", error=str(error))
        await checkpoints.begin_anew()

    async def _begin(self, log: Log, checkpoints: CheckpointStore, *, leads: bool) -> tuple[int, int]:
        """Load the checkpoint at the first call, and when the log no longer has the next entry to read.

        Return the first and the last sequence of the log.

        If `leads` is true and the checkpoint is damaged, the process continues without it, provided that the log holds everything.
        """
        first, end = await log.bounds()
        if not self._has_begun or first > self.sequence + 1:
            # If loading is interrupted, the next call loads the checkpoint from the start.
            self._has_begun = False
            self.engine.on_restored(None, self._clock.now())
            try:
                restored = await checkpoints.read(self._take_part)
            except BadMessage as error:
                if not leads:
                    raise
                await self._do_without(log, checkpoints, error)
                # The pages before the damaged page have been loaded; discard them.
                self.engine.on_restored(None, self._clock.now())
                restored = Restored()
            self._restored = restored.sequence
            self._take_part(restored)
            self._has_begun = True
            first, end = await log.bounds()
        return first, end

    async def _drop_consumption(self) -> None:
        """Drop the facts of consumption that the leader has written to the records.

        A standby computes facts from the log but writes none, so they would fill its memory.
        """
        consumption = self.engine.state.consumption
        if len(consumption.waiting) > _MOST_FACTS_OF_STANDBY:
            consumption.drop(await covered_by_records(await self._bus.key_value(subjects.CONSUMPTION_BUCKET)))

    def _take_part(self, part: Page | Restored) -> None:
        self.engine.on_restored(part, self._clock.now())

    async def _go_on_behind_checkpoint(self, log: Log, end: int, last_term: int) -> tuple[int, int]:
        """Let the log continue after the checkpoint if it has lost entries that the checkpoint covers. Return the log's bounds.

        Otherwise new entries would get sequences that the checkpoint covers, and the next process that starts would skip them.
        """
        newest = await log.last()
        term = 0 if newest is None else term_of(newest.data) or 0
        if term > last_term:
            raise Deposed(
                f"the log ends with entry {end} of term {term}, and the checkpoint covers entries up to {self.sequence} of terms "
                f"up to {last_term}: they do not belong together. Restore the stream {subjects.STREAM} and the bucket "
                f"{subjects.CHECKPOINT_BUCKET} from the same backup"
            )
        logger().error("the log lost entries that the checkpoint covers", last=end, checkpoint=self.sequence)
        await log.forget(self.sequence)
        return await log.bounds()

    def _tell_loss(self, kept: int, acknowledged: int) -> None:
        self._lost_entries = max(0, acknowledged - kept)
        if not self._lost_entries:
            return
        self._loss = (
            f"the log of operations lost at least {self._lost_entries} acknowledged entries ({kept + 1} to {acknowledged}): operations "
            "that started in these entries are gone, and jobs that ended in these entries are retried"
        )
        logger().error("the log has lost entries", kept=kept, acknowledged=acknowledged, lost=self._lost_entries)

    async def _read_on(self, log: Log, term: int | None = None) -> None:
        """Apply the entries up to the end. Raises `Deposed` for an entry of a higher term, and `BusError` for a damaged entry."""
        _, end = await log.bounds()
        async for entry in log.read(self.sequence):
            if entry.sequence != self.sequence + 1:
                break
            batch = batch_of(entry)
            if term is not None and batch.term > term:
                raise Deposed(f"entry {entry.sequence} of the log has the newer term {batch.term}")
            self.engine.on_entry(batch.events, entry.sequence, batch.term, self._clock.now())
        first, _ = await log.bounds() if self.sequence < end else (0, 0)
        # An entry that was removed meanwhile is no damage: a newer checkpoint covers it.
        if self.sequence < end and first <= self.sequence + 1:
            raise BusError(
                f"entry {self.sequence + 1} of the log cannot be read: a file of the stream {subjects.STREAM} is damaged. Restore "
                f"the stream and the bucket {subjects.CHECKPOINT_BUCKET} from the same backup. Or stop the server, delete "
                f"`streams/{subjects.STREAM}/msgs/index.db` in its store, and start the server: the log then ends before that entry, "
                f"and up to {end - self.sequence} acknowledged entries are lost"
            )


def _no_checkpoint(first: int, why: str) -> str:
    return (
        f"the log begins with entry {first}, and the checkpoint of the earlier entries {why}. Restore the bucket "
        f"{subjects.CHECKPOINT_BUCKET} from a backup, or delete the stream {subjects.STREAM} as well to begin with no operations"
    )
