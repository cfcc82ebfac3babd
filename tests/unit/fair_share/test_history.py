"""What is recorded of pools, when, and what pictures are made of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import IntegralGuarantees, IntegralType, PartialResources, Pool, PoolConfig, PoolTree, Tree
from headrace.resources import Resources
from headrace.wire.codec import decode
from headrace.wire.history import GetHistory, HistoryPoint, HistorySample, IntegralSample, PoolSample, Spread
from headrace.wire.integral import PoolVolume, Volume
from headrace.wire.operations import OperationState
from headrace.wire.snapshots import DetailedShare, ElementKind, ShareFrame, ShareItem
from headrace.wire.version import NEVER, Version
from headrace_fair_share.facts.operations import KnownOperation
from headrace_fair_share.history.downsampling import Downsampler
from headrace_fair_share.history.sampling import HistoryOptions, SampleInput, Sampler
from headrace_fair_share.update.results import PoolResults

TREE = TreeName("default")
#: A hundred cores.
TOTAL = Resources(user_slots=1_000, cpu=10_000, memory=2**40)
BURST = IntegralGuarantees(IntegralType.BURST, PartialResources(cpu=1_000), PartialResources(cpu=5_000))
OPTIONS = HistoryOptions(period_ms=10_000)
START_MS = 1_700_000_000_000


def a_view(at_ms: int, tree: PoolTree, busy: dict[str, int] | None = None, volume: Volume | None = None) -> SampleInput:
    """Figures at a moment: `busy` says the cores in use of each pool that has any; all want twice as much."""
    figures = {ROOT_POOL: PoolResults(), **{name: PoolResults() for name in tree.pools}}
    items: dict[str, ShareItem] = {}
    for pool in figures:
        strong = tree.pools[pool].settings.strong_guarantee_resources.whole if pool in tree.pools else Resources()
        items[f"/{pool}"] = ShareItem(ElementKind.POOL, pool, ROOT_POOL, strong_guarantee_share=strong.share_of(TOTAL))
    for name, cores in (busy or {}).items():
        key = PoolName(name)
        figures[key] = PoolResults(usage=Resources(cpu=cores * 100), demand=Resources(cpu=cores * 200))
        fair = DetailedShare(total=Resources(cpu=cores * 100).share_of(TOTAL))
        items[f"/{name}"] = ShareItem(
            ElementKind.POOL,
            name,
            ROOT_POOL,
            fair_share=fair,
            strong_guarantee_share=items[f"/{name}"].strong_guarantee_share,
        )
    frame = ShareFrame(usage_version=Version(1, 1), total=TOTAL, at_ms=at_ms)
    volumes = {PoolName("burst"): PoolVolume(PoolName("burst"), volume, 0.0)} if volume is not None else {}
    return SampleInput(tree, frame, items, figures, volumes, 86_400.0)


def a_tree(**pools: PoolConfig) -> PoolTree:
    return PoolTree(Tree(TREE, [Pool(PoolName(name), ROOT_POOL, settings) for name, settings in pools.items()]))


def taken(sampler: Sampler, view: SampleInput) -> list[HistorySample]:
    sample = sampler.sample(view)
    sampler.on_taken(view, sample)
    return [decode(page, HistorySample) for page in sample.pages]


def wants(sampler: Sampler, view: SampleInput, revision: int = 0) -> bool:
    return sampler.wants(view.frame, view.pools, revision)


def test_a_pool_without_a_guarantee_is_recorded_while_it_has_or_wants_something() -> None:
    tree = a_tree(idle=PoolConfig(), busy=PoolConfig())

    (sample,) = taken(Sampler(TREE, OPTIONS), a_view(START_MS, tree, {"busy": 3}))

    assert sample.pools == {
        "busy": PoolSample(Resources(cpu=300), Resources(cpu=600), Resources(cpu=300), Resources(), None)
    }
    assert (sample.at_ms, sample.next_due_ms, sample.total, sample.complete) == (START_MS, 10_000, TOTAL, True)


def test_a_pool_with_a_guarantee_is_recorded_always() -> None:
    tree = a_tree(
        burst=PoolConfig(integral_guarantees=BURST),
        strong=PoolConfig(strong_guarantee_resources=PartialResources(cpu=700)),
        idle=PoolConfig(),
    )

    (sample,) = taken(Sampler(TREE, OPTIONS), a_view(START_MS, tree, volume=Volume(cpu=5)))

    assert sample.pools == {
        "burst": PoolSample(integral=IntegralSample(0.1, 0.5, Volume(cpu=5))),
        "strong": PoolSample(strong_guarantee=Resources(cpu=700)),
    }


def test_savings_that_nobody_has_told_yet_are_none_and_not_zero() -> None:
    tree = a_tree(burst=PoolConfig(integral_guarantees=BURST))

    (sample,) = taken(Sampler(TREE, OPTIONS), a_view(START_MS, tree))

    assert sample.pools[PoolName("burst")].integral == IntegralSample(0.1, 0.5, None)


def test_a_sample_is_due_once_a_period_and_of_each_update_once() -> None:
    tree, sampler = a_tree(), Sampler(TREE, OPTIONS)
    assert wants(sampler, a_view(START_MS, tree))
    taken(sampler, a_view(START_MS, tree))

    wanted = [after for after in (0, 200, 9_999, 10_000, 11_000) if wants(sampler, a_view(START_MS + after, tree))]

    assert wanted == [10_000, 11_000]


def test_figures_without_usage_or_of_older_pools_are_not_recorded() -> None:
    tree, sampler = a_tree(), Sampler(TREE, OPTIONS)
    unheard = msgspec.structs.replace(a_view(START_MS, tree).frame, usage_version=NEVER)

    assert not sampler.wants(unheard, tree, 0)
    assert not wants(sampler, a_view(START_MS, tree), revision=1)
    assert wants(sampler, a_view(START_MS, tree), revision=0)


def test_a_clock_that_was_set_back_does_not_end_the_history() -> None:
    tree, sampler = a_tree(), Sampler(TREE, OPTIONS)
    taken(sampler, a_view(START_MS, tree))

    assert wants(sampler, a_view(START_MS - 3_600_000, tree))


def test_between_two_samples_only_pools_whose_guarantee_changed_are_recorded() -> None:
    sampler = Sampler(TREE, OPTIONS)
    strong = PoolConfig(strong_guarantee_resources=PartialResources(cpu=700))
    taken(sampler, a_view(START_MS, a_tree(a=strong, b=strong, c=strong)))
    after = a_view(START_MS + 3_000, a_tree(a=strong, b=PoolConfig(), d=strong), {"a": 2})
    assert wants(sampler, after)

    (sample,) = taken(sampler, after)

    assert (sample.complete, sample.next_due_ms) == (False, 7_000)
    assert sample.pools == {
        "b": PoolSample(),
        "c": PoolSample(),
        "d": PoolSample(strong_guarantee=Resources(cpu=700)),
    }


def test_a_change_that_concerns_no_guarantee_records_nothing() -> None:
    sampler = Sampler(TREE, OPTIONS)
    taken(sampler, a_view(START_MS, a_tree(a=PoolConfig(weight=1.0))))
    after = a_view(START_MS + 3_000, a_tree(a=PoolConfig(weight=2.0)))
    assert wants(sampler, after)

    assert taken(sampler, after) == []
    assert not wants(sampler, after)
    assert wants(sampler, a_view(START_MS + 10_000, a_tree()))


def test_ten_thousand_pools_take_several_pages_and_are_recorded_less_often() -> None:
    tree = a_tree(**{f"pool-{number}": PoolConfig() for number in range(10_000)})
    busy = dict.fromkeys(map(str, tree.pools), 1)
    sampler = Sampler(TREE, HistoryOptions(period_ms=10_000, max_age_ms=86_400_000, max_bytes=100 * 2**20))

    pages = taken(sampler, a_view(START_MS, tree, busy))

    assert [page.page for page in pages] == list(range(len(pages)))
    assert {page.pages for page in pages} == {len(pages)}
    assert sum(len(page.pools) for page in pages) == 10_000
    # The announced time of the next sample holds; from then on a day of samples fits.
    assert pages[0].next_due_ms == 10_000
    assert 0.99 < 86_400_000 / sampler.period_ms * sampler.sample_bytes / (100 * 2**20) <= 1.01
    stretched_ms = sampler.period_ms
    assert taken(sampler, a_view(START_MS + 10_000, tree, busy))[0].next_due_ms == stretched_ms


# --- points -----------------------------------------------------------------------------------------------------------


def a_sample(at_s: int, cores: int | None = 0, volume: int | None = None, **changes: object) -> HistorySample:
    """One of a burst pool of flow 10 and burst 50 cores; None cores: the pool is not named."""
    integral = IntegralSample(0.1, 0.5, Volume(cpu=volume * 100)) if volume is not None else None
    amount = Resources(cpu=(cores or 0) * 100)
    pools = {PoolName("burst"): PoolSample(amount, amount + amount, amount, Resources(), integral)}
    given = {
        "tree": TREE,
        "at_ms": START_MS + at_s * 1_000,
        "next_due_ms": 10_000,
        "total": TOTAL,
        "saturation_period_s": 86_400.0,
        "pools": pools if cores is not None else {},
    }
    return HistorySample(**{**given, **changes})  # type: ignore[arg-type]


def a_request(seconds: int, points: int) -> GetHistory:
    return GetHistory(PoolName("burst"), START_MS, START_MS + seconds * 1_000, points=points)


def points(request: GetHistory, *samples: HistorySample) -> list[HistoryPoint]:
    gathered = Downsampler(request)
    for sample in samples:
        gathered.add(sample)
    return gathered.points


def test_a_stretch_has_means_of_usage_the_last_of_savings_and_keeps_peaks() -> None:
    samples = [a_sample(at, cores, saved) for at, cores, saved in [(0, 0, 90), (10, 40, 50), (20, 20, 70)]]

    (point,) = points(a_request(30, 1), *samples)

    assert point.samples == 3
    assert point.usage == Spread(2_000, 0, 4_000)
    assert point.demand == Spread(4_000, 0, 8_000)
    assert point.integral is not None
    assert (point.integral.flow, point.integral.burst, point.integral.capacity) == (1_000, 5_000, 86_400_000)
    assert point.integral.volume is not None
    assert (point.integral.volume.last, point.integral.volume.least, point.integral.volume.most) == (
        7_000,
        5_000,
        9_000,
    )


def test_time_without_samples_has_no_points_and_is_marked_behind() -> None:
    samples = [a_sample(at, 1) for at in (0, 10, 20, 100, 110)]

    found = points(a_request(120, 12), *samples)

    assert [(point.stretch, point.after_gap) for point in found] == [
        (0, False),
        (1, False),
        (2, False),
        (10, True),
        (11, False),
    ]


def test_one_sample_that_was_lost_is_no_gap() -> None:
    found = points(a_request(60, 6), *[a_sample(at, 1) for at in (0, 10, 30, 40)])

    assert [point.after_gap for point in found] == [False] * 4


def test_a_pool_that_a_complete_sample_leaves_out_had_nothing() -> None:
    found = points(a_request(30, 3), a_sample(0, 5), a_sample(10, None), a_sample(20, 5))

    assert [point.usage.mean for point in found] == [500, 0, 500]


def test_a_sample_of_changed_pools_says_nothing_of_the_others() -> None:
    found = points(a_request(30, 3), a_sample(0, 5), a_sample(12, None, complete=False), a_sample(20, 5))

    assert [point.usage.mean for point in found] == [500, 500]


def test_of_a_sample_in_pages_all_must_have_come_before_a_pool_had_nothing() -> None:
    whole = [a_sample(0, None, page=page, pages=2) for page in (0, 1)]
    half = [a_sample(10, None, page=1, pages=2)]
    named = [a_sample(20, None, page=0, pages=2), a_sample(20, 5, page=1, pages=2)]

    found = points(a_request(30, 3), *whole, *half, *named)

    assert [(point.stretch, point.usage.mean, point.samples) for point in found] == [(0, 0, 1), (2, 500, 1)]


def test_samples_outside_of_the_time_that_was_asked_for_only_say_how_far_is_known() -> None:
    request = GetHistory(PoolName("burst"), START_MS + 30_000, START_MS + 60_000, points=3)
    gathered = Downsampler(request)

    for at in (0, 40):
        gathered.add(a_sample(at, 1))
    assert not gathered.past_end
    gathered.add(a_sample(60, 1))

    assert gathered.past_end
    assert [(point.stretch, point.after_gap) for point in gathered.points] == [(1, True)]


@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 50), st.integers(0, 10**9)), min_size=1, max_size=60),
    st.integers(1, 40),
    st.integers(0, 60),
)
def test_always_a_picture_read_in_pages_is_the_one_read_at_once(
    drawn: list[tuple[int, int, int]], count: int, cut: int
) -> None:
    samples = [a_sample(at, cores, saved) for at, cores, saved in sorted(drawn, key=lambda each: each[0])]
    request = a_request(901, count)
    whole = points(request, *samples)

    first, second = Downsampler(request), Downsampler(request)
    for sample in samples[:cut]:
        first.add(sample)
    second.known_until_ms = first.known_until_ms
    for sample in samples[cut:]:
        second.add(sample)
    joined = first.points
    for point in second.points:
        if joined and joined[-1].stretch == point.stretch:
            joined[-1] = joined[-1].joined(point)
        else:
            joined.append(point)

    assert [(each.stretch, each.samples, each.after_gap, each.integral) for each in joined] == [
        (each.stretch, each.samples, each.after_gap, each.integral) for each in whole
    ]
    for mine, theirs in zip(joined, whole, strict=True):
        assert (mine.usage.least, mine.usage.most) == (theirs.usage.least, theirs.usage.most)
        assert abs(mine.usage.mean - theirs.usage.mean) < 1e-6
    assert sum(point.samples for point in whole) == len(samples)
    assert len(whole) <= count


# --- what a pool got of what it was owed -------------------------------------------------------------------------------


def an_operation(name: str, pool: str, cores: int, *, has: float, wants: float, **fields: Any) -> tuple[Any, ShareItem]:
    """An operation whose jobs need so many cores, and the shares that it has and wants."""
    known = KnownOperation(
        OperationId(name), PoolName(pool), 1.0, OperationState.RUNNING, False, Resources(cpu=100 * cores), 1
    )
    uses, demands = (0.0, has, 0.0, 0.0, 0.0), (0.0, wants, 0.0, 0.0, 0.0)
    item = ShareItem(ElementKind.OPERATION, name, PoolName(pool), usage_share=uses, demand_share=demands)
    return msgspec.structs.replace(known, **fields), item


def with_operations(view: SampleInput, *operations: tuple[Any, ShareItem]) -> SampleInput:
    items = {**view.items, **{item.key: item for _, item in operations}}
    return msgspec.structs.replace(view, items=items, operations={known.operation: known for known, _ in operations})


def test_the_smallest_job_that_waits_is_recorded_of_its_pool_and_of_all_above_it() -> None:
    below = Tree(TREE, [Pool(PoolName("team"), ROOT_POOL), Pool(PoolName("research"), PoolName("team"))])
    view = a_view(START_MS, PoolTree(below))
    research = msgspec.structs.replace(view.items["/research"], parent=PoolName("team"))
    root = ShareItem(ElementKind.ROOT, ROOT_POOL, PoolName(""))
    view = with_operations(
        msgspec.structs.replace(view, items={**view.items, "/research": research, f"/{ROOT_POOL}": root}),
        an_operation("large", "research", 8, has=0.1, wants=0.5),
        an_operation("small", "research", 2, has=0.1, wants=0.5),
        an_operation("has-all", "research", 1, has=0.5, wants=0.5),
        an_operation("suspended", "research", 1, has=0.1, wants=0.5, suspended=True),
        an_operation("elsewhere", "team", 4, has=0.0, wants=0.5),
    )

    (sample,) = taken(Sampler(TREE, OPTIONS), view)

    waiting = {name: pool.smallest_waiting for name, pool in sample.pools.items()}
    assert waiting == {name: Resources(cpu=200) for name in ("research", "team", ROOT_POOL)}


def test_what_was_delivered_is_at_most_the_fair_share_of_each_moment() -> None:
    """Two moments: twice what is owed, then nothing of it, beside a guarantee; the second makes up for nothing."""
    moments = [
        PoolSample(Resources(cpu=800), Resources(cpu=800), Resources(cpu=400), Resources(cpu=300)),
        PoolSample(Resources(), Resources(cpu=800), Resources(cpu=400), Resources(cpu=300), None, Resources(cpu=250)),
        PoolSample(Resources(cpu=100), Resources(cpu=100), Resources(cpu=100), Resources(cpu=300)),
    ]
    gathered = Downsampler(GetHistory(PoolName("research"), START_MS, START_MS + 30_000, points=1, tree=TREE))
    for number, pool in enumerate(moments):
        pools = {PoolName("research"): pool}
        gathered.add(HistorySample(TREE, START_MS + number, 10_000, TOTAL, 86_400.0, pools))

    (point,) = gathered.points
    assert point.delivery is not None
    assert point.delivery.delivered == pytest.approx(500 / 3)
    assert point.delivery.below_guarantee == pytest.approx(1 / 3)
    assert point.delivery.smallest_waiting == 250
