"""Consumption of finished runs, added up from the records of admission."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final

import msgspec

from headrace.client.asking import Asker
from headrace.consumption_sums import Adding, By, Line, Wanted, checked_keys, periods
from headrace.ids import TreeName
from headrace.runtime.clock import Clock
from headrace.wire.consumption import BadRecord, ConsumptionPage, GetConsumption, Level, StoredRecord

_DAY_MS: Final = 86_400_000


class Consumed(msgspec.Struct, frozen=True):
    """Consumption over a period, and what it lacks."""

    #: First day (UTC) that is counted.
    since: date
    #: First day after the period.
    until: date
    lines: list[Line]
    #: Day of the first run that was ever counted, or null if it is not known.
    begun: date | None = None
    #: First day of which records of this kind are kept. Older days in the period are missing.
    kept_since: date | None = None
    #: Number of runs that are known not to be counted, of all times.
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
        """Add up what finished runs were allotted, used and lost from the day `since` to before the day `until` (UTC).

        A run counts after its end, with each part of its time on the day of that part. `pool` selects a pool and all pools that were
        below it. Raises `Refused`, `Unanswered`, `BadInput`.
        """
        keys, wanted = checked_keys(by, "by"), Wanted(self._tree, pool, user, operation)
        today = date(1970, 1, 1) + timedelta(self._clock.wall_ms() // _DAY_MS)
        # There are no records after today. To read to the end of the year takes one record of a year instead of many of days.
        end = max(until, date(min(today.year + 1, date.max.year), 1, 1)) if until > today else until
        adding = Adding(keys, wanted)
        lost_runs = unreadable = begun_ms = 0
        kept_since: date | None = None
        for level, period in periods(since, end, keys, wanted):
            page, records = await self._records(level, period)
            lost_runs, begun_ms = page.lost_runs, page.begun_ms
            first = today - timedelta(min(page.kept_days, (today - date.min).days))
            if _first_day(period) < first:
                kept_since = max(first, kept_since or first)
            for record in records:
                try:
                    adding.add(_period_of(record.key), record.data)
                except BadRecord:
                    unreadable += 1
        begun = date(1970, 1, 1) + timedelta(begun_ms // _DAY_MS) if begun_ms else None
        return Consumed(since, until, adding.lines(), begun, kept_since, lost_runs, unreadable)

    async def _records(self, level: Level, period: str) -> tuple[ConsumptionPage, list[StoredRecord]]:
        """Return the last page and all records of a period. A record that changed while the pages were read comes again."""
        found: dict[str, StoredRecord] = {}
        request = GetConsumption(level, period)
        while True:
            page = await self._asker.ask("consumption", request, ConsumptionPage)
            found.update((record.key, record) for record in page.records)
            if page.next is None:
                return page, list(found.values())
            request = GetConsumption(level, period, page.next)


def _period_of(key: str) -> str:
    """Return the period in the key of a record, such as `2026.11.28`."""
    return key.partition(".")[2].rpartition(".")[0]


def _first_day(period: str) -> date:
    year, month, day = (*map(int, period.split(".")), 1, 1)[:3]
    return date(year, month, day)
