"""How long a whole update of fair share takes where every operation starves: shares, statuses, clocks, and items of what changed."""

from __future__ import annotations

import itertools

from msgspec.structs import replace

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import Pool, PoolTree, Tree
from headrace.resources import Resources
from headrace.wire.operations import OperationState
from headrace.wire.snapshots import StarvationStatus, UsageItem
from headrace_fair_share.facts.operations import KnownOperation
from headrace_fair_share.starvation.clocks import STARVATION
from headrace_fair_share.update.update_facts import UpdateFacts
from headrace_fair_share.update.updater import Updater
from tests.bench.registry import REGISTRY, Figure, milliseconds

OPERATIONS, POOLS, JOBS = 10_000, 1_000, 100
JOB = Resources(user_slots=1, cpu=100)
#: For three jobs of each.
TOTAL = Resources(user_slots=10**6, cpu=3 * OPERATIONS * 100, memory=2**50)


def used(number: int, running: int) -> UsageItem:
    """An operation of a hundred jobs, of which so many run."""
    waiting = JOBS - running
    return UsageItem(OperationId(str(number)), usage=JOB * running, pending=JOB * waiting, pending_jobs=waiting)


def a_cut() -> UpdateFacts:
    """Pools on three levels, operations in the lowest, of which each has one job of three."""
    parents = [ROOT_POOL if number < 10 else PoolName(f"p{number // 10}") for number in range(POOLS)]
    pools = [Pool(PoolName(f"p{number}"), parent) for number, parent in enumerate(parents)]
    known = [
        KnownOperation(
            OperationId(str(number)), PoolName(f"p{100 + number % 900}"), 1.0, OperationState.RUNNING, False, JOB, JOBS
        )
        for number in range(OPERATIONS)
    ]
    return UpdateFacts(
        pools=PoolTree(Tree(TreeName("default"), pools)),
        operations={each.operation: each for each in known},
        usage={OperationId(str(number)): used(number, 1) for number in range(OPERATIONS)},
        total=TOTAL,
        usage_counts=True,
    )


@REGISTRY.add("update_starving_ms", "a whole update after one operation changed, 10,000 operations that starve", 120)
def starving() -> Figure:
    updater, cut = Updater(), a_cut()
    cut = replace(cut, clocks=updater.update(cut).clocks, clock_ms=31_000)
    cut = replace(cut, clocks=updater.update(cut).clocks)
    assert (cut.clocks.starvation[POOLS + 1 :] == STARVATION.index(StarvationStatus.STARVING)).all()
    changed = itertools.count(1)

    def update() -> None:
        nonlocal cut
        number = next(changed)
        item = used(number * 37 % OPERATIONS, 2)
        cut = replace(cut, usage={**cut.usage, item.operation: item}, clock_ms=cut.clock_ms + 1_000)
        cut = replace(cut, clocks=updater.update(cut).clocks)

    return Figure.of(milliseconds(update, 25), "ms")
