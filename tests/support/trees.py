"""Random trees of pools and operations for the fair share, as hypothesis draws them.

They keep to what is checked before a tree reaches the algorithm: fifo pools have operations only, usage is within demand, pools below
an integral one have no integral guarantees, weights are positive. All else is free: guarantees and flows beyond the cluster,
limits of nothing, gangs, resources that the cluster lacks, savings of any size.
"""

from __future__ import annotations

from typing import Final

import msgspec
from hypothesis import strategies as st

from headrace.resources import Resources, Share
from headrace_fair_share.hdrf.model import (
    NO_LIMIT,
    FifoKey,
    IntegralKind,
    IntegralState,
    Limits,
    Mode,
    OperationInput,
    PoolInput,
    TreeInput,
    TreeOptions,
    Volume,
)

__all__ = ["amounts", "options", "standard_and_improved", "trees"]

#: Clusters: an ordinary one, one with every resource, one that is small and odd, one that lacks most.
_TOTALS: Final = (
    Resources(user_slots=1_000, cpu=100_000, memory=4_000_000_000),
    Resources(user_slots=9_973, cpu=1_234_567, gpu=509, memory=987_654_321_987, network=7_919),
    Resources(user_slots=3, cpu=300, gpu=8, memory=8_316_576_848, network=100),
    Resources(cpu=12_345, memory=1),
)
#: Amounts are drawn in parts of the cluster: a few round ones, else any.
_PARTS: Final = 1_000_000
_part = st.one_of(
    st.sampled_from([0, 0, _PARTS // 10, _PARTS // 4, _PARTS // 2, _PARTS]),
    st.integers(1, _PARTS // 20),
    st.integers(1, _PARTS),
    st.integers(1, 2 * _PARTS),
)
_five_parts = st.one_of(
    _part.map(lambda part: (part,) * 5),
    st.tuples(_part, _part, _part, _part, _part),
)
_weight = st.one_of(st.sampled_from([1.0, 1.0, 2.0, 0.5, 10.0]), st.floats(0.01, 100.0))
_rarely = st.integers(0, 5).map(lambda number: number == 0)
_often = st.integers(0, 2).map(lambda number: number > 0)


def amounts(total: Resources) -> st.SearchStrategy[Resources]:
    """Amounts between nothing and twice the total."""
    return _five_parts.map(lambda parts: _of(total, parts))


def _of(total: Resources, parts: tuple[int, ...]) -> Resources:
    u, c, g, m, n = (whole * part // _PARTS for whole, part in zip(total.as_tuple(), parts, strict=True))
    return Resources(u, c, g, m, n)


@st.composite
def _some(draw: st.DrawFn, total: Resources, least: int) -> Limits:
    """Amounts of some of the resources; the others are not specified."""
    given_for = draw(st.integers(least, 31))
    figures = draw(amounts(total)).as_tuple()
    u, c, g, m, n = (figure if given_for >> r & 1 else None for r, figure in enumerate(figures))
    return (u, c, g, m, n)


@st.composite
def options(draw: st.DrawFn) -> TreeOptions:
    """Any set of options."""
    return TreeOptions(
        main_resource=draw(st.sampled_from([1, 1, 1, 0, 2, 3])),
        smooth_period_s=draw(st.sampled_from([60.0, 10.0])),
        saturation_period_s=draw(st.sampled_from([86_400.0, 60.0])),
        relaxed_share_multiplier_limit=draw(st.sampled_from([3.0, 1.0, 10.0])),
        gang_step_function=draw(st.booleans()),
        fifo_reordering=draw(st.booleans()),
        improved=draw(st.booleans()),
        distribution_gap=draw(st.booleans()),
        infer_weight_multiplier=draw(st.sampled_from([None, None, 1.0, 10.0])),
        distribute_free_volume=draw(st.booleans()),
        charge_skipped_relaxed_pools=draw(st.booleans()),
    )


@st.composite
def _pool(draw: st.DrawFn, total: Resources, pools: list[PoolInput]) -> PoolInput:
    """One more pool below the root or any of the pools that may have pools."""
    parent = draw(st.sampled_from([-1, *(place for place, pool in enumerate(pools) if pool.mode is not Mode.FIFO)]))
    above = parent
    may_be_integral = True
    while above >= 0:
        may_be_integral = may_be_integral and pools[above].integral is IntegralKind.NONE
        above = pools[above].parent
    kinds = [IntegralKind.NONE, IntegralKind.BURST, IntegralKind.RELAXED] if may_be_integral else [IntegralKind.NONE]
    kind = draw(st.sampled_from(kinds))
    integral = kind is not IntegralKind.NONE
    small = _part.map(lambda part: (part // 4,) * 5)
    guaranteed = draw(st.sampled_from(["nothing", "main", "some"]))
    strong: Limits = NO_LIMIT
    if guaranteed == "main":
        parts = draw(_part)
        u, c, g, m, n = _of(total, (parts // 2,) * 5).as_tuple()
        strong = draw(st.sampled_from([(None, c, None, None, None), (u, c, g, m, n), (None, None, g, m, None)]))
    elif guaranteed == "some":
        strong = draw(_some(total, 0))
    return PoolInput(
        name=f"pool{len(pools)}",
        parent=parent,
        mode=Mode.FIFO if draw(_rarely) else Mode.FAIR_SHARE,
        weight=draw(st.one_of(st.none(), _weight)),
        strong_guarantee=strong,
        limits=draw(_some(total, 1)) if draw(_rarely) else NO_LIMIT,
        integral=kind,
        resource_flow=_of(total, draw(small)) if integral else Resources(),
        burst_guarantee=_of(total, draw(small)) if integral else Resources(),
        relaxed_share_multiplier_limit=draw(st.sampled_from([None, 1.0, 5.0])) if integral else None,
        can_accept_free_volume=draw(_often),
        distribute_free_volume=draw(st.sampled_from([None, True, False])),
        fifo_sort=draw(st.sampled_from([(FifoKey.WEIGHT, FifoKey.START_TIME), (FifoKey.PENDING_JOB_COUNT,)])),
        gang_step_function=draw(_often),
        fifo_reordering=draw(_often),
        compute_promised_guarantee=draw(_rarely),
        priority_strong_guarantee=draw(_rarely),
        priority_strong_guarantee_donor=draw(_rarely),
        historic_usage_weights=draw(_rarely),
        historic_usage_average=draw(st.sampled_from([0.0, 0.25, 1.0])),
    )


@st.composite
def _operation(draw: st.DrawFn, total: Resources, number: int, pools: int) -> OperationInput:
    demand = draw(amounts(total))
    usage = Resources()
    if draw(st.booleans()):
        u, c, g, m, n = (d * part // _PARTS for d, part in zip(demand.as_tuple(), draw(_five_parts), strict=True))
        usage = Resources(*(min(used, most) for used, most in zip((u, c, g, m, n), demand.as_tuple(), strict=True)))
    best: Share = (1.0, 1.0, 1.0, 1.0, 1.0)
    if draw(_rarely):
        best = (1.0, draw(st.sampled_from([0.0, 0.5, 1.0])), 1.0, draw(st.sampled_from([0.3, 1.0])), 1.0)
    return OperationInput(
        name=f"operation{number}",
        pool=draw(st.integers(0, pools - 1)),
        weight=draw(_weight),
        demand=demand,
        usage=usage,
        limits=draw(_some(total, 1)) if draw(_rarely) else NO_LIMIT,
        gang=draw(_rarely),
        best_allocation_share=best,
        start_time_ms=draw(st.integers(0, 3)),
        pending_job_count=draw(st.integers(0, 3)),
        historic_usage_average=draw(st.sampled_from([0.0, 0.5])),
    )


@st.composite
def _state(draw: st.DrawFn, total: Resources) -> IntegralState:
    """Savings for some seconds of a part of the cluster."""
    seconds = draw(st.sampled_from([0.0, 1.0, 60.0, 100_000.0]))
    u, c, g, m, n = draw(amounts(total)).as_tuple()
    volume: Volume = (u * seconds, c * seconds, g * seconds, m * seconds, n * seconds)
    return IntegralState(volume, draw(st.sampled_from([0.0, 0.1, 0.3])))


@st.composite
def trees(draw: st.DrawFn, max_pools: int = 7, max_operations: int = 9) -> TreeInput:
    """Any tree: pools of all kinds, operations in some of them, all sets of options."""
    total = draw(st.sampled_from(_TOTALS))
    pools: list[PoolInput] = []
    for _ in range(draw(st.integers(1, max_pools))):
        pools.append(draw(_pool(total, pools)))
    with_pools = {pool.parent for pool in pools}
    # A pool with pools below it may turn out to be fifo only by being the last of its branch.
    pools = [
        msgspec.structs.replace(pool, mode=Mode.FAIR_SHARE) if place in with_pools else pool
        for place, pool in enumerate(pools)
    ]
    count = draw(st.integers(0, max_operations))
    return TreeInput(
        total=total,
        options=draw(options()),
        pools=pools,
        operations=[draw(_operation(total, number, len(pools))) for number in range(count)],
        integral={
            pool.name: draw(_state(total)) for pool in pools if pool.integral is not IntegralKind.NONE and draw(_often)
        },
        dt_us=draw(st.sampled_from([None, 0, 1_000, 200_000, 60_000_000, 3_600_000_000])),
        advance_volumes=draw(_often),
    )


def standard_and_improved(tree: TreeInput) -> tuple[TreeInput, TreeInput]:
    """The same tree in both modes."""
    standard = msgspec.structs.replace(tree.options, improved=False)
    improved = msgspec.structs.replace(tree.options, improved=True)
    return msgspec.structs.replace(tree, options=standard), msgspec.structs.replace(tree, options=improved)
