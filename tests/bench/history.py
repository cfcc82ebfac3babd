"""The history of 10,000 pools in use: what a sample costs beside the loop, and what a picture of a day costs."""

from __future__ import annotations

import sys
import time
from functools import cache

import anyio
import anyio.to_thread

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import IntegralGuarantees, IntegralType, PartialResources, Pool, PoolConfig, PoolTree, Tree
from headrace.resources import Resources
from headrace.wire.codec import decode
from headrace.wire.history import GetHistory, HistorySample
from headrace.wire.snapshots import DetailedShare, ElementKind, ShareFrame, ShareItem
from headrace.wire.version import Version
from headrace_fair_share.history.downsampling import Downsampler
from headrace_fair_share.history.sampling import HistoryOptions, SampleInput, Sampler
from headrace_fair_share.update.results import PoolResults
from tests.bench.registry import REGISTRY, Figure, milliseconds

POOLS = 10_000
RUNS = 10
TREE = TreeName("default")
TOTAL = Resources(user_slots=200_000, cpu=10_000_000, memory=2**46)


@cache
def a_view(pools: int = POOLS) -> SampleInput:
    """Every third pool has an integral guarantee; all are in use."""
    integral = PoolConfig(
        integral_guarantees=IntegralGuarantees(IntegralType.BURST, PartialResources(cpu=100), PartialResources(cpu=200))
    )
    names = [PoolName(f"team-{number // 10}-pool-{number}") for number in range(pools)]
    tree = PoolTree(
        Tree(TREE, [Pool(name, ROOT_POOL, PoolConfig() if at % 3 else integral) for at, name in enumerate(names)])
    )
    figures, items = {}, {}
    for at, name in enumerate(names):
        usage = Resources(at % 50, at % 50 * 100, 0, at % 50 * 2**31)
        figures[name] = PoolResults(usage, usage * 2)
        fair = DetailedShare(total=usage.share_of(TOTAL))
        items[f"/{name}"] = ShareItem(ElementKind.POOL, name, ROOT_POOL, fair_share=fair)
    frame = ShareFrame(usage_version=Version(1, 1), total=TOTAL, at_ms=1_700_000_000_000)
    return SampleInput(tree, frame, items, figures, {}, 86_400.0)


@REGISTRY.add("history_sample_ms", "a sample of 10,000 pools in use, made beside the loop", 250)
def sample() -> Figure:
    return Figure.of(milliseconds(lambda: Sampler(TREE, HistoryOptions()).sample(a_view()), RUNS), "ms")


@REGISTRY.add("history_sample_loop_ms", "the longest that a sample of 10,000 pools kept the loop from its turn", 20)
def loop_during_sample() -> Figure:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # as services do
    try:
        return Figure.of([anyio.run(_longest_turn_ms) for _ in range(RUNS)], "ms")
    finally:
        sys.setswitchinterval(before)


async def _longest_turn_ms() -> float:
    longest = 0.0
    a_view()
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            nonlocal longest
            while True:
                begun = time.perf_counter()
                await anyio.sleep(0.001)
                longest = max(longest, (time.perf_counter() - begun - 0.001) * 1e3)

        tasks.start_soon(watch)
        await anyio.sleep(0.01)
        await anyio.to_thread.run_sync(Sampler(TREE, HistoryOptions()).sample, a_view())
        tasks.cancel_scope.cancel()
    return longest


@REGISTRY.add("history_read_day_ms", "a day's samples of 100 pools as the points of one picture", 2_000)
def read_day() -> Figure:
    (page,) = Sampler(TREE, HistoryOptions()).sample(a_view(100)).pages

    def read() -> None:
        gathered = Downsampler(
            GetHistory(PoolName("team-0-pool-3"), 1_700_000_000_000, 1_700_086_400_000, points=1_000)
        )
        for _ in range(8_640):
            gathered.add(decode(page, HistorySample))

    return Figure.of(milliseconds(read, 3), "ms")
