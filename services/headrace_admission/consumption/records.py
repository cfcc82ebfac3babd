"""The records of consumption: which records a fact belongs to, and how facts are added to a record. Pure.

Each record names the last log entry whose facts it contains. Facts of that entry and of earlier entries are not added again, so it
does no harm to add the same facts twice, for example after a crash.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from datetime import date
from typing import Final

from headrace.wire.codec import LARGEST_MESSAGE_BYTES
from headrace.wire.consumption import ConsumptionRecord, ConsumptionRow, Level, RunSums, pack
from headrace_admission.consumption.facts import Fact, PoolChain

#: By level, the number of records among which the rows of one period are divided, so that each record stays small: a record is full at some
#: 4,500 rows. A day has only 8 records, because it has fewer persons and pools than a month, and because many small records take long to
#: read. The pools of a day are divided among 2 for the same reason.
RECORDS_OF_PERIOD: Final = {Level.OPERATIONS: 32, Level.POOLS: 2, Level.DAYS: 8, Level.MONTHS: 32, Level.YEARS: 32}
#: Upper bound of the bytes of a stored record, so that a page of an answer can hold at least one record.
LARGEST_RECORD_BYTES: Final = LARGEST_MESSAGE_BYTES - 20_000
_EPOCH: Final = date(1970, 1, 1).toordinal()
#: Number of the last day that a `date` can represent. A run with a later time counts for this day.
_LAST_DAY: Final = date.max.toordinal() - _EPOCH
NO_RECORD: Final = ConsumptionRecord(0, [])


def day_key(day: int) -> str:
    """Return the name of a day (days since 1970-01-01) in keys, such as `2026.11.28`."""
    return date.fromordinal(_EPOCH + min(max(day, 0), _LAST_DAY)).strftime("%Y.%m.%d")


def keys_of(fact: Fact) -> dict[Level, str]:
    """Return the keys of the records that a fact belongs to, one for each level."""
    day = day_key(fact.day)
    periods = {Level.OPERATIONS: day, Level.POOLS: day, Level.DAYS: day, Level.MONTHS: day[:7], Level.YEARS: day[:4]}
    return {level: f"{level}.{period}.{_number(level, fact)}" for level, period in periods.items()}


def with_facts(
    record: ConsumptionRecord, facts: Iterable[Fact], until: int, path_of: Callable[[PoolChain], str], level: Level
) -> ConsumptionRecord:
    """Return the record with the facts added that it does not contain yet.

    The returned record contains all facts of the log up to the entry `until`.
    """
    rows = {(row.tree, row.pool, row.user, row.operation): row.sums for row in record.rows}
    for fact in facts:
        if fact.sequence > record.until:
            operation = fact.operation if level is Level.OPERATIONS else ""
            user = "" if level is Level.POOLS else fact.user
            key = (str(fact.chain.tree), path_of(fact.chain), user, str(operation))
            known = rows.get(key)
            rows[key] = fact.sums if known is None else known + fact.sums
    return ConsumptionRecord(max(record.until, until), [ConsumptionRow(*key, sums) for key, sums in rows.items()])


def packed_within(record: ConsumptionRecord, most_bytes: int = LARGEST_RECORD_BYTES) -> bytes:
    """Return a record as it is stored. If it is too large, its smallest rows are merged; no sum is lost.

    First, small rows of single operations are merged into one row for each person and pool. If that is not enough, small rows of
    persons and pools are merged into one row for each tree.
    """
    data = pack(record)
    while len(data) > most_bytes:
        largest_first = sorted(record.rows, key=lambda row: row.sums.allotted_core_s, reverse=True)
        kept = len(largest_first) // 2
        rows: dict[tuple[str, str, str, str], RunSums] = {}
        for place, row in enumerate(largest_first):
            own = (row.tree, row.pool, row.user, row.operation)
            wider = (*own[:3], "") if row.operation else (row.tree, "", "", "")
            key = own if place < kept else wider
            rows[key] = rows.get(key, RunSums()) + row.sums
        merged = ConsumptionRecord(record.until, [ConsumptionRow(*key, sums) for key, sums in rows.items()])
        if merged.rows == largest_first:
            break
        record, data = merged, pack(merged)
    return data


def _number(level: Level, fact: Fact) -> str:
    name = {Level.OPERATIONS: fact.operation, Level.POOLS: fact.chain.pools[0]}.get(level, fact.user)
    return f"{zlib.crc32(name.encode()) % RECORDS_OF_PERIOD[level]:02}"
