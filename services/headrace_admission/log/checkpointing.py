"""Decides when a checkpoint is written, and how many of the log entries that it covers are kept.

A checkpoint is due after a number of events or bytes, so a process that starts reads about that many at most. Entries that it covers
stay in the log as history, up to a number of entries and bytes. A checkpoint that its bucket has lost is written again, because the
log alone would not hold everything any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Final

import anyio

from headrace.bus import Bus, BusError, Log
from headrace.obs.logging import logger
from headrace.runtime.engine import Figure, counter, gauge
from headrace.runtime.fenced_writes import KeyFenced
from headrace.runtime.role import Role
from headrace.wire import subjects
from headrace_admission.log.checkpoint import Checkpoint, CheckpointStore
from headrace_admission.log.recorder import Recorder
from headrace_admission.settings import AdmissionSettings
from headrace_admission.state.state import State

#: Seconds between two checks that the checkpoint still exists.
_LOOK_S: Final = 10.0
#: Pause in seconds between two pages of a checkpoint. A page takes some 5 ms of processor time; in the pauses, other work gets its
#: turn, so that no heartbeat waits for a checkpoint.
_BETWEEN_PAGES_S: Final = 0.02


class Checkpointing:
    """Writes the checkpoints of one term, one at a time."""

    def __init__(
        self,
        bus: Bus,
        settings: AdmissionSettings,
        state: State,
        recorder: Recorder,
        log: Log,
        store: CheckpointStore,
        role: Role,
        write_consumption: Callable[[], Awaitable[None]],
    ) -> None:
        """`write_consumption` brings the records of consumption up to date with the log.

        It is called before each checkpoint is saved. A process that starts does not read the entries that the checkpoint covers, so
        it could not add their facts to the records.
        """
        self._bus = bus
        self._settings = settings
        self._state = state
        self._recorder = recorder
        self._log = log
        self._store = store
        self._role = role
        self._write_consumption = write_consumption
        #: Set while requests may be decided; cleared while a checkpoint is taken.
        self._open = anyio.Event()
        self._open.set()
        self._turn = anyio.Lock()
        self._is_last = False
        self._wanted = anyio.Event()
        #: Events and bytes that were recorded before the last checkpoint was taken.
        self._at_cut = (0, 0)
        self._written = 0
        self._failed = 0
        self._log_bytes = 0

    async def run(self) -> None:
        """Write checkpoints when they are due or lost, until cancelled."""
        async with self._turn:
            await self._sweep()
        while True:
            if self._wanted.is_set() or await self._is_lost():
                self._wanted = anyio.Event()
                await self.write()
            with anyio.move_on_after(_LOOK_S):
                await self._wanted.wait()

    async def until_open(self) -> None:
        """Wait until requests may be decided.

        If they may be decided now, this returns without yielding to the event loop; a wait for the event would always yield.
        """
        while not self._open.is_set():
            await self._open.wait()

    def on_recorded(self) -> None:
        """Request a checkpoint if enough was recorded since the last one."""
        events, size_bytes = self._recorder.recorded
        events_at_cut, bytes_at_cut = self._at_cut
        if (
            events - events_at_cut >= self._settings.checkpoint_events
            or size_bytes - bytes_at_cut >= self._settings.checkpoint_bytes
        ):
            self._wanted.set()

    async def write_last(self) -> None:
        """Write a checkpoint without pauses, because the service stops.

        If a checkpoint is being written already, the rest of it is written without pauses too.
        """
        self._is_last = True
        await self.write()

    async def write(self) -> None:
        """Take and save a checkpoint, then remove the oldest covered entries if the log exceeds its bounds."""
        async with self._turn:
            self._open = anyio.Event()
            try:
                # Requests are not decided until the flush is done, so the flush may take no longer than a request may wait for its answer.
                with anyio.fail_after(self._settings.answer_deadline_ms / 1000):
                    await self._recorder.flush()
                checkpoint = Checkpoint(self._state)
                self._at_cut = self._recorder.recorded
            except (BusError, TimeoutError) as error:
                logger().info("checkpoint not begun", error=str(error) or self._recorder.appender.why_waiting)
                return
            finally:
                self._open.set()
            with closing(checkpoint):
                await self._save(checkpoint)

    def figures(self) -> list[Figure]:
        """Return the metrics of the checkpoints, and the size of the log at the last checkpoint."""
        return [
            counter("checkpoints_written", "checkpoints", self._written, "Checkpoints of the state that were written."),
            counter("checkpoints_failed", "checkpoints", self._failed, "Checkpoints that could not be written."),
            gauge("log_size", "bytes", self._log_bytes, "Size of the log at the last checkpoint."),
        ]

    async def _between_pages(self) -> None:
        await anyio.sleep(0 if self._is_last else _BETWEEN_PAGES_S)

    async def _is_lost(self) -> bool:
        try:
            # If the bucket is gone, this makes it again.
            await self._bus.key_value(subjects.CHECKPOINT_BUCKET)
            first, _ = await self._log.bounds()
            is_lost = await self._store.is_lost(first)
        except KeyFenced as error:
            self._role.step_down(str(error))
            return False
        except BusError as error:
            logger().info("checkpoint not verified", error=str(error))
            return False
        if is_lost:
            logger().error("bucket has lost the checkpoint", bucket=subjects.CHECKPOINT_BUCKET)
        return is_lost

    async def _sweep(self) -> None:
        try:
            await self._store.sweep()
        except BusError as error:
            logger().info(
                "former checkpoints could not be removed; the next leading admission tries again", error=str(error)
            )

    async def _save(self, checkpoint: Checkpoint) -> None:
        try:
            await self._write_consumption()
            await self._store.save(checkpoint, self._between_pages)
            await self._forget(checkpoint.sequence)
        except KeyFenced as error:
            self._role.step_down(str(error))
        except BusError as error:
            self._failed += 1
            logger().warning("checkpoint not written", sequence=checkpoint.sequence, error=str(error))
        else:
            self._written += 1
            logger().info("checkpoint written", sequence=checkpoint.sequence)
        if self._log_bytes > self._settings.keep_bytes:
            logger().error(
                "log is larger than its bound", size_bytes=self._log_bytes, bound_bytes=self._settings.keep_bytes
            )

    async def _forget(self, covered: int) -> None:
        """Remove the oldest entries until the log is within both bounds. Entries that the checkpoint does not cover stay."""
        first, last = await self._log.bounds()
        up_to = covered - self._settings.keep_entries
        while True:
            if up_to >= first:
                await self._log.forget(up_to)
                first = up_to + 1
            self._log_bytes = await self._log.size_bytes()
            excess_bytes = self._log_bytes - self._settings.keep_bytes
            if excess_bytes <= 0 or first > covered:
                return
            # Remove the excess bytes, converted to entries by their average size. Each round removes at least one entry, so the loop ends.
            up_to = min(covered, first + (last + 1 - first) * excess_bytes // self._log_bytes)
