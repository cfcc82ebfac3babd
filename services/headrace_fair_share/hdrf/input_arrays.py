"""Pools and operations of the input as arrays, with defaults for values that are not set.

Section: docs/reference/fair-share-algorithm.md#2-the-tree
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.pools import IntegralType, PoolMode
from headrace.resources import LARGEST_SUM, Resources
from headrace_fair_share.hdrf.arrays import RESOURCES, Bools, Floats, Ints, amounts_of
from headrace_fair_share.hdrf.layout import Layout
from headrace_fair_share.hdrf.model import OperationInput, Partial, PoolInput, UpdateOptions


@dataclass(frozen=True, slots=True)
class PoolArrays:
    """Attributes of pools by element. Operations have the defaults, and so has the root except for `memory_only`."""

    fifo: Bools
    #: Configured weight; NaN if none is set.
    weight: Floats
    strong: Ints
    #: False if a figure of the strong guarantee is left out and must be inferred.
    strong_given: Bools
    limits: Ints
    burst: Bools
    relaxed: Bools
    flow: Ints
    burst_guarantee: Ints
    share_multiplier: Floats
    gang_steps: Bools
    reorders: Bools
    promised: Bools
    priority: Bools
    donor: Bools
    memory_only: Bools
    historic_weights: Bools
    usage_average: Floats


@dataclass(frozen=True, slots=True)
class OperationArrays:
    """Attributes of operations, in the order of the input."""

    weight: Floats
    demand: Ints
    usage: Ints
    limits: Ints
    best_share: Floats
    gang: Bools
    start_time_ms: Ints
    pending_jobs: Ints
    usage_average: Floats
    takes_part: Bools


def pools_as_arrays(layout: Layout, pools: Sequence[PoolInput], options: UpdateOptions) -> PoolArrays:
    """Convert the pools of the input to arrays by element."""
    at, size = layout.of_pool, layout.size

    def flags(read: Callable[[PoolInput], bool]) -> Bools:
        row = np.zeros(size, np.bool_)
        row[at] = [read(pool) for pool in pools]
        return row

    def numbers(read: Callable[[PoolInput], float | None], missing: float) -> Floats:
        row = np.full(size, missing)
        found = [read(pool) for pool in pools]
        row[at] = [missing if number is None else number for number in found]
        return row

    def amounts(read: Callable[[PoolInput], Resources]) -> Ints:
        rows = np.zeros((RESOURCES, size), np.int64)
        rows[:, at] = amounts_of(map(read, pools), len(pools))
        return rows

    given = np.zeros((RESOURCES, size), np.bool_)
    given[:, at] = np.array([[g is not None for g in pool.strong_guarantee] for pool in pools]).reshape(-1, RESOURCES).T
    strong = np.zeros((RESOURCES, size), np.int64)
    strong[:, at] = _partial((pool.strong_guarantee for pool in pools), len(pools), 0)
    limits = np.full((RESOURCES, size), LARGEST_SUM)
    limits[:, at] = _partial((pool.limits for pool in pools), len(pools), LARGEST_SUM)
    memory_only = flags(lambda pool: pool.memory_only)
    memory_only[0] = options.memory_only
    return PoolArrays(
        fifo=flags(lambda pool: pool.mode is PoolMode.FIFO),
        weight=numbers(lambda pool: pool.weight, np.nan),
        strong=strong,
        strong_given=given,
        limits=limits,
        burst=flags(lambda pool: pool.integral is IntegralType.BURST),
        relaxed=flags(lambda pool: pool.integral is IntegralType.RELAXED),
        flow=amounts(lambda pool: pool.resource_flow),
        burst_guarantee=amounts(lambda pool: pool.burst_guarantee),
        share_multiplier=numbers(
            lambda pool: pool.relaxed_share_multiplier_limit, options.relaxed_share_multiplier_limit
        ),
        gang_steps=flags(lambda pool: pool.gang_step_function),
        reorders=flags(lambda pool: pool.fifo_reordering),
        promised=flags(lambda pool: pool.compute_promised_guarantee),
        priority=flags(lambda pool: pool.priority_strong_guarantee),
        donor=flags(lambda pool: pool.priority_strong_guarantee_donor),
        memory_only=memory_only,
        historic_weights=flags(lambda pool: pool.historic_usage_weights),
        usage_average=numbers(lambda pool: pool.historic_usage_average, 0.0),
    )


def operations_as_arrays(operations: Sequence[OperationInput]) -> OperationArrays:
    """Convert operations to arrays, in their order."""
    count = len(operations)
    best = np.fromiter((share for each in operations for share in each.best_allocation_share), np.float64)
    return OperationArrays(
        weight=np.fromiter((each.weight for each in operations), np.float64, count),
        demand=amounts_of((each.demand for each in operations), count),
        usage=amounts_of((each.usage for each in operations), count),
        limits=_partial((each.limits for each in operations), count, LARGEST_SUM),
        best_share=np.ascontiguousarray(best.reshape(count, RESOURCES).T),
        gang=np.fromiter((each.gang for each in operations), np.bool_, count),
        start_time_ms=np.fromiter((each.start_time_ms for each in operations), np.int64, count),
        pending_jobs=np.fromiter((each.pending_job_count for each in operations), np.int64, count),
        usage_average=np.fromiter((each.historic_usage_average for each in operations), np.float64, count),
        takes_part=np.fromiter((each.takes_part for each in operations), np.bool_, count),
    )


def _partial(rows: Iterable[Partial], count: int, missing: int) -> Ints:
    flat = np.fromiter(
        (missing if amount is None else amount for row in rows for amount in row), np.int64, count * RESOURCES
    )
    return np.ascontiguousarray(flat.reshape(count, RESOURCES).T)
