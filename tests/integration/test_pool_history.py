"""The history of pools, recorded by fair_share's real shell on a real server and read as a person reads it."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.lowlevel
import nats
import pytest

from headrace.bus import Bus, Records
from headrace.bus.nats.streams.records import NatsRecords
from headrace.client.asking import Asker
from headrace.client.pools import Pools
from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.pools import IntegralGuarantees, IntegralType, PartialResources, PoolConfig
from headrace.resources import Resources
from headrace.runtime.clock import SystemClock
from headrace.runtime.role import Deposition, Role
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.history import GetHistory, HistoryPoint, HistorySample, PoolHistory
from headrace.wire.pool_changes import PoolPlan
from headrace.wire.refusals import BadRequest, NotFound, Refused
from headrace.wire.snapshots import UsageItem
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.history.recording import HistoryKeeper
from headrace_fair_share.history.sampling import HistoryOptions
from headrace_fair_share.service import serve
from headrace_fair_share.settings import FairShareSettings
from headrace_integral.service import serve as serve_integral
from headrace_integral.settings import IntegralSettings
from tests.support.fair_share import create_pool
from tests.support.nats_server import nats_server
from tests.support.tree_services import PATIENCE_S, TREE, SmallWorld, a_bus, live, running, small_world

pytestmark = pytest.mark.long

SETTINGS = FairShareSettings(administrators="*", history_period_ms=100)
#: Of ten cores: one flows in, five may be drawn.
BURST = PoolConfig(
    integral_guarantees=IntegralGuarantees(IntegralType.BURST, PartialResources(cpu=100), PartialResources(cpu=500))
)


def pools_of(world: SmallWorld) -> Pools:
    clock = SystemClock()
    return Pools(Asker(world.user, clock, lambda verb: subjects.user("anna", verb), PATIENCE_S), TREE)


async def history_until(world: SmallWorld, pool: str, what: Callable[[HistoryPoint], object]) -> PoolHistory:
    """The last minute of a pool, asked for until `what` is true of its last point."""
    now_ms = SystemClock().wall_ms()
    with anyio.fail_after(PATIENCE_S):
        while True:
            # Points as fine as samples are.
            found = await pools_of(world).history(
                pool, since_ms=now_ms - 60_000, until_ms=now_ms + 60_000, points=2_000
            )
            if found.points and what(found.points[-1]):
                return found
            await anyio.sleep(0.02)


async def test_guarantees_and_savings_of_a_burst_pool_can_be_read_afterwards() -> None:
    with nats_server() as server:
        async with (
            small_world(server) as world,
            running(server, IntegralSettings(), serve_integral, "integral"),
            running(server, SETTINGS, serve),
        ):
            await world.ask("pool.change", create_pool("nightly", config=BURST), PoolPlan)
            idle = await history_until(world, "nightly", lambda point: point.integral and point.integral.volume)
            whole = await history_until(world, ROOT_POOL, lambda point: point.samples)

    (point,) = idle.points[-1:]
    assert point.integral is not None
    assert (point.integral.flow, point.integral.burst, point.integral.capacity) == (100, 500, 100 * 86_400)
    assert point.integral.volume is not None
    assert 0 <= point.integral.volume.least <= point.integral.volume.last <= point.integral.volume.most
    assert whole.points[-1].total == 1_000
    assert whole.points[-1].integral is None


async def test_an_operation_is_seen_to_come_and_go() -> None:
    with nats_server() as server:
        async with small_world(server) as world:
            world.admission.operations = [live("operation-1", "adhoc", 4)]
            async with running(server, SETTINGS, serve):
                demand = await history_until(world, "adhoc", lambda point: point.demand.mean == 400)
                item = UsageItem(OperationId("operation-1"), Resources(user_slots=4, cpu=400))
                await world.allocator.tell(item)
                busy = await history_until(world, "adhoc", lambda point: point.usage.mean == 400)
                await world.allocator.tell(removed=("operation-1",))
                idle = await history_until(world, "adhoc", lambda point: point.usage.mean == 0)

    assert demand.points[-1].fair_share.mean == 400
    assert busy.points[-1].demand.mean == 400
    assert max(point.usage.most for point in idle.points) == 400
    assert [point.at_ms for point in idle.points] == sorted(point.at_ms for point in idle.points)


async def test_time_in_which_nobody_recorded_is_a_gap() -> None:
    with nats_server() as server:
        async with small_world(server) as world:
            async with running(server, SETTINGS, serve):
                before = await history_until(world, ROOT_POOL, lambda point: point.samples)
            await anyio.sleep(0.6)
            async with running(server, SETTINGS, serve):
                last_ms = before.points[-1].at_ms + 600
                after = await history_until(world, ROOT_POOL, lambda point: point.at_ms > last_ms)

    assert sum(point.after_gap for point in after.points) == 1
    assert not after.points[0].after_gap


async def test_a_picture_of_more_samples_than_one_answer_reads_is_read_in_pages() -> None:
    with nats_server() as server:
        async with (
            small_world(server) as world,
            running(server, FairShareSettings(administrators="*", history_period_ms=3_600_000), serve),
        ):
            known = await history_until(world, ROOT_POOL, lambda point: point.samples)
            stream = await world.service.records(
                subjects.history_stream(TREE),
                subjects.history(TREE),
                max_age_s=7 * 86_400,
                max_bytes=512 * 2**20,
            )
            await stream.add(b"what somebody else wrote", timeout_s=20)
            start_ms = known.points[-1].at_ms + 1_000
            async with anyio.create_task_group() as tasks:
                for number in range(4_500):
                    sample = HistorySample(TREE, start_ms + number, 10, Resources(cpu=number), 86_400.0, {})
                    tasks.start_soon(add, stream, encode(sample))
                    if number % 200 == 0:
                        await anyio.lowlevel.checkpoint()
            found = await pools_of(world).history(ROOT_POOL, since_ms=start_ms, until_ms=start_ms + 4_500, points=10)
            request = GetHistory(PoolName(ROOT_POOL), start_ms, start_ms + 4_500)
            answer = await world.user.request(subjects.user("anna", "pool.history"), encode(request), timeout_s=20)
            page = decode(answer, PoolHistory)

    assert [point.samples for point in found.points] == [450] * 10
    assert not any(point.after_gap for point in found.points)
    assert page.next is not None
    assert sum(point.samples for point in page.points) < 2_100


async def test_the_root_is_known_before_anything_was_computed() -> None:
    with nats_server() as server:
        async with a_bus(server, "service", "fair_share") as bus:
            options = HistoryOptions()
            role = Role("fair_share.default", 1, Deposition())
            keeper = HistoryKeeper(bus, TREE, FairShareEngine(TREE, 1, EngineOptions()), options, role)
            stream, subject = subjects.history_stream(TREE), subjects.history(TREE)
            records = await bus.records(stream, subject, max_age_s=60, max_bytes=options.max_bytes)
            answer = await keeper._read(records, GetHistory(ROOT_POOL, 0, 1_000))

    assert (answer.known, answer.points) == (True, [])


async def add(stream: Records, data: bytes) -> None:
    await stream.add(data, timeout_s=20)


async def test_late_samples_of_a_fair_share_that_was_succeeded_are_refused() -> None:
    """A frozen one woke up, and its figures of long ago stood among those of its successor."""

    def a_keeper(bus: Bus, term: int) -> tuple[HistoryKeeper, Deposition]:
        deposition = Deposition()
        role, engine = Role("fair_share.default", term, deposition), FairShareEngine(TREE, term, EngineOptions())
        return HistoryKeeper(bus, TREE, engine, HistoryOptions(), role), deposition

    def a_sample(at_ms: int, term: int) -> bytes:
        return encode(HistorySample(TREE, at_ms, 10, Resources(cpu=10), 86_400.0, {}, term=term))

    with nats_server() as server:
        async with a_bus(server, "service", "fair_share") as bus, anyio.create_task_group() as tasks:
            (frozen, frozen_deposed), (successor, deposed) = a_keeper(bus, 1), a_keeper(bus, 2)
            of_frozen = await frozen._open()
            assert await frozen._add(of_frozen, [a_sample(1, 1)])
            tasks.start_soon(successor.run)
            stream = await bus.records(
                subjects.history_stream(TREE), subjects.history(TREE), max_age_s=7 * 86_400, max_bytes=512 * 2**20
            )
            with anyio.fail_after(PATIENCE_S):
                while (await stream.last()).sequence < 2:  # noqa: ASYNC110 - the stream tells nobody
                    await anyio.sleep(0.01)

            assert not await frozen._add(of_frozen, [a_sample(2, 1)])
            assert await successor._add(await successor._open(), [a_sample(3, 2)])
            entries = [decode(entry.data, HistorySample) async for entry in stream.read()]
            tasks.cancel_scope.cancel()

    assert [(sample.at_ms, sample.term) for sample in entries] == [(1, 1), (0, 2), (3, 2)]
    assert frozen_deposed.reason
    assert not deposed.reason


async def test_a_name_that_nobody_knows_is_refused_with_the_nearest() -> None:
    with nats_server() as server:
        async with small_world(server) as world, running(server, SETTINGS, serve):
            await world.ask("pool.change", create_pool("nightly"), PoolPlan)
            refusal = None
            try:
                await pools_of(world).history("nighty", since_ms=0, until_ms=1)
            except Refused as refused:
                refusal = refused.refusal
            request = GetHistory(PoolName("nightly"), 5, 5, resource="cpu")
            backwards = await world.ask("pool.history", request, PoolHistory)
            disk = await world.ask("pool.history", GetHistory(PoolName("nightly"), 0, 5, resource="disk"), PoolHistory)

    assert refusal == NotFound(what="pool", name="nighty", near=["nightly"])
    assert backwards == BadRequest("until_ms", "5", "a time later than since_ms, 5")
    assert isinstance(disk, BadRequest)
    assert disk.place == "resource"


async def test_a_stream_that_somebody_took_away_is_made_again() -> None:
    with nats_server() as server:
        client = await nats.connect(server.url)
        async with small_world(server) as world, running(server, SETTINGS, serve):
            before = await history_until(world, ROOT_POOL, lambda point: point.samples)
            await client.jetstream().delete_stream(subjects.history_stream(TREE))
            last_ms = before.points[-1].at_ms
            with anyio.fail_after(PATIENCE_S):
                while True:
                    answer = await pools_again(world)
                    if answer is not None and answer.points[-1].at_ms > last_ms:
                        break
                    await anyio.sleep(0.05)
        await client.close()

    assert answer.oldest_ms is not None
    assert answer.oldest_ms > last_ms


async def test_what_is_recorded_into_an_empty_stream_meanwhile_is_told_with_its_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = FairShareSettings(administrators="*", history_period_ms=3_600_000)
    age = NatsRecords.oldest_ms
    seen_empty = 0

    async def and_a_sample_comes(stream: NatsRecords) -> int | None:
        nonlocal seen_empty
        found = await age(stream)
        if found is None:
            seen_empty += 1
            sample = HistorySample(TREE, SystemClock().wall_ms(), 10, Resources(cpu=10), 86_400.0, {})
            await stream.add(encode(sample), timeout_s=20)
        return found

    with nats_server() as server:
        client = await nats.connect(server.url)
        async with small_world(server) as world, running(server, settings, serve):
            await history_until(world, ROOT_POOL, lambda point: point.samples)
            await client.jetstream().purge_stream(subjects.history_stream(TREE))
            monkeypatch.setattr(NatsRecords, "oldest_ms", and_a_sample_comes)
            now_ms = SystemClock().wall_ms()
            request = GetHistory(ROOT_POOL, now_ms - 60_000, now_ms + 60_000)
            answers = [await world.ask("pool.history", request, PoolHistory) for _ in range(2)]
        await client.close()

    assert seen_empty == 1
    for answer in answers:
        assert isinstance(answer, PoolHistory)
        assert bool(answer.points) == (answer.oldest_ms is not None)
    assert answers[1].points


async def pools_again(world: SmallWorld) -> PoolHistory | None:
    """The last minute of the whole tree; None while there is no stream, or nothing in it."""
    now_ms = SystemClock().wall_ms()
    request = GetHistory(ROOT_POOL, now_ms - 60_000, now_ms + 60_000)
    answer = await world.ask("pool.history", request, PoolHistory)
    return answer if isinstance(answer, PoolHistory) and answer.points else None


async def test_without_room_for_a_history_fair_share_works_all_the_same() -> None:
    with nats_server(store_bytes=10 * 2**20) as server:
        async with small_world(server) as world, running(server, SETTINGS, serve):
            await world.shares.until(lambda shares: shares.frame.total.cpu)
            made = await world.ask("pool.change", create_pool("nightly"), PoolPlan)

    assert isinstance(made, PoolPlan)
