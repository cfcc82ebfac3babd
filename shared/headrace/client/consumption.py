"""Consumption of finished runs, added up from the records of admission."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final

import anyio
import msgspec

from headrace.client.asking import Asker
from headrace.consumption_sums import Adding, By, Line, Wanted, checked_keys, periods
from headrace.ids import TreeName
from headrace.installation.extras import require
from headrace.runtime.clock import Clock
from headrace.runtime.concurrent_calls import together
from headrace.wire.consumption import BadRecord, ConsumptionPage, GetConsumption

_DAY_MS: Final = 86_400_000
#: The first day of Unix time.
_FIRST_DAY: Final = date(1970, 1, 1)


class Consumed(msgspec.Struct, frozen=True):
    """Consumption over a period, and what is known to be missing from it."""

    #: First day (UTC) that is counted.
    since: date
    #: First day after the period.
    until: date
    lines: list[Line]
    #: Day of the first run that was ever counted, or null if it is not known.
    begun: date | None = None
    #: First day of which records of this kind are kept. Older days in the period are missing.
    kept_since: date | None = None
    #: Number of runs, over all time and not only this period, that are known to be missing from the records.
    lost_runs: int = 0
    #: Number of records that could not be read.
    unreadable: int = 0


class Consumption:
    """Requests for the consumption of one tree."""

    def __init__(self, asker: Asker, clock: Clock, tree: TreeName) -> None:
        self._asker = asker
        self._clock = clock
        self._tree = tree

    async def summed(
        self,
        by: Sequence[By] = (By.USER,),
        *,
        since: date,
        until: date,
        pool: str = "",
        user: str = "",
        operation: str = "",
    ) -> Consumed:
        """Add up what finished runs were allotted, used and lost on the days (UTC) from `since` up to the day before
        `until`.

        A run is counted once it has ended. If it ran on several days, each day counts its part of the run. `pool`
        selects a pool and all pools that were below it. Raises `Refused`, `Unanswered`, `BadInput`, `MissingExtra`.
        """
        require("analysis", "adding up consumption, as `headrace usage` does,")
        keys, wanted = checked_keys(by, "by"), Wanted(self._tree, pool, user, operation)
        today = _FIRST_DAY + timedelta(self._clock.wall_ms() // _DAY_MS)
        # There are no records before 1970 or after today, so no other years are asked for. Reading on to the end of this year adds nothing
        # to the sums, but then one record of the whole year is read instead of many records of days.
        end = date(min(today.year + 1, date.max.year), 1, 1) if until > today else until
        send, receive = anyio.create_memory_object_stream[tuple[str, ConsumptionPage]](1)
        adding = _Pages(Adding(keys, wanted), today)

        async def read() -> None:
            async with send:
                for level, period in periods(max(since, _FIRST_DAY), end, keys, wanted):
                    request = GetConsumption(level, period)
                    while True:
                        page = await self._asker.ask("consumption", request, ConsumptionPage)
                        await send.send((period, page))
                        if page.next is None:
                            break
                        request = GetConsumption(level, period, page.next)

        async def add() -> None:
            async with receive:
                async for period, page in receive:
                    adding.add(period, page)

        # admission prepares the next page while the records of this page are added up.
        await together(read, add)
        return adding.consumed(since, until)


class _Pages:
    """Pages of records that are added up, and what is known of the records."""

    def __init__(self, adding: Adding, today: date) -> None:
        self._adding = adding
        self._today = today
        self._last = ConsumptionPage([])
        self._kept_since: date | None = None
        self._unreadable = 0

    def add(self, period: str, page: ConsumptionPage) -> None:
        """Add the records of a page. If a record changed while the pages were read, a later page has it again, and the later record
        replaces the earlier record.
        """
        self._last = page
        first = self._today - timedelta(min(page.kept_days, (self._today - date.min).days))
        if _first_day(period) < first:
            self._kept_since = max(first, self._kept_since or first)
        for record in page.records:
            try:
                self._adding.add(record)
            except BadRecord:
                self._unreadable += 1

    def consumed(self, since: date, until: date) -> Consumed:
        """Return the sums."""
        begun = _FIRST_DAY + timedelta(self._last.begun_ms // _DAY_MS) if self._last.begun_ms else None
        return Consumed(
            since, until, self._adding.lines(), begun, self._kept_since, self._last.lost_runs, self._unreadable
        )


def _first_day(period: str) -> date:
    year, month, day = (*map(int, period.split(".")), 1, 1)[:3]
    return date(year, month, day)
