"""Ephemeral pools stand where admission has put them, with what it laid on them."""

from __future__ import annotations

import tracemalloc

import pytest

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import Pool, PoolConfig, PoolTree, Tree
from headrace.pools.pool_config import PoolMode
from headrace.resources import Resources
from headrace.wire.log import (
    EphemeralPoolAdopted,
    EphemeralPoolSet,
    OperationStarted,
    OperationStateChanged,
    StateCause,
)
from headrace.wire.operations import OperationState
from headrace.wire.placements import EphemeralPool
from headrace.wire.pools import GetPools, PoolList
from headrace.wire.snapshots import UsageFrame
from headrace.wire.version import Version
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.ephemeral_pools import ReportedEphemeralPools, ephemeral_pools_of
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.update.updater import Updater
from headrace_fair_share.view import pool_list
from tests.support.clocks import NOW, at
from tests.support.fair_share import stored, updated
from tests.support.tree_services import live
from tests.support.work import lines_run

TREE = TreeName("default")
HUB, LINE, MINE, GUEST, INNER = map(PoolName, ("hub", "line", "hub$anna", "guest", "inner"))


def a_tree() -> Tree:
    return Tree(
        tree=TREE,
        pools=[
            Pool(HUB, ROOT_POOL, PoolConfig(create_ephemeral_subpools=True)),
            Pool(LINE, ROOT_POOL, PoolConfig(mode=PoolMode.FIFO)),
        ],
    )


def told(*pools: EphemeralPool) -> dict[PoolName, EphemeralPool]:
    return {pool.name: pool for pool in pools}


def test_a_pool_stands_below_its_hub_and_one_that_nobody_told_of_below_the_root() -> None:
    mine = EphemeralPool(MINE, HUB, of_hub=True, mode="fifo", resource_limits={"cpu": 300})
    found = ephemeral_pools_of([GUEST, MINE], told(mine), PoolTree(a_tree()))

    assert [(pool.name, pool.parent) for pool in found] == [(GUEST, ROOT_POOL), (MINE, HUB)]
    assert found[1].settings.mode is PoolMode.FIFO
    assert found[1].settings.resource_limits.cpu == 300


def test_the_pools_that_an_ephemeral_pool_stands_in_come_with_it_and_before_it() -> None:
    found = ephemeral_pools_of(
        [INNER], told(EphemeralPool(INNER, GUEST), EphemeralPool(GUEST, HUB)), PoolTree(a_tree())
    )

    assert [(pool.name, pool.parent) for pool in found] == [(GUEST, HUB), (INNER, GUEST)]


@pytest.mark.parametrize(
    "pools",
    [
        told(EphemeralPool(GUEST, LINE)),
        told(EphemeralPool(GUEST, PoolName("gone-and-not-told"))),
        told(EphemeralPool(GUEST, GUEST)),
        told(EphemeralPool(GUEST, INNER), EphemeralPool(INNER, GUEST)),
    ],
)
def test_whatever_was_told_the_way_up_ends_at_the_root(pools: dict[PoolName, EphemeralPool]) -> None:
    found = ephemeral_pools_of([GUEST], pools, PoolTree(a_tree()))
    parents = {pool.name: pool.parent for pool in found}

    way = [GUEST]
    while way[-1] != ROOT_POOL:
        assert parents[way[-1]] not in way
        way.append(parents[way[-1]])
    assert LINE not in way


class Desk:
    """An engine with an operation in a pool of the hub."""

    def __init__(self) -> None:
        self.engine = FairShareEngine(TREE, 1, EngineOptions())
        self.updater = Updater()
        self.engine.on_stored_tree(stored(a_tree(), 1), NOW)
        self.engine.on_operations([live("operation-1", MINE, 10)], NOW)
        self.now_ms = 0

    def update(self) -> None:
        self.now_ms += 200
        now = at(self.now_ms / 1000)
        total = Resources(user_slots=100, cpu=1_000, memory=2**30)
        self.engine.on_usage(UsageChange(Version(1, self.now_ms), UsageFrame(total=total, complete=True), []), now)
        updated(self.engine, self.updater, now)


def test_a_hubs_pool_shares_and_is_listed_below_the_hub_within_its_limits() -> None:
    desk = Desk()
    mine = EphemeralPool(MINE, HUB, of_hub=True, max_operation_count=7, resource_limits={"cpu": 300})
    assert desk.engine.on_events([EphemeralPoolSet(TREE, mine)], NOW).effects
    assert not desk.engine.on_events([EphemeralPoolSet(TREE, mine)], NOW).effects
    desk.update()
    listed = pool_list(desk.engine, GetPools(), Version(1, 1))

    assert desk.engine.items["/hub$anna"].parent == HUB
    assert desk.engine.items["operation-1"].fair_share.total[1] == pytest.approx(0.3)
    assert desk.engine.items["/hub"].fair_share.total[1] == pytest.approx(0.3)
    assert isinstance(listed, PoolList)
    view = listed.pools[-1]
    assert (view.name, view.path, view.parent, view.ephemeral) == (MINE, "/hub/hub$anna", HUB, True)
    assert (view.max_operation_count, view.max_running_operation_count) == (7, 50)


