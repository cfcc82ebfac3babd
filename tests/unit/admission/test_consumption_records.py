"""Records of consumption: each run is added once, wherever a write is interrupted, and records stay within their bounds."""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import date

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bus import BusError
from headrace.consumption_sums import Adding, By, Wanted
from headrace.ids import OperationId, PoolName, TreeName
from headrace.wire.consumption import (
    FIGURES_OF_ROW,
    BadRecord,
    Columns,
    ConsumptionRecord,
    ConsumptionRow,
    GetConsumption,
    Level,
    RunSums,
    StoredRecord,
    pack,
    unpack,
)
from headrace_admission.consumption.facts import Fact, PoolChain
from headrace_admission.consumption.records import packed_within
from headrace_admission.consumption.store import ConsumptionStore, covered_by_records
from tests.support.moody_bucket import MoodyBucket

TREE = TreeName("default")
Key = tuple[Level, str, str, str]


class Killed(BusError):
    """The process is gone: nothing that it does takes effect any more."""


class DyingBucket(MoodyBucket):
    """A bucket whose user is killed at write `dies_at`, before or after it took effect."""

    def __init__(self) -> None:
        super().__init__()
        self.dies_at = -1
        self.writes = 0
        self.too_late = False

    async def update(self, key: str, value: bytes, revision: int) -> int:
        self.writes += 1
        if self.writes == self.dies_at and not self.too_late:
            raise Killed
        written = await super().update(key, value, revision)
        if self.writes == self.dies_at:
            raise Killed
        return written


def path_of(chain: PoolChain) -> str:
    return "/".join(reversed(chain.pools))


def a_fact(sequence: int, day: int = 0, pool: str = "a", user: str = "anna", operation: str = "one") -> Fact:
    chain = PoolChain(TREE, (PoolName(pool),), is_whole=True)
    return Fact(sequence, day, chain, user, OperationId(operation), RunSums(1, 0, float(2**sequence)))


def wanted(facts: Sequence[Fact]) -> dict[Key, RunSums]:
    sums: defaultdict[Key, RunSums] = defaultdict(RunSums)
    for fact in facts:
        for level in Level:
            operation = fact.operation if level is Level.OPERATIONS else ""
            user = "" if level is Level.POOLS else fact.user
            sums[level, path_of(fact.chain), user, operation] += fact.sums
    return dict(sums)


async def kept(bucket: MoodyBucket) -> dict[Key, RunSums]:
    sums: defaultdict[Key, RunSums] = defaultdict(RunSums)
    for level in Level:
        async for entry in bucket.read(level):
            for row in unpack(entry.value).rows:
                sums[level, row.pool, row.user, row.operation] += row.sums
    return dict(sums)


async def a_term(bucket: MoodyBucket, term: int, log: Sequence[Fact], until: int) -> None:
    """A process that starts from a checkpoint at the head or before it, with the facts of the log behind it, and writes them."""
    store = ConsumptionStore(bucket, term)
    head = await store.claim(len(log), 1)
    await store.add([fact for fact in log[:until] if fact.sequence > head.until], until, path_of)


events = st.builds(
    lambda sequence, day, pool, user, operation: (day, pool, user, operation),
    st.just(0),
    st.sampled_from([0, 0, 31, 366]),
    st.sampled_from("ab"),
    st.sampled_from(["anna", "ben"]),
    st.sampled_from(["one", "two"]),
)


@given(st.lists(events, min_size=1, max_size=12), st.integers(1, 60), st.booleans(), st.integers(0, 12))
def test_a_kill_at_any_write_counts_no_run_twice_and_loses_none(
    found: list[tuple[int, str, str, str]], dies_at: int, too_late: bool, first: int
) -> None:
    log = [a_fact(sequence, *each) for sequence, each in enumerate(found, 1)]

    async def course() -> None:
        bucket = DyingBucket()
        bucket.dies_at, bucket.too_late = dies_at, too_late
        for term, until in enumerate((min(first, len(log)), len(log), len(log)), 1):
            try:
                await a_term(bucket, term, log, until)
            except Killed:
                continue
        assert await kept(bucket) == wanted(log)
        assert await covered_by_records(bucket) == len(log)

    anyio.run(course)


def test_a_kill_after_each_event_counts_no_run_twice_and_loses_none() -> None:
    log = [a_fact(sequence, user=user) for sequence, user in enumerate(("anna", "ben") * 4, 1)]

    async def course() -> None:
        bucket = MoodyBucket()
        for until in range(len(log) + 1):
            await a_term(bucket, until + 1, log, until)
            # The head is lost with the process: the records say themselves what they contain.
            bucket.kept.pop("head")
        assert await kept(bucket) == wanted(log)

    anyio.run(course)


def test_a_former_term_changes_nothing_more() -> None:
    log = [a_fact(1), a_fact(2)]

    async def course() -> None:
        bucket = MoodyBucket()
        former, later = ConsumptionStore(bucket, 1), ConsumptionStore(bucket, 2)
        await former.claim(0, 1)
        await later.claim(0, 1)
        await later.add(log, 2, path_of)
        with pytest.raises(BusError):
            await former.add(log, 2, path_of)
        assert await kept(bucket) == wanted(log)

    anyio.run(course)


