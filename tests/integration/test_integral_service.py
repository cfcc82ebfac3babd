"""integral's real shell, and its exchange with fair_share, on a real server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio
import msgspec
import pytest

from headrace.bus import Bus, Entry, ServiceInfo
from headrace.ids import PoolName
from headrace.pools import IntegralGuarantees, IntegralType, PartialResources, PoolConfig
from headrace.resources import Resources
from headrace.runtime.role import Deposed, role_of
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.figures import FiguresAnswer, FiguresRequest
from headrace.wire.integral import Advance, Advanced, AdvanceGap, GetVolumes, PoolFlow, Volume
from headrace.wire.pool_changes import PoolPlan
from headrace.wire.pools import GetPools, PoolList
from headrace.wire.snapshots import StarvationStatus
from headrace.wire.version import NEVER, Version
from headrace_fair_share.exchange_with_integral import answer_to
from headrace_fair_share.service import serve as serve_fair_share
from headrace_fair_share.settings import FairShareSettings
from headrace_fair_share.starvation.clocks import Age, Ages
from headrace_fair_share.starvation.saved_clocks import ClockStore
from headrace_integral.engine import VolumesRecord
from headrace_integral.service import serve
from headrace_integral.settings import IntegralSettings
from headrace_integral.store import VolumeStore, term_of_volumes
from tests.support.fair_share import create_pool
from tests.support.nats_server import nats_server
from tests.support.tree_services import TREE, SmallWorld, a_bus, ask, running, small_world, stand_in_for

SETTINGS = IntegralSettings()
TOTAL = Resources(user_slots=10, cpu=1_000)
ADVANCE = subjects.integral_advance(TREE)
VOLUMES = subjects.integral_volumes(TREE)


def an_advance(epoch: int, term: int = 1, dt_us: int = 1_000_000) -> Advance:
    return Advance(
        tree=TREE,
        version=Version(term, epoch),
        previous=Version(term, epoch - 1) if epoch > 1 else NEVER,
        dt_us=dt_us if epoch > 1 else 0,
        total=TOTAL,
        pools=[PoolFlow(PoolName("a"), 0.1, 0.2, 0.0, "burst")],
    )


async def advance(bus: Bus, epoch: int, **given: Any) -> Any:
    await stand_in_for(bus, role_of("fair_share", TREE))
    return await ask(bus, ADVANCE, an_advance(epoch, **given), Advanced | AdvanceGap)


async def test_volumes_survive_a_restart_bit_for_bit() -> None:
    with nats_server() as server:
        async with a_bus(server) as bus:
            async with running(server, SETTINGS, serve):
                for epoch in range(1, 5):
                    before = await advance(bus, epoch, dt_us=333_333)
            async with running(server, SETTINGS, serve):
                restored = await ask(bus, VOLUMES, GetVolumes(TREE), Advanced)
                again = await advance(bus, 4, dt_us=333_333)
                after = await advance(bus, 5)

    assert before == restored == again
    assert isinstance(after, Advanced)
    assert after.version == Version(1, 5)


async def test_an_advance_that_was_saved_but_not_confirmed_is_applied_once() -> None:
    """The process ends between saving and answering: what it leaves behind is the record alone."""
    with nats_server() as server:
        async with a_bus(server) as bus:
            async with running(server, SETTINGS, serve):
                await advance(bus, 1)
                once = await advance(bus, 2)
            async with running(server, SETTINGS, serve):
                repeated = await advance(bus, 2)

    assert repeated == once
    assert repeated.pools[0].volume == Volume(user_slots=1.0, cpu=100)


async def test_an_advance_out_of_order_is_refused_with_what_there_is() -> None:
    with nats_server() as server:
        async with a_bus(server) as bus, running(server, SETTINGS, serve):
            await advance(bus, 1)
            refused = await advance(bus, 3)

    assert refused == AdvanceGap(TREE, have=Version(1, 1), previous=Version(1, 2))


async def test_twenty_thousand_pools_are_advanced_saved_and_told_in_messages_that_fit() -> None:
    flows = [PoolFlow(PoolName(f"pool-{number}-{'x' * 60}"), 1e-5, 2e-5, 0.0, "burst") for number in range(20_000)]

    def many(epoch: int) -> Advance:
        return msgspec.structs.replace(an_advance(epoch), total=Resources(user_slots=10**7, cpu=10**9), pools=flows)

    with nats_server() as server:
        async with a_bus(server) as bus:
            await stand_in_for(bus, role_of("fair_share", TREE))
            async with running(server, SETTINGS, serve):
                await ask(bus, VOLUMES, GetVolumes(TREE), Advanced)
                await answer_to(many(1), bus, 30.0)
                second = await answer_to(many(2), bus, 30.0)
                again = await answer_to(many(2), bus, 30.0)
            async with running(server, SETTINGS, serve):
                await ask(bus, VOLUMES, GetVolumes(TREE), Advanced)
                third = await answer_to(many(3), bus, 30.0)

    assert isinstance(second, Advanced)
    assert again == second
    assert isinstance(third, Advanced)
    for advanced in (second, third):
        assert [volume.pool for volume in advanced.pools] == [flow.pool for flow in flows]
        assert not advanced.more
    assert third.pools[-1].volume.user_slots == 2 * second.pools[-1].volume.user_slots > 0.0


async def test_with_the_bucket_of_terms_lost_the_next_term_is_above_what_is_saved() -> None:
    """Terms are counted anew, and volumes and clocks of before are there: whoever is fenced by them would never serve."""
    with nats_server() as server:
        async with a_bus(server) as bus:
            store = VolumeStore(await bus.key_value(subjects.VOLUMES_BUCKET), TREE, 7)
            await store.claim()
            await store.save(VolumesRecord(TREE, writer=7))
            clocks = ClockStore(await bus.key_value(subjects.CLOCKS_BUCKET), TREE, 9)
            await clocks.save([Age("/a", 1_000, StarvationStatus.NON_STARVING)])
            async with running(server, SETTINGS, serve), running(server, FairShareSettings(), serve_fair_share):
                answer = await ask(bus, VOLUMES, GetVolumes(TREE), Advanced)
                bucket, claimed = await bus.key_value(subjects.CLOCKS_BUCKET), anyio.Event()

                def on_change(entries: Mapping[str, Entry], _: frozenset[str]) -> None:
                    if decode(entries[f"{TREE}.0"].value, Ages).term == 10:
                        claimed.set()

                async with bucket.mirror(on_change):
                    with anyio.fail_after(60):
                        await claimed.wait()
            saved = await term_of_volumes(await bus.key_value(subjects.VOLUMES_BUCKET), TREE)

    assert answer.version == NEVER
    assert saved == 8


async def test_a_process_that_was_succeeded_confirms_nothing_and_ends() -> None:
    async def live_on(bus: Bus) -> None:
        async with running(server, SETTINGS, serve):
            await advance(bus, 1)
            bucket = await bus.key_value(subjects.VOLUMES_BUCKET)
            # Somebody else's write makes the next compare-and-set fail: of a higher term, nothing goes over it.
            store = VolumeStore(bucket, TREE, 2)
            claimed.append(await store.claim())
            await bus.publish(ADVANCE, encode(an_advance(2)))
            await anyio.sleep_forever()

    claimed: list[VolumesRecord | None] = []
    with nats_server() as server:
        async with a_bus(server) as bus:
            deposed = pytest.RaisesExc(Deposed, match="term 2 writes default, and this process has term 1")
            with pytest.RaisesGroup(deposed, flatten_subgroups=True):
                await live_on(bus)
            kept = await VolumeStore(await bus.key_value(subjects.VOLUMES_BUCKET), TREE, 2).claim()

    assert claimed == [kept]
    assert kept is not None
    assert kept.version == Version(1, 1)


async def test_volumes_that_cannot_be_read_are_not_replaced_by_empty_ones() -> None:
    with nats_server() as server:
        async with a_bus(server) as bus:
            bucket = await bus.key_value(subjects.VOLUMES_BUCKET)
            await bucket.put(TREE, b"rubbish")
            with pytest.raises(BaseExceptionGroup) as ended:
                async with running(server, SETTINGS, serve):
                    await anyio.sleep_forever()
            kept = await bucket.get(TREE)

    assert "not replaced by empty volumes" in repr(ended.value.exceptions)
    assert kept is not None
    assert kept.value == b"rubbish"


# With fair_share.

BURST = PoolConfig(
    integral_guarantees=IntegralGuarantees(
        guarantee_type=IntegralType.BURST,
        resource_flow=PartialResources(cpu=100),
        burst_guarantee_resources=PartialResources(cpu=200),
    )
)
BRISK = FairShareSettings(administrators="*", fair_share_update_period_ms=20, advance_budget_ms=1_000)


async def saved_volume(world: SmallWorld) -> float:
    """What people see of the pool's savings."""
    answer = await world.ask("pool.list", GetPools(name="saver"), PoolList)
    assert isinstance(answer, PoolList)
    return answer.pools[0].accumulated_resource_ratio_volume or 0.0