def test_a_page_of_pools_looks_at_very_many_ephemeral_ones_only_once_and_misses_none_that_come() -> None:
    desk, many = Desk(), 2_000
    desk.engine.on_operations([live(f"operation-{number}", f"hub${number}", 10) for number in range(many)], NOW)
    pools = [EphemeralPool(PoolName(f"hub${number}"), HUB, of_hub=True) for number in range(many)]
    desk.engine.on_events([EphemeralPoolSet(TREE, pool) for pool in pools], NOW)

    def last_page() -> PoolList:
        listed = pool_list(desk.engine, GetPools(first=many + 2), Version(1, 1))
        assert isinstance(listed, PoolList)
        return listed

    assert [pool.path for pool in last_page().pools] == ["/hub/hub$999"]
    assert lines_run(last_page) < 20 * many
    new = EphemeralPool(PoolName("hub$new"), HUB, of_hub=True)
    started = OperationStarted(
        OperationId("newest"), "anna", live("newest", "hub$new").spec, OperationState.RUNNING, True, 4, 0, 1
    )
    desk.engine.on_events([EphemeralPoolSet(TREE, new), started], NOW)
    assert [pool.path for pool in last_page().pools] == ["/hub/hub$999", "/hub/hub$new"]


def test_one_of_very_many_ephemeral_pools_is_told_without_a_copy_of_all() -> None:
    pools, many = ReportedEphemeralPools(TREE), 10_000
    names = [PoolName(f"hub${number}") for number in range(many)]
    for name in names:
        pools.apply(EphemeralPoolSet(TREE, EphemeralPool(name, HUB)), lambda: names)
    read = pools.pools
    changes = [EphemeralPoolSet(TREE, EphemeralPool(name, GUEST)) for name in names[:100]]
    pools.apply(changes[0], lambda: names)

    tracemalloc.start()
    try:
        for change in changes[1:]:
            assert pools.apply(change, lambda: names)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most_bytes < many
    assert {pool.parent for pool in read.values()} == {HUB}
    assert sum(pool.parent == GUEST for pool in pools.pools.values()) == len(changes)


def test_a_pool_that_was_adopted_is_what_its_configuration_says() -> None:
    desk = Desk()
    desk.engine.on_events([EphemeralPoolSet(TREE, EphemeralPool(MINE, HUB, resource_limits={"cpu": 300}))], NOW)
    desk.update()
    tree = a_tree()
    desk.engine.on_stored_tree(stored(Tree(tree=TREE, pools=[*tree.pools, Pool(MINE, ROOT_POOL)]), 2), NOW)
    desk.engine.on_events([EphemeralPoolAdopted(TREE, MINE)], NOW)
    desk.update()

    item = desk.engine.items["/hub$anna"]
    assert (item.parent, item.ephemeral) == (ROOT_POOL, False)
    assert item.fair_share.total[1] == pytest.approx(1.0)


def test_a_configuration_that_makes_a_fifo_pool_of_the_parent_of_ephemeral_ones_waits_until_they_are_gone() -> None:
    engine = FairShareEngine(TREE, 1, EngineOptions())
    engine.on_stored_tree(stored(a_tree(), 1), NOW)
    engine.on_operations([live("operation-1", MINE, ephemeral_pool=True)], NOW)
    engine.on_events([EphemeralPoolSet(TREE, EphemeralPool(MINE, HUB, of_hub=True))], NOW)
    becomes_fifo = [Pool(HUB, ROOT_POOL, PoolConfig(mode=PoolMode.FIFO)), Pool(GUEST, ROOT_POOL)]
    engine.on_stored_tree(stored(Tree(tree=TREE, pools=becomes_fifo), 2), NOW)

    assert engine.configuration.in_force.mode(HUB) is PoolMode.FAIR_SHARE
    assert GUEST not in engine.configuration.in_force.pools
    assert "hub has hub$anna" in engine.configuration.alerts()[0]

    ended = OperationStateChanged(
        OperationId("operation-1"), OperationState.COMPLETED, StateCause.JOBS_DONE, "", at_ms=NOW.wall_ms
    )
    engine.on_events([ended], NOW)

    assert engine.configuration.in_force.mode(HUB) is PoolMode.FIFO
    assert GUEST in engine.configuration.in_force.pools
    assert engine.configuration.alerts() == []


def test_a_page_of_everything_live_counts_with_the_last_one() -> None:
    desk = Desk()

    assert not desk.engine.on_more_operations([live("operation-2", GUEST)], NOW).effects
    assert list(desk.engine.operations.by_id) == ["operation-1"]
    assert desk.engine.on_operations([live("operation-3", GUEST)], NOW).effects
    assert list(desk.engine.operations.by_id) == ["operation-2", "operation-3"]
    assert desk.engine.on_operations([live("operation-4", GUEST)], NOW).effects
    assert list(desk.engine.operations.by_id) == ["operation-4"]