@pytest.mark.parametrize("dies_at", [-1, 4, 5])
def test_entries_that_follow_a_lost_end_of_the_log_are_counted(dies_at: int) -> None:
    """The former term is killed after it has written some records, or writes all of them."""

    async def course() -> None:
        bucket = DyingBucket()
        bucket.dies_at = dies_at
        with suppress(Killed):
            await a_term(bucket, 1, [a_fact(1), a_fact(2), a_fact(3)], 3)
        store = ConsumptionStore(bucket, 2)
        head = await store.claim(1, 1)
        anew = [a_fact(2, user="ben"), a_fact(3, user="carl")]
        facts = [fact for fact in (a_fact(1), *anew) if fact.sequence > head.until]
        await store.add(facts, 3, path_of)

        assert head.until <= 1
        # The runs whose ends the log lost took place, and have run again.
        found = await kept(bucket)
        found = {key: sums for key, sums in found.items() if key[0] is not Level.POOLS}
        of_persons = {key: sums for key, sums in wanted(anew).items() if key[0] is not Level.POOLS}
        assert {key: sums for key, sums in found.items() if key[2] != "anna"} == of_persons
        assert all(sums.allotted_core_s in (2.0, 14.0) for key, sums in found.items() if key[2] == "anna")

    anyio.run(course)


@pytest.mark.parametrize("operations", [True, False])
def test_a_record_that_is_too_large_keeps_its_sums_and_its_largest_rows(operations: bool) -> None:
    numbers = random.Random(1)
    rows = [
        ConsumptionRow("default", f"pool{n % 7}", f"user{n}", f"op{n}" if operations else "", RunSums(1, 0, float(n)))
        for n in range(400)
    ]
    numbers.shuffle(rows)
    data = packed_within(ConsumptionRecord(5, rows), 3_000)
    merged = unpack(data)

    assert len(data) <= 3_000
    assert sum((row.sums for row in merged.rows), RunSums()) == sum((row.sums for row in rows), RunSums())
    assert any(row.user == "user399" and row.sums.allotted_core_s == 399 for row in merged.rows)
    assert merged.until == 5


def as_stored(columns: object) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(columns))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        pack(ConsumptionRecord(1, []))[:-3],
        as_stored([1, 2]),
        as_stored(Columns(1, ["a"], b"", b"12345678" * FIGURES_OF_ROW)),
        as_stored(Columns(1, ["a"], b"\1" * 16, bytes(8 * FIGURES_OF_ROW))),
        as_stored(Columns(1, ["a"], bytes(16), b"\xff" * 8 * FIGURES_OF_ROW)),
    ],
    ids=["empty", "no zlib", "cut off", "another message", "no keys", "no such text", "no numbers"],
)
def test_a_record_that_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(BadRecord):
        unpack(data)
    with pytest.raises(BadRecord):
        Adding([By.USER], Wanted("default")).add(StoredRecord("years.2026.00", data))


def test_pages_tell_all_records_of_a_period_and_only_these() -> None:
    log = [a_fact(1, day=day, user=f"user{day}") for day in range(0, 800, 50)]

    async def course() -> None:
        bucket = MoodyBucket()
        store = ConsumptionStore(bucket, 1)
        await store.claim(0, 1)
        await store.add(log, 1, path_of)
        for period, days in (("1970", 8), ("1970.02", 1), ("1971", 7), ("1970.02.20", 1), ("1999", 0)):
            found: list[str] = []
            request = GetConsumption(Level.DAYS, period)
            while True:
                records, following = await store.read(request, 200)
                found += [record.key for record in records]
                if following is None:
                    break
                request = msgspec.structs.replace(request, after=following)
            assert len(found) == len(set(found)) == days
            assert all(key.startswith(f"days.{period}.") for key in found)

    anyio.run(course)


@given(st.lists(events, max_size=30))
@pytest.mark.parametrize("keys", [(By.DAY,), (By.DAY, By.POOL), (By.DAY, By.TREE)])
def test_the_pools_of_a_day_have_the_sums_of_all_persons(
    keys: tuple[By, ...], found: list[tuple[int, str, str, str]]
) -> None:
    log = [a_fact(sequence, *each) for sequence, each in enumerate(found, 1)]

    async def course() -> None:
        bucket = MoodyBucket()
        store = ConsumptionStore(bucket, 1)
        await store.claim(0, 1)
        await store.add(log, len(log), path_of)
        sums = {}
        for level in (Level.POOLS, Level.DAYS):
            adding = Adding(keys, Wanted(TREE))
            async for entry in bucket.read(level):
                adding.add(StoredRecord(entry.key, entry.value))
            sums[level] = adding.lines()
        assert sums[Level.POOLS] == sums[Level.DAYS]

    anyio.run(course)


def test_records_of_past_periods_are_removed_whole() -> None:
    days = [date(2025, 12, 31), date(2026, 3, 1), date(2026, 5, 6), date(2026, 5, 7), date(2026, 5, 31)]
    log = [a_fact(1, day=(day - date(1970, 1, 1)).days) for day in days]

    async def course() -> None:
        bucket = MoodyBucket()
        store = ConsumptionStore(bucket, 1)
        await store.claim(0, 1)
        await store.add(log, 1, path_of)
        for level in Level:
            await store.remove_before(level, date(2026, 5, 7))
        left = {
            level: sorted(key.rpartition(".")[0] for key in bucket.kept if key.startswith(level)) for level in Level
        }
        assert left[Level.DAYS] == ["days.2026.05.07", "days.2026.05.31"]
        assert left[Level.POOLS] == ["pools.2026.05.07", "pools.2026.05.31"]
        assert left[Level.OPERATIONS] == ["operations.2026.05.07", "operations.2026.05.31"]
        assert left[Level.MONTHS] == ["months.2026.05"]
        assert left[Level.YEARS] == ["years.2026"]

    anyio.run(course)
