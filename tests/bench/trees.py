"""A pool tree to measure with: four levels, mixed demands, guarantees, limits, fifo pools and integral guarantees; seeded."""

from __future__ import annotations

import random

import msgspec

from headrace.pools import IntegralType, PoolMode
from headrace.resources import Resources
from headrace_fair_share.hdrf.model import (
    NO_LIMIT,
    IntegralState,
    Limits,
    OperationInput,
    PoolInput,
    TreeInput,
    UpdateOptions,
)

__all__ = ["TOTAL", "a_large_tree", "with_one_changed"]

#: 10,000 nodes' worth: cpu in hundredths, memory in bytes.
TOTAL = Resources(user_slots=1_000_000, cpu=100_000_000, gpu=8_000, memory=4_000_000 * 2**30, network=2_000_000)
GIB = 2**30


def a_large_tree(operations: int, shape: tuple[int, ...] = (4, 5, 6, 7), *, improved: bool = False) -> TreeInput:
    """A tree with so many children on each level (984 pools), and operations spread over the lowest pools."""
    draw = random.Random(7)
    pools: list[PoolInput] = []
    above = [(-1, 1.0)]
    for level, width in enumerate(shape):
        here = []
        for parent, part in above:
            for _ in range(width):
                lowest = level == len(shape) - 1
                here.append((len(pools), part / width))
                pools.append(_a_pool(draw, f"pool{len(pools)}", parent, part / width, lowest))
        above = here
    given = [_an_operation(draw, place, above[place % len(above)][0], operations) for place in range(operations)]
    states = {
        pool.name: IntegralState(volume=_a_volume(draw, pool))
        for pool in pools
        if pool.integral is not IntegralType.NONE
    }
    return TreeInput(
        total=TOTAL,
        options=UpdateOptions(improved=improved, gang_step_function=True),
        pools=pools,
        operations=given,
        integral=states,
    )


def with_one_changed(tree: TreeInput, place: int, cpu: int) -> TreeInput:
    """The tree after one operation has come to demand more, or less."""
    operations = list(tree.operations)
    changed = operations[place]
    demand = msgspec.structs.replace(changed.demand, cpu=max(changed.usage.cpu, cpu))
    operations[place] = msgspec.structs.replace(changed, demand=demand)
    return msgspec.structs.replace(tree, operations=operations)


def _a_pool(draw: random.Random, name: str, parent: int, part: float, lowest: bool) -> PoolInput:
    guaranteed = draw.random() < 0.7
    integral = IntegralType.NONE
    if lowest and draw.random() < 0.1:
        integral = draw.choice((IntegralType.BURST, IntegralType.RELAXED))
    return PoolInput(
        name=name,
        parent=parent,
        mode=PoolMode.FIFO if lowest and draw.random() < 0.12 else PoolMode.FAIR_SHARE,
        weight=draw.choice((None, 0.5, 1.0, 2.0, 5.0)),
        strong_guarantee=(None, int(TOTAL.cpu * part * 0.7), None, None, None) if guaranteed else NO_LIMIT,
        limits=_a_limit(draw, part) if draw.random() < 0.15 else NO_LIMIT,
        integral=integral,
        resource_flow=Resources(cpu=0 if integral is IntegralType.NONE else int(TOTAL.cpu * part * 0.1)),
        burst_guarantee=Resources(cpu=int(TOTAL.cpu * part * 0.2) if integral is IntegralType.BURST else 0),
    )


def _a_limit(draw: random.Random, part: float) -> Limits:
    bound = min(1.0, part * draw.choice((1.5, 3.0, 6.0)))
    return (None, int(TOTAL.cpu * bound), None, int(TOTAL.memory * bound), None)


def _a_volume(draw: random.Random, pool: PoolInput) -> tuple[float, float, float, float, float]:
    seconds = draw.choice((0, 20, 90, 100_000)) * (pool.resource_flow.cpu / TOTAL.cpu)
    u, c, g, m, n = TOTAL.as_tuple()
    return (u * seconds, float(round(c * seconds)), g * seconds, m * seconds, n * seconds)


def _an_operation(draw: random.Random, place: int, pool: int, count: int) -> OperationInput:
    # About one and a half times the cluster is wanted in all.
    jobs = max(1, int(draw.expovariate(1.0) * 1_500_000 / count))
    cpu, memory, network = draw.choice((100, 200, 400, 50)), draw.choice((1, 4, 16)), draw.choice((0, 0, 1, 5))
    job = Resources(1, cpu, 0 if draw.random() < 0.9 else 1, memory * GIB, network)
    running = int(jobs * draw.random()) if draw.random() < 0.6 else 0
    usage = msgspec.structs.replace(job * running, memory=int(memory * GIB * running * (0.5 + draw.random() / 2)))
    return OperationInput(
        name=f"operation{place}",
        pool=pool,
        weight=draw.choice((1.0, 1.0, 1.0, 2.0, 0.5)),
        demand=job * jobs,
        usage=usage,
        gang=draw.random() < 0.02,
        start_time_ms=place,
    )
