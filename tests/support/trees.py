"""Random trees of pools and operations for the fair share: from a seed, or as hypothesis draws and shrinks them.

They keep to what is checked before a tree reaches the algorithm: fifo pools have operations only, usage is within demand, pools below
an integral one have no flow and no burst, weights are positive. All else is free: guarantees and flows beyond the cluster, limits of
nothing, gangs, resources that the cluster lacks, savings of any size, integral pools of either type that promise nothing.
"""

from __future__ import annotations

from random import Random
from typing import Final, TypeVar

import msgspec
from hypothesis import strategies as st

from headrace.pools import FifoSortParameter, IntegralType, PoolMode
from headrace.resources import Resources, Share
from headrace_fair_share.hdrf.model import (
    NO_LIMIT,
    IntegralState,
    Limits,
    OperationInput,
    PoolInput,
    TreeInput,
    UpdateOptions,
    VolumeAmounts,
)
from tests.support.savings import after

__all__ = ["amounts", "changed", "random_tree", "some_options", "standard_and_improved", "trees"]

_T = TypeVar("_T")

#: Clusters: an ordinary one, one with every resource, one that is small and odd, one that lacks most.
_TOTALS: Final = (
    Resources(user_slots=1_000, cpu=100_000, memory=4_000_000_000),
    Resources(user_slots=9_973, cpu=1_234_567, gpu=509, memory=987_654_321_987, network=7_919),
    Resources(user_slots=3, cpu=300, gpu=8, memory=8_316_576_848, network=100),
    Resources(cpu=12_345, memory=1),
)
#: Amounts are drawn in parts of the cluster: a few round ones, else any.
_PARTS: Final = 1_000_000


