"""Random trees to try the fair share on: small, crowded, and with everything that can be set."""

from __future__ import annotations

import random

import msgspec

from headrace.resources import ZERO, Resources
from headrace_fair_share.hdrf.model import (
    UNLIMITED,
    FifoKey,
    IntegralKind,
    IntegralState,
    Limits,
    Mode,
    OperationInput,
    PoolInput,
    TreeInput,
    TreeOptions,
)
from tests.support.savings import after

__all__ = ["a_tree", "next_input"]

TOTAL = Resources(100, 10_000, 16, 1000 * 2**20, 100)


def a_tree(seed: int, *, improved: bool = False, gangs: bool = True, nested: bool = False) -> TreeInput:
    """A tree of up to nine pools and a dozen operations."""
    draw = random.Random(seed)
    total = msgspec.structs.replace(TOTAL, gpu=draw.choice((0, 16)), network=draw.choice((0, 100)))
    pools: list[PoolInput] = []
    for place in range(draw.randint(1, 9)):
        parents = [-1, *(at for at, pool in enumerate(pools) if pool.mode is Mode.FAIR_SHARE)]
        pools.append(_a_pool(draw, place, draw.choice(parents), pools, nested))
    above = {pool.parent for pool in pools}
    operations = []
    for number in range(draw.randint(0, 12)):
        at = draw.randrange(len(pools))
        if pools[at].mode is Mode.FIFO or at not in above or draw.random() < 0.3:
            operations.append(_an_operation(draw, number, at, total, gangs))
    return TreeInput(
        total=total,
        options=TreeOptions(
            gang_step_function=gangs,
            fifo_reordering=gangs and draw.random() < 0.5,
            improved=improved,
            distribution_gap=improved and draw.random() < 0.5,
            infer_weight_multiplier=draw.choice((None, 10.0)),
            distribute_free_volume=draw.random() < 0.5,
            charge_skipped_relaxed_pools=draw.random() < 0.3,
        ),
        pools=pools,
        operations=operations,
        integral={pool.name: _a_state(draw, total) for pool in pools if pool.integral is not IntegralKind.NONE},
    )


def next_input(tree: TreeInput, integral: dict[str, IntegralState], draw: random.Random) -> TreeInput:
    """What a tree could look like at the next update: mostly the same, one or two operations with another demand."""
    operations = list(tree.operations)
    for _ in range(draw.randint(0, 2) if operations else 0):
        at = draw.randrange(len(operations))
        operations[at] = _with_demand(draw, operations[at], tree.total)
    pools = tree.pools
    if draw.random() < 0.1:
        pools = [msgspec.structs.replace(pool, weight=draw.choice((None, 1.0, 3.0))) for pool in pools]
    passed = draw.choice((0, 200_000, 60_000_000))
    return after(msgspec.structs.replace(tree, pools=pools, operations=operations, integral=integral), passed)


def _a_pool(draw: random.Random, place: int, parent: int, pools: list[PoolInput], nested: bool) -> PoolInput:
    kind = draw.choice((IntegralKind.NONE, IntegralKind.NONE, IntegralKind.BURST, IntegralKind.RELAXED))
    above = parent
    while above >= 0 and not nested:
        if pools[above].integral is not IntegralKind.NONE:
            kind = IntegralKind.NONE
        above = pools[above].parent
    strong: list[int | None] = [None] * 5
    if draw.random() < 0.6:
        strong[1] = draw.randint(0, 60) * 100 + draw.choice((0, 33))
        strong[0] = draw.choice((None, draw.randint(0, 40)))
    return PoolInput(
        name=f"pool{place}",
        parent=parent,
        mode=draw.choice((Mode.FAIR_SHARE, Mode.FAIR_SHARE, Mode.FIFO)),
        weight=draw.choice((None, 0.5, 1.0, 2.0, 10.0, 1 / 3)),
        strong_guarantee=(strong[0], strong[1], strong[2], strong[3], strong[4]),
        limits=_limits(draw) if draw.random() < 0.3 else (None,) * 5,
        integral=kind,
        resource_flow=Resources(cpu=draw.choice((0, 500, 2000))) if kind is not IntegralKind.NONE else ZERO,
        burst_guarantee=Resources(cpu=draw.choice((0, 1000, 4000))) if kind is IntegralKind.BURST else ZERO,
        can_accept_free_volume=draw.random() < 0.8,
        distribute_free_volume=draw.choice((None, True, False)),
        fifo_sort=draw.choice(((FifoKey.WEIGHT, FifoKey.START_TIME), (FifoKey.PENDING_JOB_COUNT,))),
        compute_promised_guarantee=draw.random() < 0.2,
        priority_strong_guarantee=draw.random() < 0.2,
        priority_strong_guarantee_donor=draw.random() < 0.2,
        historic_usage_weights=draw.random() < 0.1,
        historic_usage_average=draw.random(),
    )


def _limits(draw: random.Random) -> Limits:
    return (
        draw.choice((None, draw.randint(5, 90))),
        draw.randint(5, 90) * 100,
        None,
        draw.randint(5, 90) * 2**20,
        None,
    )


def _a_state(draw: random.Random, total: Resources) -> IntegralState:
    seconds = draw.choice((0.0, 1.7, 12.0, 3000.0, 1e6))
    u, c, g, m, n = total.as_tuple()
    drawn = draw.choice((0.0, 0.1, 0.35))
    return IntegralState((u * seconds, float(round(c * seconds)), g * seconds, m * seconds, n * seconds), drawn)


def _an_operation(draw: random.Random, number: int, pool: int, total: Resources, gangs: bool) -> OperationInput:
    operation = OperationInput(
        name=f"operation{number}",
        pool=pool,
        weight=draw.choice((1.0, 2.0, 5.0, 0.7)),
        gang=gangs and draw.random() < 0.3,
        limits=_limits(draw) if draw.random() < 0.15 else (None,) * 5,
        best_allocation_share=(1.0, 1.0, 1.0, 0.4, 1.0) if draw.random() < 0.1 else UNLIMITED,
        start_time_ms=draw.randrange(3),
        pending_job_count=draw.randrange(3),
        historic_usage_average=draw.random(),
    )
    return _with_demand(draw, operation, total)


def _with_demand(draw: random.Random, operation: OperationInput, total: Resources) -> OperationInput:
    size = draw.choice((0.01, 0.1, 0.37, 0.6, 1.0, 3.0))
    u, c, g, m, n = (
        int(amount * draw.choice((0.0, 1.0, draw.random())) * size) if amount else 0 for amount in total.as_tuple()
    )
    used = [int(amount * draw.random()) for amount in (u, c, g, m, n)] if draw.random() < 0.5 else [0] * 5
    return msgspec.structs.replace(operation, demand=Resources(u, c, g, m, n), usage=Resources(*used))
