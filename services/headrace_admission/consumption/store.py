"""The records of consumption in their bucket, written by one term at a time.

The head names a log entry: the records contain all facts of the entries up to it. A new term claims the head, and a former term
cannot write the head after that. A former term may still write a record. This is harmless: both terms add facts of the same log, and
a write succeeds only if the record has not changed since it was read. So every run is counted exactly once, even if a write is
interrupted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import aclosing
from datetime import date, timedelta
from functools import partial
from typing import Final

import msgspec

from headrace.bus import DamagedValue, KeyValue, WrongRevision
from headrace.obs.logging import logger
from headrace.runtime.concurrent_calls import together
from headrace.runtime.fenced_writes import FencedKey
from headrace.wire.codec import UNREADABLE
from headrace.wire.consumption import BadRecord, ConsumptionRecord, GetConsumption, Level, StoredRecord, pack, unpack
from headrace.wire.version import Term
from headrace_admission.consumption.facts import Fact, PoolChain
from headrace_admission.consumption.records import (
    LARGEST_RECORD_BYTES,
    NO_RECORD,
    keys_of,
    packed_within,
    with_facts,
)

_HEAD: Final = "head"
#: Number of records that are written at the same time.
_TOGETHER: Final = 8
#: Number of years that are swept when an age limit is applied: the records of this many years before the year of the limit are removed.
_YEARS_TO_SWEEP: Final = 5


class Head(msgspec.Struct, frozen=True):
    """The log entries whose facts the records contain, and the number of runs that the records lack."""

    #: Sequence of the log entry up to which all records contain all facts.
    until: int = 0
    #: Highest sequence of a log entry whose facts may be in some records already, because a write has begun.
    reaching: int = 0
    term: Term = 0
    #: Unix time in milliseconds since which runs are counted; 0: not known.
    begun_ms: int = 0
    #: Number of runs that are known to be missing from the records.
    lost_runs: int = 0


class ConsumptionStore:
    """The records of all trees. All methods raise `BusError`; those that write the head raise `KeyFenced` too."""

    def __init__(self, bucket: KeyValue, term: Term) -> None:
        self._bucket = bucket
        self._key = FencedKey(bucket, _HEAD, term, lambda value: head_in(value).term)
        self._term = term
        self.head = Head()

    async def claim(self, kept: int, now_ms: int) -> Head:
        """Claim the head for this term, and return it.

        `kept` is the sequence of the last log entry that former terms wrote. If records contain facts of later entries, the log has
        lost these entries, and new entries will get the same sequences. The records are then marked as containing entries up to
        `kept` only, before anything is recorded in the log.
        """
        value = await self._key.claim(lambda known: _written(self._own(head_in(known), now_ms)))
        self.head = self._own(head_in(value), now_ms)
        if self.head.reaching > kept:
            logger().warning("records of consumption are ahead of the log", reaching=self.head.reaching, kept=kept)
            for level in Level:
                await self._hold_back(level, kept)
            await self._write_head(until=min(self.head.until, kept), reaching=kept)
        return self.head

    async def add(
        self, facts: Sequence[Fact], until: int, path_of: Callable[[PoolChain], str], lost_runs: int = 0
    ) -> None:
        """Add facts to all their records.

        `facts` are all facts of log entries up to the entry `until`, except facts that the records contain according to the head.
        """
        if until <= self.head.until and not lost_runs:
            return
        groups: defaultdict[tuple[Level, str], list[Fact]] = defaultdict(list)
        for fact in facts:
            for level, key in keys_of(fact).items():
                groups[level, key].append(fact)
        if groups:
            await self._write_head(reaching=max(until, self.head.reaching))
        records = [partial(self._add_to, level, key, some, until, path_of) for (level, key), some in groups.items()]
        # A person who asks for sums waits for these writes. One after the other they took longer than the patience of a command on a busy
        # machine.
        for first in range(0, len(records), _TOGETHER):
            await together(*records[first : first + _TOGETHER])
        lost_runs += self.head.lost_runs
        await self._write_head(until=until, reaching=max(until, self.head.reaching), lost_runs=lost_runs)

    async def read(self, request: GetConsumption, most_bytes: int) -> tuple[list[StoredRecord], int | None]:
        """Return a page of the records of a period, and the `after` with which to request the next page; None: this is the last page."""
        found: list[StoredRecord] = []
        size = last = 0
        prefix = f"{request.level}.{request.period}"
        async with aclosing(self._bucket.read(prefix, after=request.after)) as entries:
            async for entry in entries:
                size += len(entry.key) + len(entry.value)
                if found and size > most_bytes:
                    return found, last
                if len(entry.value) <= LARGEST_RECORD_BYTES:
                    found.append(StoredRecord(entry.key, entry.value))
                last = entry.revision
        return found, None

    async def remove_before(self, level: Level, first: date) -> None:
        """Remove the records of all periods of a level that end before the day `first`."""
        years = [f"{year:04}" for year in range(first.year - _YEARS_TO_SWEEP, first.year)]
        months = [f"{first.year:04}.{month:02}" for month in range(1, first.month)]
        days = [(first - timedelta(distance)).strftime("%Y.%m.%d") for distance in range(1, first.day)]
        by_level = {Level.MONTHS: years + months, Level.YEARS: years}
        for period in by_level.get(level, years + months + days):
            await self._bucket.purge(f"{level}.{period}")

    async def size_bytes(self) -> int:
        """Return the bytes that the records take."""
        return await self._bucket.size_bytes()

    async def _add_to(
        self, level: Level, key: str, facts: list[Fact], until: int, path_of: Callable[[PoolChain], str]
    ) -> None:
        while True:
            try:
                entry = await self._bucket.get(key)
                record = NO_RECORD if entry is None else _record_in(key, entry.value)
                if any(fact.sequence > record.until for fact in facts):
                    value = packed_within(with_facts(record, facts, until, path_of, level))
                    await self._bucket.update(key, value, 0 if entry is None else entry.revision)
            except WrongRevision:
                # The record has changed since it was read: an earlier write of this process took effect although its answer was lost, or a
                # process of a former term wrote. The record says which facts it contains, so it is read again.
                continue
            except DamagedValue as error:
                # The damaged record is left out. Otherwise no checkpoint could be saved, and the log would grow without a bound.
                logger().error("record of consumption is damaged; its runs are not counted", key=key, error=str(error))
            return

    async def _hold_back(self, level: Level, kept: int) -> None:
        ahead: list[tuple[str, ConsumptionRecord, int]] = []
        async with aclosing(self._bucket.read(str(level))) as entries:
            async for entry in entries:
                record = _record_in(entry.key, entry.value)
                if record.until > kept:
                    ahead.append((entry.key, record, entry.revision))
        for key, record, revision in ahead:
            await self._bucket.update(key, pack(msgspec.structs.replace(record, until=kept)), revision)

    async def _write_head(self, **changes: int) -> None:
        head = msgspec.structs.replace(self.head, **changes)
        await self._key.write(_written(head))
        self.head = head

    def _own(self, head: Head, now_ms: int) -> Head:
        return msgspec.structs.replace(head, term=self._term, begun_ms=head.begun_ms or now_ms)


async def stored_head(bucket: KeyValue) -> Head | None:
    """Return the head of the records, or None if no head was written yet or the bucket was lost."""
    entry = await bucket.get(_HEAD)
    return None if entry is None else head_in(entry.value)


async def covered_by_records(bucket: KeyValue) -> int:
    """Return the sequence of the log entry up to which all records contain all facts; 0 if it is not known."""
    head = await stored_head(bucket)
    return 0 if head is None else head.until


def head_in(value: bytes | None) -> Head:
    """Return the head in a value; an empty head if there is no value or it cannot be read.

    Even with an empty head no run is counted twice, because each record says up to which log entry it contains the facts.
    """
    try:
        return Head() if value is None else msgspec.json.decode(value, type=Head)
    except UNREADABLE as error:
        logger().error("head of the records of consumption cannot be read", error=str(error))
        return Head()


def _written(head: Head) -> bytes:
    return msgspec.json.encode(head)


def _record_in(key: str, value: bytes) -> ConsumptionRecord:
    try:
        return unpack(value)
    except BadRecord as error:
        logger().error("record of consumption cannot be read; a new record is begun", key=key, error=str(error))
        return NO_RECORD
