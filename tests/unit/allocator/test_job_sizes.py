"""Bounds of job sizes that change under live operations: running jobs stay, further jobs wait, and the explanation names the bound."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.pools import PoolConfig
from headrace.pools.amounts import PartialResources
from headrace.pools.effective_options import of_pool, of_tree
from headrace.pools.tree_options import AllocationOptions
from headrace.resources import ZERO
from headrace.wire.explanations import ExplainWaiting, WaitingExplained
from headrace.wire.log import OperationPlaced
from headrace.wire.placements import TreePlacement
from headrace.wire.snapshots import ShareItem
from headrace.wire.start_plans import FitOperation, OperationFit
from tests.support.allocating import TREE, Desk, an_operation, cores
from tests.unit.allocator.test_engine import running
from tests.unit.allocator.test_limits import Tree, a_pool, in_pool

SMALL = PartialResources(cpu=100)


def a_tree(job_count: int = 20) -> Tree:
    """Jobs of two cores in `low`, below `high`, and of one core beside them."""
    large, other = an_operation("large", job_count, cores(2)), an_operation("other", 20, cores(1))
    return Tree(pools(), in_pool(large, "low"), in_pool(other, "beside"))


def pools(options: AllocationOptions | None = None, **high: Any) -> list[ShareItem]:
    top = of_tree(options or AllocationOptions())
    above = of_pool(top, PoolConfig(**high))
    told = {"high": (ROOT_POOL, above), "low": ("high", of_pool(above, PoolConfig())), "beside": (ROOT_POOL, top)}
    return [msgspec.structs.replace(a_pool(name, parent), options=mine) for name, (parent, mine) in told.items()]


def bounded(tree: Tree, **high: Any) -> None:
    tree.tell(pools(**high))


def test_running_jobs_stay_and_further_jobs_wait_until_the_pool_accepts_them_again() -> None:
    tree = a_tree(job_count=9)
    tree.beat("n")
    began = tree.used("large")
    assert began >= 4
    bounded(tree, max_job_resource_limits=SMALL)
    tree.report()
    tree.report("large")

    assert tree.used("large") == began - 2
    assert tree.used("large", "other") == 10
    bounded(tree)
    tree.report("other", "other")
    assert tree.used("large") == began
    assert tree.engine.check() == []


def test_jobs_that_a_pool_does_not_accept_are_no_demand() -> None:
    tree = a_tree()
    tree.cut_usage()
    bounded(tree, max_job_resource_limits=SMALL)

    (item,) = (each for each in tree.cut_usage().items if each.operation == "large")
    assert (item.pending, item.pending_jobs) == (ZERO, 20)


@pytest.mark.parametrize(
    ("high", "words", "cure"),
    [
        (
            {"max_job_resource_limits": SMALL},
            "each job is larger than max_job_resource_limits of pool high: it asks for cpu 2, and at most 1 is accepted; "
            "running jobs continue",
            "`headrace pool set high max_job_resource_limits/cpu=…`",
        ),
        (
            {"min_job_resource_limits": PartialResources(memory=1024)},
            "each job is smaller than min_job_resource_limits of pool high: it asks for memory 0 B, and at least 1 KiB is accepted; "
            "running jobs continue",
            "`headrace pool set high min_job_resource_limits/memory=…`",
        ),
    ],
)
def test_the_explanation_names_the_pool_that_sets_the_bound(high: dict[str, Any], words: str, cure: str) -> None:
    tree = a_tree()
    bounded(tree, **high)

    told = tree.engine.on_question(ExplainWaiting(OperationId("large")), tree.now).answer

    assert isinstance(told, WaitingExplained)
    (cause,) = (each for each in told.causes if each.kind == "job_size_refused")
    assert cause.words == words
    assert cure in cause.cure
    assert told.causes[0] == cause


def test_a_bound_of_the_tree_is_named_as_such() -> None:
    tree = a_tree()
    tree.options = msgspec.structs.replace(tree.options, max_job_resource_limits=SMALL)
    tree.tell(pools(tree.options))

    assert "each job is larger than max_job_resource_limits of the tree" in tree.reasons("large")[0]
    assert not any("max_job_resource_limits" in words for words in tree.reasons("other"))


def test_an_operation_that_is_moved_to_a_pool_without_the_bound_starts() -> None:
    tree = a_tree()
    bounded(tree, max_job_resource_limits=SMALL)
    tree.beat("n")
    assert tree.used("large") == 0

    tree.learn(OperationPlaced(OperationId("large"), TreePlacement(TREE, PoolName("beside"), 3)))
    bounded(tree, max_job_resource_limits=SMALL)
    tree.report("other", "other")

    assert tree.used("large") == 2
    assert tree.engine.check() == []


@pytest.mark.parametrize("is_refused", [False, True])
def test_an_allocation_gets_no_further_jobs_of_a_size_that_is_not_accepted(is_refused: bool) -> None:
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("operation-1", jobs=30))
    orders, _ = desk.beat("n1")
    desk.operation("operation-1").mean_job_ms = 500.0
    if is_refused:
        desk.options = msgspec.structs.replace(desk.options, max_job_resource_limits=PartialResources(cpu=50))
    desk.share(operation_1=1.0)

    extended, _ = desk.beat("n1", allocations=[running(orders.start[0])])

    assert bool(extended.extend) != is_refused
    assert not extended.take_back


def test_a_dry_run_says_it_before_the_start() -> None:
    tree = a_tree()
    bounded(tree, max_job_resource_limits=SMALL)
    spec = in_pool(an_operation("new", 1, cores(2)), "low").spec

    fit = tree.engine.on_question(FitOperation(spec), tree.now).answer

    assert isinstance(fit, OperationFit)
    assert [cause.kind for cause in fit.causes][:1] == ["job_size_refused"]
