"""Keeps the records of consumption: brings them up to date, answers requests for them, and removes old records.

Nothing is written while no run ends. Before a checkpoint is saved, the records must contain all log entries that the checkpoint
covers, because after a restart only later entries are read.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Final

import anyio

from headrace.bus import BusError
from headrace.obs.logging import logger
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.runtime.engine import Figure, counter, gauge
from headrace.runtime.fenced_writes import KeyFenced
from headrace.runtime.role import Role
from headrace.runtime.service import Runtime
from headrace.wire import subjects
from headrace.wire.codec import LARGEST_MESSAGE_BYTES
from headrace.wire.consumption import ConsumptionPage, GetConsumption, Level
from headrace.wire.refusals import NotReady
from headrace_admission.consumption.facts import DAY_MS
from headrace_admission.consumption.store import ConsumptionStore, stored_head
from headrace_admission.settings import AdmissionSettings
from headrace_admission.state.state import State

#: Seconds before the next try to open the bucket, or to write after a failure.
_AGAIN_S: Final = 10.0
#: Seconds after a write of the records during which requests are answered without another write, so that many requests do not cause
#: many writes.
_FRESH_S: Final = 1.0
#: Upper bound of the fraction of the time that goes into writes for requests. With 100,000 pairs of a person and a pool, a write of
#: all records keeps admission busy for 3 s, so a person who asks every second would otherwise keep admission busy all the time.
_BUSY: Final = 0.05
#: Number of bytes at which a page of records is full. A single record may be larger.
PAGE_BYTES: Final = LARGEST_MESSAGE_BYTES - 10_000
#: Number of requests that are answered at a time, because each holds a page of records in memory.
_READERS: Final = 2
#: While all records together take too many bytes, the records of single operations are removed in steps of this many days, the oldest days
#: first. The records of the newest `_SHORTEN_DAYS` days are never removed for this reason.
_SHORTEN_DAYS: Final = 30


class ConsumptionKeeper:
    """The records of consumption in one term of admission."""

    def __init__(self, runtime: Runtime[AdmissionSettings], role: Role, state: Callable[[], State]) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
        self._role = role
        self._state = state
        self._store: ConsumptionStore | None = None
        self._turn = anyio.Lock()
        self._wake = anyio.Event()
        #: Sequence of the last log entry of former terms.
        self._kept = 0
        #: Sequence of the last log entry that this process did not read, because a checkpoint covers it. The facts of the entries up to it
        #: are not in memory.
        self._unread = 0
        #: Number of the runs in `ConsumptionFacts.lost_runs` that are counted in the head of the records already.
        self._lost_noted = 0
        self._written_s = -_FRESH_S
        #: Seconds that the last write took.
        self._write_s = 0.0
        self._swept_day = 0
        self._size_bytes = 0

    async def open(self, kept: int, unread: int) -> None:
        """Claim the records for this term. A failure is logged and tried again later.

        `kept` is the last log entry of former terms. Entries up to `unread` were not read, because a checkpoint covers them.
        """
        self._kept, self._unread = kept, unread
        try:
            await self._open()
        except BusError as error:
            logger().error("consumption is not recorded", error=str(error))

    def note(self) -> None:
        """Note that there may be new facts."""
        if self._state().consumption.waiting:
            self._wake.set()

    async def run(self) -> None:
        """Until cancelled, write new facts to the records, `consumption_period_ms` after they arrive."""
        while True:
            self.note()
            await self._wake.wait()
            self._wake = anyio.Event()
            await anyio.sleep(self._settings.consumption_period_ms / 1000)
            try:
                await self.write()
                await self._sweep()
            except BusError as error:
                logger().warning("consumption not written", error=str(error))
                await anyio.sleep(_AGAIN_S)

    async def write(self) -> None:
        """Bring the records up to date with all durable entries. Raises `BusError`.

        Returns without effect while the bucket cannot be opened at all, so that checkpoints do not wait for it.
        """
        async with self._turn:
            try:
                await self._write()
            except KeyFenced as error:
                self._role.step_down(str(error))
                raise

    async def serve(self) -> None:
        """Start to answer `consumption`."""
        subject = subjects.user("*", "consumption")
        endpoints = self._runtime.endpoints
        await endpoints.serve(subject, GetConsumption, CallerKind.USER, self._on_get, concurrency=_READERS, pending=100)

    def figures(self) -> list[Figure]:
        """Return metrics: facts that are not written yet, runs that the records lack, and the size of the records."""
        consumption, store = self._state().consumption, self._store
        lost = consumption.lost_runs - self._lost_noted + (0 if store is None else store.head.lost_runs)
        return [
            gauge(
                "consumption_waiting",
                "facts",
                len(consumption.waiting),
                "Facts about finished runs that are not in the records of consumption yet.",
            ),
            counter("consumption_lost_runs", "runs", lost, "Finished runs that the records of consumption lack."),
            gauge("consumption_size", "bytes", self._size_bytes, "Size of the records of consumption, once a day."),
        ]

    async def _open(self) -> ConsumptionStore:
        store = ConsumptionStore(await self._runtime.bus.key_value(subjects.CONSUMPTION_BUCKET), self._role.term)
        try:
            head = await store.claim(self._kept, self._runtime.clock.now().wall_ms)
        except KeyFenced as error:
            self._role.step_down(str(error))
            raise
        if head.until < self._unread:
            # This happens if an older release, which did not record consumption, took the checkpoint, or if the bucket was lost.
            logger().warning("entries are not counted in consumption", first=head.until + 1, last=self._unread)
        self._state().consumption.drop(head.until)
        self._store = store
        return store

    async def _write(self) -> None:
        state = self._state()
        if self._store is None or await self._is_lost(self._store):
            self._store = None
            await self.open(self._kept, self._unread)
        store = self._store
        if store is None:
            return
        began_s, until, lost = self._runtime.clock.steady_s(), state.sequence, state.consumption.lost_runs
        await store.add([*state.consumption.waiting], until, state.path, lost - self._lost_noted)
        self._lost_noted = lost
        state.consumption.drop(until)
        self._written_s = self._runtime.clock.steady_s()
        self._write_s = self._written_s - began_s

    async def _is_lost(self, store: ConsumptionStore) -> bool:
        """True if the bucket holds no head any more. The caller then opens the bucket again, with a new head and no records."""
        head = await stored_head(await self._runtime.bus.key_value(subjects.CONSUMPTION_BUCKET))
        covered = 0 if head is None else head.until
        if covered < store.head.until:
            # The bucket was lost, or an older state of it was put in its place.
            logger().error("records of consumption are lost", first=covered + 1, last=store.head.until)
        return head is None

    async def _sweep(self) -> None:
        """Remove records that are too old or too many, once a day."""
        today = self._runtime.clock.now().wall_ms // DAY_MS
        if self._store is None or today == self._swept_day:
            return
        days = self._kept_days()
        for level, kept in days.items():
            await self._store.remove_before(level, _day(today - kept))
        kept = days[Level.OPERATIONS]
        self._size_bytes = await self._store.size_bytes()
        while self._size_bytes > self._settings.keep_consumption_bytes and kept > _SHORTEN_DAYS:
            kept = max(_SHORTEN_DAYS, kept - _SHORTEN_DAYS)
            await self._store.remove_before(Level.OPERATIONS, _day(today - kept))
            self._size_bytes = await self._store.size_bytes()
        if self._size_bytes > self._settings.keep_consumption_bytes:
            logger().error("records of consumption are larger than their bound", size_bytes=self._size_bytes)
        self._swept_day = today

    async def _on_get(self, request: GetConsumption, _caller: Caller) -> ConsumptionPage | NotReady:
        try:
            age_s = self._runtime.clock.steady_s() - self._written_s
            if not request.after and age_s > max(_FRESH_S, self._write_s / _BUSY):
                await self.write()
            if self._store is None:
                return NotReady("the records of consumption cannot be opened")
            records, following = await self._store.read(request, PAGE_BYTES)
        except BusError as error:
            return NotReady(f"the records of consumption cannot be read: {error}")
        head = self._store.head
        return ConsumptionPage(records, following, self._kept_days()[request.level], head.begun_ms, head.lost_runs)

    def _kept_days(self) -> dict[Level, int]:
        settings = self._settings
        return {
            Level.OPERATIONS: settings.keep_operation_consumption_days,
            Level.POOLS: settings.keep_daily_consumption_days,
            Level.DAYS: settings.keep_daily_consumption_days,
            Level.MONTHS: settings.keep_consumption_days,
            Level.YEARS: settings.keep_consumption_days,
        }


def _day(day: int) -> date:
    return date(1970, 1, 1) + timedelta(max(0, day))
