"""An input that was begun and not finished leaves nothing behind that the next one would take for its own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import Pool, PoolConfig, PoolTree, Tree
from headrace.pools.amounts import NOTHING
from headrace.wire.operations import OperationState
from headrace.wire.snapshots import UsageItem
from headrace_fair_share.facts.operations import KnownOperation, demand_of
from headrace_fair_share.update import algorithm_input as update_input
from headrace_fair_share.update.algorithm_input import InputMaker
from headrace_fair_share.update.update_facts import UpdateFacts
from tests.support.allocating import an_operation, cores, with_task_sizes


def a_cut(*pools: str) -> UpdateFacts:
    live = an_operation("o")
    known = KnownOperation.of(live.spec, 1, operation=live.operation, state=live.state, suspended=False)
    tree = Tree(TreeName("default"), [Pool(PoolName(name), ROOT_POOL) for name in pools])
    return UpdateFacts(
        pools=PoolTree(tree),
        operations={OperationId("o"): replace(known, pool=PoolName(pools[0]))},
        usage={OperationId("o"): UsageItem(OperationId("o"))},
        total=cores(4),
        usage_counts=True,
        ephemeral_pools={},
    )


def test_after_an_input_that_failed_half_way_the_next_is_made_of_nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    maker, cut = InputMaker(), a_cut("a", "b")
    maker.make(a_cut("a"))

    def broken(_options: object) -> object:
        raise ValueError("broken")

    with monkeypatch.context() as patched:
        patched.setattr(update_input, "tree_options", broken)
        with pytest.raises(ValueError, match="broken"):
            maker.make(cut)

    assert maker.make(cut).elements == InputMaker().make(cut).elements


def test_a_share_ratio_bounds_a_pool_by_the_cluster_as_it_is_now_and_is_no_limit_of_its_usage() -> None:
    maker, cut = InputMaker(), a_cut("a", "b")
    halved = Tree(TreeName("default"), [Pool(PoolName("a"), ROOT_POOL, PoolConfig(max_share_ratio=0.5))])
    for total in (cores(4), cores(10)):
        made = maker.make(replace(cut, pools=PoolTree(halved), total=total))
        assert made.tree.pools[0].limits[1] == total.cpu // 2
        assert made.elements.limits == [NOTHING, NOTHING]
    unbounded = maker.make(replace(cut, total=cores(10)))
    assert unbounded.tree.pools[0].limits[1] is None


def test_an_operation_with_tasks_demands_all_its_jobs_before_the_allocator_reports_it() -> None:
    live = with_task_sizes(an_operation("o"), (1, cores(4)), (2, cores(1)))
    known = KnownOperation.of(live.spec, 3, operation=live.operation, state=OperationState.RUNNING, suspended=False)

    assert demand_of(known, None, was_named=False).demand == cores(6, slots=3)