async def test_a_burst_pool_saves_while_nobody_uses_it() -> None:
    with nats_server() as server:
        async with (
            small_world(server) as world,
            running(server, SETTINGS, serve, "integral"),
            running(server, BRISK, serve_fair_share, "fair-share"),
        ):
            made = await world.ask("pool.change", create_pool("saver", config=BURST), PoolPlan)
            assert isinstance(made, PoolPlan)
            await world.shares.until(
                lambda shares: "/saver" in shares.items and shares.items["/saver"].accumulated_ratio_volume > 0
            )
            seen = await saved_volume(world)

    assert seen > 0
    assert not world.shares.reader.frame.stale_volumes


async def test_without_integral_shares_go_on_and_what_was_missed_is_sent_when_it_is_back() -> None:
    with nats_server() as server:
        async with (
            small_world(server) as world,
            running(server, BRISK, serve_fair_share, "fair-share"),
        ):
            made = await world.ask("pool.change", create_pool("saver", config=BURST), PoolPlan)
            assert isinstance(made, PoolPlan)
            await world.shares.until(lambda shares: shares.frame.stale_volumes)
            at = world.shares.reader.version
            await world.shares.until(lambda shares: shares.version.epoch >= at.epoch + 10)
            async with running(server, SETTINGS, serve, "integral"):
                await world.shares.until(lambda shares: not shares.frame.stale_volumes)
                caught_up = await ask(world.service, VOLUMES, GetVolumes(TREE), Advanced)

    # Every update since the pool was made has its own advance.
    assert caught_up.version.epoch >= 11
    assert caught_up.pools[0].ratio_volume > 0


async def test_its_figures_are_answered_and_told_in_service_discovery() -> None:
    with nats_server() as server:
        async with a_bus(server) as bus, running(server, SETTINGS, serve) as runtime:
            await runtime.bus.announce(ServiceInfo(name="headrace-integral", version="0.1.0"))  # type: ignore[attr-defined]
            await advance(bus, 1)
            await advance(bus, 2)
            answer = await ask(bus, subjects.FIGURES, FiguresRequest(), FiguresAnswer)
            told = json.loads(await bus.request("$SRV.STATS.headrace-integral", b"", timeout_s=5.0))

    data = next(each["data"] for each in told["endpoints"] if each["subject"] == subjects.FIGURES)
    figures = {figure.name: figure.value for figure in answer.figures}
    for told_figures in (data, figures):
        assert (told_figures["advances_applied"], told_figures["volumes_not_saved"]) == (2, 0)
        assert told_figures["broken_invariants"] == 0
    assert (answer.role, answer.term) == ("integral.default", 1)
