"""A tree that is written as a plan file is read back as it was."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from headrace.pools import IntegralType
from headrace.resources import ZERO, Resources
from headrace.tree_file.problems import UnusableFile
from headrace_fair_share.hdrf.model import UNLIMITED, OperationInput, PoolInput, Sharing, TreeInput, UpdateOptions
from headrace_fair_share.plan.description import described
from headrace_fair_share.plan.writing import written
from tests.support.effort import few_or_many
from tests.support.trees import trees


def pools_told(pools: list[PoolInput]) -> dict[str, tuple[str, PoolInput]]:
    """Pools with the name of the parent, in whatever order; without bursts of relaxed ones, which a plan refuses."""
    told: dict[str, tuple[str, PoolInput]] = {}
    for pool in pools:
        burst = ZERO if pool.integral is IntegralType.RELAXED else pool.burst_guarantee
        parent = pools[pool.parent].name if pool.parent >= 0 else ""
        told[pool.name] = (parent, msgspec.structs.replace(pool, parent=-1, burst_guarantee=burst))
    return told


def operations_told(tree: TreeInput) -> list[tuple[str, OperationInput]]:
    """Operations with the name of the pool, without what no plan tells."""
    return [
        (
            tree.pools[each.pool].name,
            msgspec.structs.replace(
                each, pool=0, start_time_ms=place, pending_job_count=0, best_allocation_share=UNLIMITED
            ),
        )
        for place, each in enumerate(tree.operations)
    ]


@settings(max_examples=few_or_many(15, 100), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(trees())
def test_always_what_was_written_is_read_back(tree: TreeInput) -> None:
    if tree.total == ZERO:
        with pytest.raises(UnusableFile, match="f:1: total: nothing to share"):
            described(written(tree).encode(), "f")
        return
    read = described(written(tree).encode(), "f").input

    assert (read.total, read.options) == (tree.total, tree.options)
    assert pools_told(read.pools) == pools_told(tree.pools)
    assert operations_told(read) == operations_told(tree)
    for pool in tree.pools:
        if pool.integral is not IntegralType.NONE and pool.name in tree.integral:
            assert read.integral[pool.name].volume == tuple(map(round, tree.integral[pool.name].volume))


@pytest.mark.parametrize(
    "flags", [(False, False, False), (False, False, True), (False, True, True), (True, True, True)]
)
def test_a_tree_with_shares_of_yarn_is_read_back_as_one(flags: tuple[bool, bool, bool]) -> None:
    tree = TreeInput(
        total=Resources(cpu=100, memory=100),
        options=UpdateOptions(sharing=Sharing.YARN, memory_only=flags[0]),
        pools=[
            PoolInput(name="a", parent=-1, memory_only=flags[1]),
            PoolInput(name="b", parent=0, memory_only=flags[2]),
        ],
    )
    read = described(written(tree).encode(), "f").input

    assert (read.options, read.pools) == (tree.options, tree.pools)