def _part(draw: Random) -> int:
    return draw.choice(
        (
            draw.choice((0, 0, _PARTS // 10, _PARTS // 4, _PARTS // 2, _PARTS)),
            draw.randint(1, _PARTS // 20),
            draw.randint(1, _PARTS),
            draw.randint(1, 2 * _PARTS),
        )
    )


def _large_part(draw: Random) -> int:
    return draw.choice((_PARTS // 2, _PARTS, draw.randint(_PARTS // 4, 2 * _PARTS)))


def _five_parts(draw: Random) -> tuple[int, ...]:
    return (_part(draw),) * 5 if _even_odds(draw) else tuple(_part(draw) for _ in range(5))


def _weight(draw: Random) -> float:
    return draw.choice((1.0, 1.0, 2.0, 0.5, 10.0, draw.randint(1, 10_000) / 100, 1 / 3, 1e-6, 1e6))


def _chance(draw: Random, sixths: int) -> bool:
    return draw.randint(0, 5) < sixths


def _rarely(draw: Random) -> bool:
    return _chance(draw, 1)


def _even_odds(draw: Random) -> bool:
    return _chance(draw, 3)


def _often(draw: Random) -> bool:
    return _chance(draw, 4)


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
    #: A resource is wholly guaranteed and used, and wanted elsewhere in the end.
    taken: bool = False


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
    _Flavour(integral=1, fifo=3, flat=True, least_operations=5, taken=True),
    _Flavour(integral=0, fifo=4, gang=2, least_operations=5, hungry=True, taken=True),
)


def amounts(draw: Random, total: Resources) -> Resources:
    """Amounts between nothing and twice the total."""
    return _of(total, _five_parts(draw))


def _of(total: Resources, parts: tuple[int, ...]) -> Resources:
    u, c, g, m, n = (whole * part // _PARTS for whole, part in zip(total.as_tuple(), parts, strict=True))
    return Resources(u, c, g, m, n)


def _some(draw: Random, total: Resources, least: int) -> Limits:
    """Amounts of some of the resources; the others are not specified."""
    given_for = draw.randint(least, 31)
    figures = amounts(draw, total).as_tuple()
    u, c, g, m, n = (figure if given_for >> r & 1 else None for r, figure in enumerate(figures))
    return (u, c, g, m, n)


def some_options(draw: Random, steps: bool | None = None) -> UpdateOptions:
    """Any set of options, with those for gangs on or off if `steps` says so."""
    return UpdateOptions(
        main_resource=draw.choice([1, 1, 1, 0, 2, 3]),
        smooth_period_s=draw.choice([60.0, 10.0]),
        saturation_period_s=draw.choice([86_400.0, 60.0]),
        relaxed_share_multiplier_limit=draw.choice([3.0, 1.0, 10.0]),
        gang_step_function=_even_odds(draw) if steps is None else steps,
        fifo_reordering=_even_odds(draw) if steps is None else steps,
        improved=_even_odds(draw),
        distribution_gap=_even_odds(draw),
        infer_weight_multiplier=draw.choice([None, None, 1.0, 10.0]),
        distribute_free_volume=_even_odds(draw),
        charge_skipped_relaxed_pools=_even_odds(draw),
    )


def _pool(draw: Random, total: Resources, pools: list[PoolInput], flavour: _Flavour) -> PoolInput:
    """One more pool below the root or any of the pools that may have pools."""
    above = [-1, *(place for place, pool in enumerate(pools) if pool.mode is not PoolMode.FIFO)]
    parent = draw.choice(above[:2] if flavour.flat else above)
    if flavour.overflows:
        parent = min(len(pools), 1) - 1
    typed = _chance(draw, flavour.integral) and not (flavour.overflows and not pools)
    integral = typed and not _within_integral(pools, parent)
    kinds = [IntegralType.BURST, IntegralType.RELAXED, *[IntegralType.RELAXED] * (2 * flavour.hungry)]
    kind = draw.choice(kinds) if typed else IntegralType.NONE
    flow, burst = (_large_part if flavour.hungry else _part)(draw), _part(draw)
    is_quota = not typed and _rarely(draw) and not _within_integral(pools, parent)
    return PoolInput(
        name=f"pool{len(pools)}",
        parent=parent,
        mode=PoolMode.FIFO if _chance(draw, flavour.fifo) else PoolMode.FAIR_SHARE,
        weight=None if _even_odds(draw) else _weight(draw),
        strong_guarantee=_guarantee(draw, total, flavour),
        limits=_some(draw, total, 1) if _rarely(draw) else NO_LIMIT,
        integral=kind,
        resource_flow=_of(total, (flow // 2,) * 5) if integral or is_quota else Resources(),
        burst_guarantee=_of(total, (burst // 2,) * 5) if integral else Resources(),
        relaxed_share_multiplier_limit=draw.choice([None, 1.0, 5.0]) if integral else None,
        can_accept_free_volume=_often(draw),
        distribute_free_volume=True if flavour.overflows else draw.choice([None, True, False]),
        fifo_sort=draw.choice(
            [(FifoSortParameter.WEIGHT, FifoSortParameter.START_TIME), (FifoSortParameter.PENDING_JOB_COUNT,)]
        ),
        gang_step_function=bool(flavour.steps) or _often(draw),
        fifo_reordering=bool(flavour.steps) or _often(draw),
        compute_promised_guarantee=_rarely(draw),
        priority_strong_guarantee=_rarely(draw),
        priority_strong_guarantee_donor=_rarely(draw),
        historic_usage_weights=_rarely(draw),
        historic_usage_average=draw.choice([0.0, 0.25, 1.0]),
    )


def _within_integral(pools: list[PoolInput], place: int) -> bool:
    while place >= 0:
        if pools[place].integral is not IntegralType.NONE:
            return True
        place = pools[place].parent
    return False


def _guarantee(draw: Random, total: Resources, flavour: _Flavour) -> Limits:
    """None, of the main resource alone, of all in the same part, of some."""
    if flavour.steps:
        u, c, g, m, n = _of(total, (_large_part(draw) // 2,) * 5).as_tuple()
        return (u, c, g, m, n)
    kind = draw.choice(["nothing", "main", "even"] + ["some"] * (not flavour.even))
    if kind == "nothing":
        return NO_LIMIT
    if kind == "some":
        return _some(draw, total, 0)
    u, c, g, m, n = _of(total, (_part(draw) // 2,) * 5).as_tuple()
    return (u, c, g, m, n) if kind == "even" else draw.choice([(None, c, None, None, None), (None, None, g, m, None)])


def _operation(draw: Random, total: Resources, number: int, pools: list[int], flavour: _Flavour) -> OperationInput:
    part = _large_part if flavour.hungry or flavour.steps else _part
    demand = _of(total, (part(draw) // (3 if flavour.steps else 1),) * 5) if flavour.even else amounts(draw, total)
    usage = Resources()
    if _even_odds(draw):
        parts = _five_parts(draw)
        usage = Resources(*(d * min(part, _PARTS) // _PARTS for d, part in zip(demand.as_tuple(), parts, strict=True)))
    best: Share = (1.0, 1.0, 1.0, 1.0, 1.0)
    if _rarely(draw):
        best = (1.0, draw.choice([0.0, 0.5, 1.0]), 1.0, draw.choice([0.3, 1.0]), 1.0)
    return OperationInput(
        name=f"operation{number}",
        pool=draw.choice(pools),
        weight=_weight(draw),
        demand=demand,
        usage=usage,
        limits=_some(draw, total, 1) if _rarely(draw) else NO_LIMIT,
        gang=_chance(draw, flavour.gang),
        best_allocation_share=best,
        start_time_ms=draw.randint(0, 3),
        pending_job_count=draw.randint(0, 3),
        historic_usage_average=draw.choice([0.0, 0.5]),
    )


def _state(draw: Random, total: Resources, flavour: _Flavour, *, promises: bool) -> IntegralState:
    """Savings for some seconds of a part of the cluster."""
    seconds = draw.choice(flavour.savings_s)
    parts = (_part(draw),) * 5 if flavour.even else _five_parts(draw)
    u, c, g, m, n = (whole * seconds * part / _PARTS for whole, part in zip(total.as_tuple(), parts, strict=True))
    volume: VolumeAmounts = (u, float(round(c)), g, m, n)
    return IntegralState(volume, draw.choice([0.0, 0.1, 0.3]) if promises else 0.0)


def random_tree(draw: Random, max_pools: int = 7, max_operations: int = 9, *, overflowing: bool = False) -> TreeInput:
    """Any tree: pools of all kinds, operations in some of them, all sets of options.

    `overflowing`: often one whose savings overflow.
    """
    flavours = [each for each in _FLAVOURS if each.overflows]
    flavour = draw.choice(_FLAVOURS if not (overflowing and _often(draw)) else flavours)
    total = draw.choice([*_TOTALS[:2] * 2, *_TOTALS])
    pools: list[PoolInput] = []
    for _ in range(draw.randint(1, max_pools)):
        pools.append(_pool(draw, total, pools, flavour))
    parents = {pool.parent for pool in pools}
    leaves = [place for place in range(len(pools)) if place not in parents]
    inner = [place for place, pool in enumerate(pools) if place in parents and pool.mode is not PoolMode.FIFO]
    options = some_options(draw, flavour.steps)
    if flavour.overflows:
        options = msgspec.structs.replace(options, saturation_period_s=60.0)
    count = draw.randint(min(flavour.least_operations, max_operations), max_operations)
    tree = TreeInput(
        total=total,
        options=options,
        pools=pools,
        operations=[_operation(draw, total, number, leaves * 3 + inner, flavour) for number in range(count)],
        integral={
            pool.name: _state(
                draw, total, flavour, promises=(pool.resource_flow, pool.burst_guarantee) != (Resources(), Resources())
            )
            for pool in pools
            if pool.integral is not IntegralType.NONE and _often(draw)
        },
    )
    return _with_a_resource_taken(draw, tree) if flavour.taken else tree


def _with_a_resource_taken(draw: Random, tree: TreeInput) -> TreeInput:
    """The tree with one resource wholly guaranteed to one or two pools below the root, which demand all of it.

    Operations of other pools want that resource in the end, if at all: behind others in a fifo pool, as a gang, or beyond what their
    running jobs use, which is none of it.
    """
    place = draw.choice([place for place, amount in enumerate(tree.total.as_tuple()) if amount])
    whole = tree.total.as_tuple()[place]
    tops = [number for number, pool in enumerate(tree.pools) if pool.parent < 0]
    owners = draw.sample(tops, min(len(tops), draw.choice([1, 1, 2])))
    first = draw.randint(1, whole) if len(owners) == 2 else whole
    shares = dict(zip(owners, (first, whole - first), strict=False))

    def top(number: int) -> int:
        while tree.pools[number].parent >= 0:
            number = tree.pools[number].parent
        return number

    pools = []
    for number, pool in enumerate(tree.pools):
        strong = list(pool.strong_guarantee)
        strong[place] = shares.get(number)
        limits = NO_LIMIT if number in shares else pool.limits
        u, c, g, m, n = strong
        pools.append(msgspec.structs.replace(pool, strong_guarantee=(u, c, g, m, n), limits=limits))
    operations = []
    for operation in tree.operations:
        demand, usage = list(operation.demand.as_tuple()), list(operation.usage.as_tuple())
        usage[place] = 0
        if top(operation.pool) in shares:
            if _often(draw):
                continue  # beside others the owner's operation may not get all of the guarantee
        else:
            demand[place] = draw.choice([0, 0, max(1, whole // 8), whole])
        operations.append(
            msgspec.structs.replace(
                operation, demand=Resources(*demand), usage=Resources(*usage), gang=_even_odds(draw)
            )
        )
    for owner, amount in shares.items():
        leaf = owner
        while below := [number for number, pool in enumerate(pools) if pool.parent == leaf]:
            leaf = draw.choice(below)
            pools[leaf] = msgspec.structs.replace(pools[leaf], limits=NO_LIMIT)
        wanted = [0] * len(tree.total.as_tuple())
        wanted[place] = amount * draw.choice([1, 2])
        used = list(wanted)
        used[place] = min(wanted[place], draw.choice([0, amount]))
        operations.append(
            OperationInput(
                name=f"owner{owner}", pool=leaf, demand=Resources(*wanted), usage=Resources(*used), start_time_ms=-1
            )
        )
    return msgspec.structs.replace(tree, pools=pools, operations=operations)


def changed(draw: Random, tree: TreeInput) -> TreeInput:
    """The tree with something else in it: mostly one operation, sometimes what stands above it."""
    operations, pools, options, total = list(tree.operations), list(tree.pools), tree.options, tree.total
    kind = draw.choice(["nothing", "time", "demand", "demand", "usage", "pool", "options", "gone", "total"])
    place = draw.randrange(len(operations)) if operations else None
    match kind:
        case "gone" if place is not None:
            del operations[place]
        case "demand" if place is not None:
            more = operations[place].usage + amounts(draw, total)
            operations[place] = msgspec.structs.replace(operations[place], demand=more)
        case "usage" if place is not None:
            halves = Resources(*(amount // 2 for amount in operations[place].demand.as_tuple()))
            usage = draw.choice([halves, Resources()])
            operations[place] = msgspec.structs.replace(operations[place], usage=usage)
        case "pool":
            at, weight = draw.randrange(len(pools)), draw.choice([None, 0.5, 3.0])
            pools[at] = msgspec.structs.replace(pools[at], weight=weight, gang_step_function=_even_odds(draw))
        case "options":
            options = some_options(draw)
        case "total":
            total = total + total
    other = msgspec.structs.replace(tree, operations=operations, pools=pools, options=options, total=total)
    return after(other, draw.choice([200_000, 60_000_000])) if kind == "time" else other


def trees(max_pools: int = 7, max_operations: int = 9, *, overflowing: bool = False) -> st.SearchStrategy[TreeInput]:
    """Random trees, drawn and shrunk by hypothesis."""
    return st.randoms(use_true_random=False).map(
        lambda draw: random_tree(draw, max_pools, max_operations, overflowing=overflowing)
    )


def standard_and_improved(tree: TreeInput) -> tuple[TreeInput, TreeInput]:
    """The same tree in both modes."""
    standard = msgspec.structs.replace(tree.options, improved=False)
    improved = msgspec.structs.replace(tree.options, improved=True)
    return msgspec.structs.replace(tree, options=standard), msgspec.structs.replace(tree, options=improved)
