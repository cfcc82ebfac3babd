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
_large_part = st.one_of(st.sampled_from([_PARTS // 2, _PARTS]), st.integers(_PARTS // 4, 2 * _PARTS))
_five_parts = st.one_of(
    _part.map(lambda part: (part,) * 5),
    st.tuples(_part, _part, _part, _part, _part),
)
_weight = st.one_of(st.sampled_from([1.0, 1.0, 2.0, 0.5, 10.0]), st.floats(0.01, 100.0), st.sampled_from([1e-6, 1e6]))
_rarely = st.integers(0, 5).map(lambda number: number == 0)
_often = st.integers(0, 2).map(lambda number: number > 0)


class _Flavour(msgspec.Struct, frozen=True, kw_only=True):
    """What a tree is rich in; without it most trees would leave most of the algorithm alone."""

    #: Chances out of six.
    integral: int = 2
    fifo: int = 1
    gang: int = 1
    #: Pools stand below the root, or below the first pool.
    flat: bool = False
    #: Every resource is wanted, and guaranteed, in the same part.
    even: bool = False
    least_operations: int = 0
    steps: bool | None = None
    #: Flows and demands are large parts of the cluster.
    hungry: bool = False
    #: Whatever overflows is offered to siblings, and soon something does.
    overflows: bool = False
    savings_s: tuple[float, ...] = (0.0, 1.0, 60.0, 100_000.0)


_FLAVOURS: Final = (
    _Flavour(),
    _Flavour(integral=0),
    # Much is promised from savings, and everybody wants it.
    _Flavour(integral=5, flat=True, even=True, least_operations=5, savings_s=(60.0, 100_000.0), fifo=0, hungry=True),
    _Flavour(integral=5, flat=True, even=False, least_operations=5, savings_s=(60.0, 100_000.0), fifo=0, hungry=True),
    _Flavour(integral=3, least_operations=4, savings_s=(60.0, 100_000.0), hungry=True),
    _Flavour(integral=5, flat=True, fifo=0, savings_s=(0.0, 10.0, 100_000.0), overflows=True),
    # Waiting gangs in pools with guarantees.
    _Flavour(integral=1, fifo=5, gang=4, flat=True, even=True, least_operations=4, steps=True),
)


def _chance(draw: st.DrawFn, sixths: int) -> bool:
    return draw(st.integers(0, 5)) < sixths


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
def options(draw: st.DrawFn, steps: bool | None = None) -> TreeOptions:
    """Any set of options; with those for gangs on or off where `steps` says so."""
    return TreeOptions(
        main_resource=draw(st.sampled_from([1, 1, 1, 0, 2, 3])),
        smooth_period_s=draw(st.sampled_from([60.0, 10.0])),
        saturation_period_s=draw(st.sampled_from([86_400.0, 60.0])),
        relaxed_share_multiplier_limit=draw(st.sampled_from([3.0, 1.0, 10.0])),
        gang_step_function=draw(st.booleans()) if steps is None else steps,
        fifo_reordering=draw(st.booleans()) if steps is None else steps,
        improved=draw(st.booleans()),
        distribution_gap=draw(st.booleans()),
        infer_weight_multiplier=draw(st.sampled_from([None, None, 1.0, 10.0])),
        distribute_free_volume=draw(st.booleans()),
        charge_skipped_relaxed_pools=draw(st.booleans()),
    )


@st.composite
def _pool(draw: st.DrawFn, total: Resources, pools: list[PoolInput], flavour: _Flavour) -> PoolInput:
    """One more pool below the root or any of the pools that may have pools."""
    above = [-1, *(place for place, pool in enumerate(pools) if pool.mode is not Mode.FIFO)]
    parent = draw(st.sampled_from(above[:2] if flavour.flat else above))
    if flavour.overflows:
        parent = min(len(pools), 1) - 1
    integral = _chance(draw, flavour.integral) and not _within_integral(pools, parent)
    if flavour.overflows and not pools:
        integral = False
    kinds = [IntegralKind.BURST, IntegralKind.RELAXED, *[IntegralKind.RELAXED] * (2 * flavour.hungry)]
    kind = draw(st.sampled_from(kinds)) if integral else IntegralKind.NONE
    flow, burst = draw(_large_part if flavour.hungry else _part), draw(_part)
    return PoolInput(
        name=f"pool{len(pools)}",
        parent=parent,
        mode=Mode.FIFO if _chance(draw, flavour.fifo) else Mode.FAIR_SHARE,
        weight=draw(st.one_of(st.none(), _weight)),
        strong_guarantee=draw(_guarantee(total, flavour)),
        limits=draw(_some(total, 1)) if draw(_rarely) else NO_LIMIT,
        integral=kind,
        resource_flow=_of(total, (flow // 2,) * 5) if integral else Resources(),
        burst_guarantee=_of(total, (burst // 2,) * 5) if integral else Resources(),
        relaxed_share_multiplier_limit=draw(st.sampled_from([None, 1.0, 5.0])) if integral else None,
        can_accept_free_volume=draw(_often),
        distribute_free_volume=True if flavour.overflows else draw(st.sampled_from([None, True, False])),
        fifo_sort=draw(st.sampled_from([(FifoKey.WEIGHT, FifoKey.START_TIME), (FifoKey.PENDING_JOB_COUNT,)])),
        gang_step_function=bool(flavour.steps) or draw(_often),
        fifo_reordering=bool(flavour.steps) or draw(_often),
        compute_promised_guarantee=draw(_rarely),
        priority_strong_guarantee=draw(_rarely),
        priority_strong_guarantee_donor=draw(_rarely),
        historic_usage_weights=draw(_rarely),
        historic_usage_average=draw(st.sampled_from([0.0, 0.25, 1.0])),
    )


def _within_integral(pools: list[PoolInput], place: int) -> bool:
    while place >= 0:
        if pools[place].integral is not IntegralKind.NONE:
            return True
        place = pools[place].parent
    return False


@st.composite
def _guarantee(draw: st.DrawFn, total: Resources, flavour: _Flavour) -> Limits:
    """None, of the main resource alone, of all in the same part, of some."""
    if flavour.steps:
        u, c, g, m, n = _of(total, (draw(_large_part) // 2,) * 5).as_tuple()
        return (u, c, g, m, n)
    kind = draw(st.sampled_from(["nothing", "main", "even"] + ["some"] * (not flavour.even)))
    if kind == "nothing":
        return NO_LIMIT
    if kind == "some":
        return draw(_some(total, 0))
    u, c, g, m, n = _of(total, (draw(_part) // 2,) * 5).as_tuple()
    return (
        (u, c, g, m, n)
        if kind == "even"
        else draw(st.sampled_from([(None, c, None, None, None), (None, None, g, m, None)]))
    )


@st.composite
def _operation(draw: st.DrawFn, total: Resources, number: int, pools: list[int], flavour: _Flavour) -> OperationInput:
    part = _large_part if flavour.hungry or flavour.steps else _part
    demand = _of(total, (draw(part) // (3 if flavour.steps else 1),) * 5) if flavour.even else draw(amounts(total))
    usage = Resources()
    if draw(st.booleans()):
        parts = draw(_five_parts)
        usage = Resources(*(d * min(part, _PARTS) // _PARTS for d, part in zip(demand.as_tuple(), parts, strict=True)))
    best: Share = (1.0, 1.0, 1.0, 1.0, 1.0)
    if draw(_rarely):
        best = (1.0, draw(st.sampled_from([0.0, 0.5, 1.0])), 1.0, draw(st.sampled_from([0.3, 1.0])), 1.0)
    return OperationInput(
        name=f"operation{number}",
        pool=draw(st.sampled_from(pools)),
        weight=draw(_weight),
        demand=demand,
        usage=usage,
        limits=draw(_some(total, 1)) if draw(_rarely) else NO_LIMIT,
        gang=_chance(draw, flavour.gang),
        best_allocation_share=best,
        start_time_ms=draw(st.integers(0, 3)),
        pending_job_count=draw(st.integers(0, 3)),
        historic_usage_average=draw(st.sampled_from([0.0, 0.5])),
    )


@st.composite
def _state(draw: st.DrawFn, total: Resources, flavour: _Flavour) -> IntegralState:
    """Savings for some seconds of a part of the cluster."""
    seconds = draw(st.sampled_from(flavour.savings_s))
    parts = (draw(_part),) * 5 if flavour.even else draw(_five_parts)
    u, c, g, m, n = (whole * seconds * part / _PARTS for whole, part in zip(total.as_tuple(), parts, strict=True))
    volume: Volume = (u, float(round(c)), g, m, n)
    return IntegralState(volume, draw(st.sampled_from([0.0, 0.1, 0.3])))


@st.composite
def trees(draw: st.DrawFn, max_pools: int = 7, max_operations: int = 9, *, overflowing: bool = False) -> TreeInput:
    """Any tree: pools of all kinds, operations in some of them, all sets of options; often one whose savings overflow."""
    flavours = [each for each in _FLAVOURS if each.overflows]
    flavour = draw(st.sampled_from(_FLAVOURS if not (overflowing and draw(_often)) else flavours))
    total = draw(st.sampled_from([*_TOTALS[:2] * 2, *_TOTALS]))
    pools: list[PoolInput] = []
    for _ in range(draw(st.integers(1, max_pools))):
        pools.append(draw(_pool(total, pools, flavour)))
    parents = {pool.parent for pool in pools}
    leaves = [place for place in range(len(pools)) if place not in parents]
    inner = [place for place, pool in enumerate(pools) if place in parents and pool.mode is not Mode.FIFO]
    chosen = draw(options(flavour.steps))
    if flavour.overflows:
        chosen = msgspec.structs.replace(chosen, saturation_period_s=60.0)
    count = draw(st.integers(flavour.least_operations, max_operations))
    return TreeInput(
        total=total,
        options=chosen,
        pools=pools,
        operations=[draw(_operation(total, number, leaves * 3 + inner, flavour)) for number in range(count)],
        integral={
            pool.name: draw(_state(total, flavour))
            for pool in pools
            if pool.integral is not IntegralKind.NONE and draw(_often)
        },
    )


def standard_and_improved(tree: TreeInput) -> tuple[TreeInput, TreeInput]:
    """The same tree in both modes."""
    standard = msgspec.structs.replace(tree.options, improved=False)
    improved = msgspec.structs.replace(tree.options, improved=True)
    return msgspec.structs.replace(tree, options=standard), msgspec.structs.replace(tree, options=improved)
