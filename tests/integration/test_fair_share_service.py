"""fair_share's real shell on a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.pools import PoolConfig, Tree
from headrace.pools.amounts import PartialResources
from headrace.pools.pool_config import PoolMode
from headrace.resources import Resources
from headrace.wire import subjects
from headrace.wire.codec import decode
from headrace.wire.log import OperationStarted
from headrace.wire.operations import OperationState
from headrace.wire.pool_changes import ChangePools, PoolPlan
from headrace.wire.pools import GetPools, PoolList
from headrace.wire.refusals import BadRequest, Exists, NotFound, NotRecorded, WrongState
from headrace.wire.snapshots import SchedulingStatus, UsageItem
from headrace_fair_share.hdrf.arrays import BrokenInvariant
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.tree_update import TreeShares, TreeUpdater
from headrace_fair_share.history.sampling import Sampler
from headrace_fair_share.service import serve
from headrace_fair_share.settings import FairShareSettings
from headrace_fair_share.starvation.clocks import Ages
from tests.support.fair_share import create_pool, remove_pool, set_pool
from tests.support.nats_server import nats_server
from tests.support.tree_services import TREE, a_bus, live, running, small_world

SETTINGS = FairShareSettings(administrators="*")


def a_pool(name: str, parent: str = ROOT_POOL, **settings: Any) -> ChangePools:
    return create_pool(name, parent, PoolConfig(**settings))


async def test_a_started_operation_gets_its_share_from_the_first_event_on() -> None:
    with nats_server() as server:
        async with small_world(server) as world, running(server, SETTINGS, serve):
            made = await world.ask("pool.change", a_pool("research"), PoolPlan)
            operation = live("operation-1", "research")
            started = OperationStarted(
                operation=operation.operation,
                user="anna",
                spec=operation.spec,
                state=OperationState.RUNNING,
                ephemeral_pool=False,
                block=10,
                block_term=0,
                at_ms=1,
            )
            await world.shares.until(lambda shares: shares.frame.pools_revision == made.revision)
            await world.admission.tell(started)
            await world.shares.until(lambda shares: "operation-1" in shares.items)

    item = world.shares.reader.items["operation-1"]
    assert item.parent == "research"
    assert item.demand_share == pytest.approx((0.1, 1.0, 0, 0, 0))
    assert item.fair_share.total == pytest.approx((0.1, 1.0, 0, 0, 0))


async def test_two_pools_of_different_weight_share_what_there_is() -> None:
    with nats_server() as server:
        async with small_world(server) as world:
            world.admission.operations = [live("operation-1", "heavy", 100), live("operation-2", "light", 100)]
            async with running(server, SETTINGS, serve):
                await world.ask("pool.change", a_pool("heavy", weight=3.0), PoolPlan)
                made = await world.ask("pool.change", a_pool("light"), PoolPlan)
                await world.shares.until(
                    lambda shares: shares.frame.pools_revision >= made.revision and shares.frame.total.cpu
                )
    items = world.shares.reader.items

    assert items["operation-1"].fair_share.total[1] == pytest.approx(0.75)
    assert items["operation-2"].fair_share.total[1] == pytest.approx(0.25)
    assert not items["/heavy"].ephemeral


async def test_a_reader_that_comes_late_asks_for_the_whole() -> None:
    with nats_server() as server:
        async with small_world(server) as world:
            world.admission.operations = [live("operation-1", "new-pool")]
            async with running(server, SETTINGS, serve):
                await world.shares.until(lambda shares: shares.frame.total.cpu)
    items = world.shares.reader.items

    assert set(items) == {"/<Root>", "/new-pool", "operation-1"}
    assert items["/new-pool"].ephemeral


async def test_people_make_change_list_and_remove_pools() -> None:
    with nats_server() as server:
        async with small_world(server) as world, running(server, SETTINGS, serve):
            await world.ask("pool.change", a_pool("research"), PoolPlan)
            await world.ask("pool.change", a_pool("vision", "research"), PoolPlan)
            twice = await world.ask("pool.change", a_pool("vision"), PoolPlan)
            change = set_pool("research", b'{"weight": "2.5"}')
            changed = await world.ask("pool.change", change, PoolPlan)
            wrong = set_pool("research", b'{"wieght": 2}')
            refused = await world.ask("pool.change", wrong, PoolPlan)
            listed = await world.ask("pool.list", GetPools(), PoolList)
            # Before the operations are known nothing is removed.
            await world.shares.until(lambda shares: shares.frame.total.cpu)
            parent = await world.ask("pool.change", remove_pool("research"), PoolPlan)
            missing = await world.ask("pool.list", GetPools(name="reserch"), PoolList)
            await world.ask("pool.change", remove_pool("vision"), PoolPlan)
            left = await world.ask("pool.list", GetPools(), PoolList)

    assert twice == Exists(what="pool", name="vision", where="/research/vision")
    assert isinstance(changed, PoolPlan)
    assert refused == BadRequest("pools.research.wieght", "2", "did you mean weight?")
    assert [(view.name, view.path) for view in listed.pools] == [
        (ROOT_POOL, "/"),
        ("research", "/research"),
        ("vision", "/research/vision"),
    ]
    assert listed.revision == changed.revision
    assert listed.pools[1].settings.weight == 2.5
    assert isinstance(parent, WrongState)
    assert missing == NotFound(what="pool", name="reserch", near=["research"])
    assert [view.name for view in left.pools] == [ROOT_POOL, "research"]


async def test_pools_survive_a_restart_and_the_next_life_has_a_higher_term() -> None:
    with nats_server() as server:
        async with small_world(server) as world:
            async with running(server, SETTINGS, serve):
                made = await world.ask("pool.change", a_pool("research"), PoolPlan)
                await world.shares.until(lambda shares: shares.frame.pools_revision == made.revision)
                first = world.shares.reader.version
            async with running(server, SETTINGS, serve):
                await world.shares.until(lambda shares: shares.version.term > first.term)

    assert "/research" in world.shares.reader.items
    assert world.shares.reader.version.term == first.term + 1


async def test_with_the_buckets_of_terms_leases_and_clocks_lost_the_next_term_is_above_that_of_the_history() -> None:
    """Whoever heard the snapshots of before would take those of an equal term for older ones, and be deaf to them for good."""
    with nats_server() as server:
        async with small_world(server) as world, a_bus(server) as bus:
            options = SETTINGS.history_options()
            history = await bus.records(
                subjects.history_stream(TREE),
                subjects.history(TREE),
                max_age_s=options.max_age_ms / 1000,
                max_bytes=options.max_bytes,
            )
            await history.add(Sampler(TREE, options, 6).first(), timeout_s=10)
            async with running(server, SETTINGS, serve):
                await world.shares.until(lambda shares: shares.version.term > 0)
    assert world.shares.reader.version.term == 7


async def test_what_somebody_else_wrote_into_the_bucket_is_found_and_kept() -> None:
    with nats_server() as server:
        async with small_world(server) as world, running(server, SETTINGS, serve):
            await world.ask("pool.change", a_pool("research"), PoolPlan)
            bucket = await world.service.key_value(subjects.POOLS_BUCKET, history=64)
            entry = await bucket.get(TREE)
            assert entry is not None
            tree = msgspec.json.decode(entry.value, type=Tree)
            pools = [*tree.pools, msgspec.structs.replace(tree.pools[0], name=PoolName("theirs"))]
            await bucket.put(TREE, msgspec.json.encode(Tree(tree=TREE, pools=pools)))
            made = await world.ask("pool.change", a_pool("ours"), PoolPlan)
            listed = await world.ask("pool.list", GetPools(), PoolList)

    assert isinstance(made, PoolPlan)
    assert [view.name for view in listed.pools] == [ROOT_POOL, "research", "theirs", "ours"]


async def test_rubbish_in_the_bucket_changes_nothing_and_is_said() -> None:
    with nats_server() as server:
        async with small_world(server) as world, running(server, SETTINGS, serve):
            await world.ask("pool.change", a_pool("research"), PoolPlan)
            bucket = await world.service.key_value(subjects.POOLS_BUCKET, history=64)
            await bucket.put(TREE, b'{"tree": "default", "pools": [{"name": "a", "parent": "nowhere"}]}')
            await world.shares.until(lambda shares: shares.frame.errors)
            refused = await world.ask("pool.change", a_pool("more"), PoolPlan)

    assert "/research" in world.shares.reader.items
    assert "cannot be used" in world.shares.reader.frame.errors[0]
    assert isinstance(refused, WrongState)


async def test_a_frame_comes_every_period_even_when_nothing_changes() -> None:
    with nats_server() as server:
        async with (
            small_world(server) as world,
            running(server, FairShareSettings(administrators="*", usage_silence_ms=60_000), serve),
        ):
            await world.shares.until(lambda shares: shares.frame.total.cpu)
            at = world.shares.reader.version
            await world.shares.until(lambda shares: shares.version.epoch >= at.epoch + 3)


async def test_usage_of_an_older_term_of_the_allocator_is_ignored() -> None:
    with nats_server() as server:
        async with small_world(server) as world:
            world.admission.operations = [live("operation-1", "research")]
            async with running(server, SETTINGS, serve) as runtime:
                await world.shares.until(lambda shares: shares.frame.total.cpu)
                runtime.terms.see("allocator.default", 7)
                await world.allocator.tell(
                    UsageItem(OperationId("operation-1"), usage=Resources(user_slots=1, cpu=100))
                )
                at = world.shares.reader.version
                await world.shares.until(lambda shares: shares.version.epoch >= at.epoch + 3)

    assert world.shares.reader.items["operation-1"].usage_share == (0, 0, 0, 0, 0)


async def test_an_unknown_tree_is_named() -> None:
    with nats_server() as server:
        async with small_world(server) as world, running(server, SETTINGS, serve):
            answer = await world.ask("pool.list", GetPools(tree=TREE + "s"), PoolList)  # type: ignore[arg-type]

    assert answer == NotFound(what="tree", name="defaults", near=["default"])


async def test_the_clock_of_who_is_short_goes_on_in_the_next_life() -> None:
    with nats_server() as server:
        async with small_world(server) as world:
            world.admission.operations = [live("operation-1", "research", 100)]
            settings = FairShareSettings(administrators="*", usage_counts_within_ms=60_000)
            async with running(server, settings, serve):
                await world.shares.until(lambda shares: shares.version.epoch >= 3 and "operation-1" in shares.items)
                first = world.shares.reader
            bucket = await world.service.key_value(subjects.CLOCKS_BUCKET)
            saved = {
                age.key: age.below_ms or 0 for age in decode((await bucket.entries())["default.0"].value, Ages).ages
            }
            async with running(server, settings, serve):
                await world.shares.until(lambda shares: shares.version.term > 1)
                item = world.shares.reader.items["operation-1"]
                frame = world.shares.reader.frame

    assert first.items["operation-1"].scheduling_status is SchedulingStatus.BELOW_FAIR_SHARE
    assert item.below_fair_share_since_ms is not None
    assert saved["operation-1"] > 0
    assert frame.at_ms - item.below_fair_share_since_ms >= saved["operation-1"]


async def test_a_fifo_pool_owes_its_operations_one_after_another_and_a_limit_holds() -> None:
    with nats_server() as server:
        async with small_world(server) as world:
            first = live("operation-1", "line", 8, started_at_ms=1)
            second = live("operation-2", "line", 8, started_at_ms=2)
            world.admission.operations = [second, first]
            async with running(server, SETTINGS, serve):
                limits = PartialResources(cpu=900)
                made = await world.ask(
                    "pool.change", a_pool("line", mode=PoolMode.FIFO, resource_limits=limits), PoolPlan
                )
                await world.shares.until(
                    lambda shares: shares.frame.pools_revision >= made.revision and shares.frame.total.cpu
                )
    items = world.shares.reader.items

    assert items["operation-1"].fair_share.total[1] == pytest.approx(0.8)
    assert items["operation-2"].fair_share.total[1] == pytest.approx(0.1)
    assert (items["operation-1"].fifo_index, items["operation-2"].fifo_index) == (0, 1)
    assert items["/line"].limits_share[1] == pytest.approx(0.9)
    assert items["/line"].limits == limits


async def the_first_file(folder: Path, pattern: str) -> Path:
    """Waits until there is a file of such a name."""
    with anyio.fail_after(20):
        while True:
            async for path in anyio.Path(folder).glob(pattern):
                return Path(path)
            await anyio.sleep(0.01)


async def test_an_update_that_breaks_leaves_the_shares_as_they_were_says_so_and_leaves_a_tree_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = TreeUpdater.update

    def sick(engine: TreeUpdater, tree: TreeInput) -> TreeShares:
        if any(each.name == "operation-2" for each in tree.operations):
            raise BrokenInvariant("one and one are three")
        return healthy(engine, tree)

    monkeypatch.setattr(TreeUpdater, "update", sick)
    settings = msgspec.structs.replace(SETTINGS, broken_trees_folder=str(tmp_path / "broken"))
    with nats_server() as server:
        async with small_world(server) as world:
            world.admission.operations = [live("operation-1", "research"), live("operation-3", "other")]
            async with running(server, settings, serve):
                await world.shares.until(lambda shares: shares.frame.total.cpu and not shares.frame.errors)
                before = dict(world.shares.reader.items)
                await world.admission.tell(
                    OperationStarted(
                        operation=OperationId("operation-2"),
                        user="anna",
                        spec=live("operation-2", "research").spec,
                        state=OperationState.RUNNING,
                        ephemeral_pool=True,
                        block=10,
                        block_term=0,
                        at_ms=1,
                    )
                )
                await world.shares.until(lambda shares: shares.frame.errors)
                kept = await the_first_file(tmp_path / "broken", "*.yaml")

    assert world.shares.reader.items == before
    assert world.shares.reader.frame.errors == [
        "an update failed, and the previous shares stay in force: one and one are three"
    ]
    (exact,) = (tmp_path / "broken").glob("*.json")
    tree = msgspec.json.decode(exact.read_bytes(), type=TreeInput)
    assert {each.name for each in tree.operations} == {"operation-1", "operation-2", "operation-3"}
    assert "one and one are three" in kept.read_text()


async def test_a_pool_that_a_full_disk_keeps_from_being_written_is_refused_with_that() -> None:
    with nats_server() as server:
        async with small_world(server) as world, running(server, SETTINGS, serve):
            await world.ask("pool.change", a_pool("research"), PoolPlan)
            server.fill_disk()
            refused = await world.ask("pool.change", a_pool("vision"), PoolPlan)

    assert isinstance(refused, NotRecorded)
    assert "its disk is full" in refused.text()
