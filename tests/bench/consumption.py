"""A year of 1,000 persons in 100 pools: how long a person waits for its sums, from a real server and admission."""

from __future__ import annotations

import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import date, timedelta
from functools import cache
from pathlib import Path

import anyio

import headrace
from headrace.consumption_sums import By
from headrace.wire import subjects
from headrace.wire.consumption import (
    ConsumptionPage,
    ConsumptionRecord,
    ConsumptionRow,
    GetConsumption,
    Level,
    RunSums,
    pack,
)
from headrace_admission.consumption.records import RECORDS_OF_PERIOD
from tests.bench.admission import an_admission
from tests.bench.registry import REGISTRY, Figure
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import a_bus, ask

PERSONS, POOLS, YEAR, RUNS = 1_000, 100, 2025, 5
#: Pools in which a person works on one day.
POOLS_OF_A_DAY = 2
GROUPINGS = (
    (By.USER,),
    (By.POOL,),
    (By.USER, By.POOL),
    (By.TREE,),
    (By.USER, By.TREE),
    (By.DAY,),
    (By.DAY, By.TREE),
    (By.DAY, By.USER),
)


def rows_of(level: Level, number: int, pools: int, seed: int) -> list[ConsumptionRow]:
    draw = random.Random(seed)
    return [
        ConsumptionRow(
            "default", f"team{pool % 10}/pool{pool}", f"user{user}", "", RunSums(3, 3, draw.random(), draw.random())
        )
        for user in range(number, PERSONS, RECORDS_OF_PERIOD[level])
        for pool in draw.sample(range(POOLS), pools)
    ]


def of_pools(rows: Sequence[ConsumptionRow]) -> list[ConsumptionRow]:
    """The rows of each pool in one, as the records of pools have them."""
    sums: defaultdict[str, RunSums] = defaultdict(RunSums)
    for row in rows:
        sums[row.pool] += row.sums
    return [ConsumptionRow("default", pool, "", "", each) for pool, each in sums.items()]


async def fill(server: NatsServer) -> None:
    """Each person works in each pool in the year, and in two pools each day."""
    async with a_bus(server, "service", "filling") as bus:
        bucket = await bus.key_value(subjects.CONSUMPTION_BUCKET)
        for number in range(RECORDS_OF_PERIOD[Level.YEARS]):
            rows = rows_of(Level.YEARS, number, POOLS, number)
            await bucket.put(f"{Level.YEARS}.{YEAR}.{number:02}", pack(ConsumptionRecord(1, rows)))
        for nth in range(365):
            day = (date(YEAR, 1, 1) + timedelta(nth)).strftime("%Y.%m.%d")
            every = list[ConsumptionRow]()
            for number in range(RECORDS_OF_PERIOD[Level.DAYS]):
                rows = rows_of(Level.DAYS, number, POOLS_OF_A_DAY, 1000 * nth + number)
                await bucket.update(f"{Level.DAYS}.{day}.{number:02}", pack(ConsumptionRecord(1, rows)), 0)
                every += rows
            pools = of_pools(every)
            for number in range(RECORDS_OF_PERIOD[Level.POOLS]):
                record = ConsumptionRecord(1, pools[number :: RECORDS_OF_PERIOD[Level.POOLS]])
                await bucket.update(f"{Level.POOLS}.{day}.{number:02}", pack(record), 0)


@cache
def measured() -> dict[tuple[By, ...], list[float]]:
    async def times_of(server: NatsServer, keys: Sequence[By]) -> list[float]:
        taken = []
        async with headrace.connect(url=server.url, user="anna") as client:
            for _ in range(RUNS):
                begun = time.perf_counter()
                found = await client.consumption.summed(keys, since=date(YEAR, 1, 1), until=date(YEAR + 1, 1, 1))
                taken.append((time.perf_counter() - begun) * 1e3)
                assert found.lines
        return taken

    async def all_keys() -> dict[tuple[By, ...], list[float]]:
        with nats_server() as server, tempfile.TemporaryDirectory() as folder:
            await fill(server)
            async with an_admission(server, Path(folder)):
                async with a_bus(server, "user", "anna") as anna:
                    request = GetConsumption(Level.YEARS, str(YEAR))
                    await ask(anna, subjects.user("anna", "consumption"), request, ConsumptionPage)
                return {keys: await times_of(server, keys) for keys in GROUPINGS}

    return anyio.run(all_keys)


@REGISTRY.add("usage_of_persons_ms", "a year of 100,000 pairs of person and pool, summed by person", 1_000)
def by_user() -> Figure:
    return Figure.of(measured()[By.USER,], "ms")


@REGISTRY.add("usage_of_pools_ms", "the same by pool", 1_000)
def by_pool() -> Figure:
    return Figure.of(measured()[By.POOL,], "ms")


@REGISTRY.add("usage_of_persons_and_pools_ms", "the same by person and pool: 100,000 lines", 1_000)
def by_user_and_pool() -> Figure:
    return Figure.of(measured()[By.USER, By.POOL], "ms")


@REGISTRY.add("usage_of_tree_ms", "the same by pool, each with the pools below it", 1_000)
def by_tree() -> Figure:
    return Figure.of(measured()[By.TREE,], "ms")


@REGISTRY.add("usage_of_persons_and_tree_ms", "the same by person and pool, each with the pools below it", 1_000)
def by_user_and_tree() -> Figure:
    return Figure.of(measured()[By.USER, By.TREE], "ms")


@REGISTRY.add("usage_of_days_ms", "each day of a year, from 36,500 rows of pools", 1_000)
def by_day() -> Figure:
    return Figure.of(measured()[By.DAY,], "ms")


@REGISTRY.add("usage_of_days_and_tree_ms", "each day and pool of a year, from the same rows", 1_000)
def by_day_and_tree() -> Figure:
    return Figure.of(measured()[By.DAY, By.TREE], "ms")


@REGISTRY.add("usage_of_days_and_persons_ms", "each day and person of a year, from 730,000 rows", 3_000)
def by_day_and_user() -> Figure:
    return Figure.of(measured()[By.DAY, By.USER], "ms")
