"""The keeper of consumption: it writes what arrived, removes what is too old or too much, and holds up nobody when it cannot write."""

from __future__ import annotations

from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from headrace.bus import BusError
from headrace.ids import AllocationId, NodeName
from headrace.resources import Resources
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.wire import ledger
from headrace.wire.consumption import ConsumptionRecord, ConsumptionRow, GetConsumption, Level, RunSums, pack, unpack
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace_admission.consumption import keeping
from headrace_admission.consumption.facts import DAY_MS
from headrace_admission.consumption.keeping import ConsumptionKeeper
from headrace_admission.settings import AdmissionSettings
from tests.support.clocks import HandClock, at
from tests.support.moody_bucket import MoodyBucket
from tests.unit.admission.desk import TREE, Desk, oid

TODAY = date(2026, 11, 28)
NOW_MS = (TODAY - date(1970, 1, 1)).days * DAY_MS + DAY_MS // 2


def a_desk(jobs: int = 1) -> Desk:
    """A desk at which one run has ended today."""
    desk = Desk({"research": {}})
    desk.engine.on_attach(ledger.Attach(TREE, 1), at(0, 0))
    desk.now_ms = NOW_MS - 2_000
    desk.started("one", pool="research", resources=Resources(user_slots=1, cpu=100), job_count=jobs)
    desk.now_ms = NOW_MS
    end(desk, 0)
    return desk


def end(desk: Desk, index: int) -> None:
    """A job of the operation ends."""
    ended = JobEnd(
        oid("one"), index, 1, AllocationId("1-1"), JobResult.COMPLETED, started_at_ms=NOW_MS - 1_000, ended_at_ms=NOW_MS
    )
    report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), ended)])
    desk.record(desk.engine.on_report(report, at(0, NOW_MS)).effects)


def a_keeper(
    desk: Desk, bucket: MoodyBucket | BusError, clock: HandClock | None = None, **settings: Any
) -> ConsumptionKeeper:
    async def key_value(_: str) -> MoodyBucket:
        if isinstance(bucket, BusError):
            raise bucket
        return bucket

    runtime: Any = SimpleNamespace(
        settings=AdmissionSettings(consumption_period_ms=100, **settings),
        bus=SimpleNamespace(key_value=key_value),
        clock=clock or HandClock(NOW_MS),
    )
    role: Any = SimpleNamespace(term=1)
    return ConsumptionKeeper(runtime, role, lambda: desk.state)


async def days_left(bucket: MoodyBucket, level: Level) -> list[int]:
    keys = [entry.key.split(".")[1:4] async for entry in bucket.read(level)]
    return sorted((TODAY - date(*map(int, key))).days for key in keys)


async def fill(bucket: MoodyBucket, level: Level, *ages: int) -> None:
    value = pack(ConsumptionRecord(0, [ConsumptionRow("default", "a", "anna", "", RunSums(1))]))
    for age in ages:
        await bucket.put(f"{level}.{TODAY - timedelta(age):%Y.%m.%d}.99", value)


async def run(keeper: ConsumptionKeeper, desk: Desk) -> None:
    await keeper.open(0, 0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.run)
        with anyio.fail_after(5):
            while desk.state.consumption.waiting:  # noqa: ASYNC110 - nobody is told
                await anyio.sleep(0.01)
            await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()


async def test_runs_are_written_and_old_records_removed() -> None:
    desk, bucket = a_desk(), MoodyBucket()
    await fill(bucket, Level.DAYS, 1, 20, 21, 400)
    await fill(bucket, Level.POOLS, 1, 20, 21, 400)
    await fill(bucket, Level.OPERATIONS, 1, 10, 11, 200)
    await run(a_keeper(desk, bucket, keep_daily_consumption_days=20, keep_operation_consumption_days=10), desk)

    assert await days_left(bucket, Level.DAYS) == await days_left(bucket, Level.POOLS) == [0, 1, 20]
    assert await days_left(bucket, Level.OPERATIONS) == [0, 1, 10]
    (row,) = unpack(next(entry.value for key, entry in bucket.kept.items() if key.startswith("years.2026."))).rows
    assert (row.user, row.pool, row.sums.runs, row.sums.allotted_core_s) == ("anna", "research", 1, 1.0)


async def test_the_oldest_operations_go_first_if_all_records_are_too_large() -> None:
    desk, bucket = a_desk(), MoodyBucket()
    await fill(bucket, Level.DAYS, *range(1, 100, 9))
    await fill(bucket, Level.OPERATIONS, *range(1, 300, 9))
    most = await bucket.size_bytes() * 2 // 3
    await run(a_keeper(desk, bucket, keep_consumption_bytes=most), desk)

    left = await days_left(bucket, Level.OPERATIONS)
    assert left == [0, *range(1, max(left) + 1, 9)]
    assert 30 < max(left) < 200
    assert await bucket.size_bytes() <= most + 1_000
    assert len(await days_left(bucket, Level.DAYS)) == 12


async def test_the_last_days_of_operations_stay_whatever_they_take() -> None:
    desk, bucket = a_desk(), MoodyBucket()
    await fill(bucket, Level.OPERATIONS, *range(1, 300, 9))
    await run(a_keeper(desk, bucket, keep_consumption_bytes=0), desk)

    assert await days_left(bucket, Level.OPERATIONS) == [0, 1, 10, 19, 28]


async def test_a_bucket_that_cannot_be_opened_holds_up_no_checkpoint_and_loses_no_fact() -> None:
    desk = a_desk()
    keeper = a_keeper(desk, BusError("not allowed"))
    await keeper.open(0, 0)
    await keeper.write()

    assert len(desk.state.consumption.waiting) == 1


@pytest.mark.parametrize("is_older", [True, False])
async def test_records_that_are_lost_while_admission_runs_are_told_once(
    is_older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, int]] = []
    monkeypatch.setattr(
        keeping,
        "logger",
        lambda: SimpleNamespace(error=lambda _, **which: told.append(which), warning=lambda *_, **__: 0),
    )
    desk, bucket = a_desk(jobs=3), MoodyBucket()
    keeper = a_keeper(desk, bucket)
    await keeper.open(0, 0)
    older, before = dict(bucket.kept), desk.state.sequence
    await keeper.write()
    end(desk, 1)
    bucket.kept = older if is_older else {}
    for _ in range(2):
        await keeper.write()

    assert told == [{"first": 1, "last": before}]


async def test_a_bucket_that_cannot_be_written_holds_up_the_checkpoint() -> None:
    desk, bucket = a_desk(), MoodyBucket()
    keeper = a_keeper(desk, bucket)
    await keeper.open(0, 0)
    bucket.mood = BusError("the disk is full")
    with pytest.raises(BusError, match="disk"):
        await keeper.write()
    bucket.mood = None
    await keeper.write()

    assert not desk.state.consumption.waiting


@pytest.mark.parametrize(("update_s", "writes"), [(0.0, 20), (0.5, 1)])
async def test_a_person_who_asks_every_second_causes_writes_for_a_small_part_of_the_time(
    update_s: float, writes: int
) -> None:
    desk, bucket, clock = a_desk(jobs=21), MoodyBucket(), HandClock(NOW_MS)
    keeper = a_keeper(desk, bucket, clock)
    await keeper.open(0, 0)

    def slow() -> None:
        clock.now_s += update_s

    bucket.meddle = slow
    written = set()
    for index in range(1, 21):
        clock.now_s += 1.1
        end(desk, index)
        await keeper._on_get(GetConsumption(Level.YEARS, "2026"), Caller(CallerKind.USER, "anna", ""))
        written.add(bucket.sequence)

    assert len(written) == writes
