"""The shape of a tree, and arrays of its pools and operations, in which values that are not set have their defaults.

Elements are numbered level by level, so that children are ranges and levels are slices. The root is element 0. The children of an element
are numbered consecutively, pools before operations, each in the order of the input. Invariants: a parent's number is lower than its
children's, and the elements of one level have consecutive numbers.

    root > (a > (x, y), b > z)  is numbered  root 0, a 1, b 2, x 3, y 4, z 5

Section: docs/reference/fair-share-algorithm.md#2-the-tree
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from headrace.pools import IntegralType, PoolMode
from headrace.resources import LARGEST_SUM, Resources
from headrace_fair_share.hdrf.arrays import RESOURCES, Bools, BrokenInvariant, Family, Floats, Ints, amounts_of
from headrace_fair_share.hdrf.model import OperationInput, Partial, PoolInput, UpdateOptions


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of a tree: numbers of parents, children and levels."""

    size: int
    #: Number of each element's parent; -1 for the root.
    parent: Ints
    #: An element's children have the numbers `first_child:end_child`; of these, `first_child:end_pools` are pools.
    first_child: Ints
    end_child: Ints
    end_pools: Ints
    is_pool: Bools
    #: Starts of the levels: level d has the elements levels[d]:levels[d + 1].
    levels: list[int]
    #: Pools of each level, from the root's level down.
    pool_levels: list[Ints]
    #: Element numbers of the input's pools and operations, in the order of the input.
    of_pool: Ints
    of_operation: Ints
    #: Pools below the root in preorder: each pool before the pools below it.
    preorder: Ints
    #: Pools with their children; one family per level, from the root down.
    families: list[Family] = field(default_factory=list)
    #: Pools with their child pools; one family per level, from the root down.
    pool_families: list[Family] = field(default_factory=list)

    @property
    def top(self) -> Family:
        """The family of the root; empty if the root has no children."""
        return self.families[0] if self.families else self.children_of(np.zeros(1, np.int64))

    def children_of(self, pools: Ints) -> Family:
        """Return the family of the pools that have children."""
        parents = pools[self.end_child[pools] > self.first_child[pools]]
        return Family.of(parents, self.first_child[parents], self.end_child[parents])

    def pools_below(self, pools: Ints) -> Family:
        """Return the family of the pools that have child pools. The operations in these pools are left out."""
        parents = pools[self.end_pools[pools] > self.first_child[pools]]
        return Family.of(parents, self.first_child[parents], self.end_pools[parents])

    def path(self, pool: int) -> Ints:
        """Return the pool and all pools above it, without the root."""
        path = []
        while pool > 0:
            path.append(pool)
            pool = int(self.parent[pool])
        return np.array(path, np.int64)


def laid_out(pools: Sequence[PoolInput], operations: Sequence[OperationInput]) -> Layout:
    """Number the elements of a tree. Raises `BrokenInvariant` if a pool comes before its parent."""
    above = [pool.parent for pool in pools]
    depth = _depths(above)
    parents = np.fromiter((*above, *(operation.pool for operation in operations)), np.int64)
    count = len(pools)
    depths = np.concatenate((depth, depth[parents[count:]] + 1 if count else np.ones(len(operations), np.int64)))
    depths[count:][parents[count:] < 0] = 1
    number, levels = _numbers(parents, depths)
    size = len(parents) + 1
    parent = np.full(size, -1, np.int64)
    parent[number] = np.where(parents < 0, 0, number[parents] if len(parents) else 0)
    is_pool = np.zeros(size, np.bool_)
    is_pool[0] = True
    is_pool[number[:count]] = True
    first = np.searchsorted(parent, np.arange(size))
    end = np.searchsorted(parent, np.arange(size), "right")
    pools_up_to = np.concatenate(([0], np.cumsum(is_pool)))
    layout = Layout(
        size=size,
        parent=parent,
        first_child=first,
        end_child=end,
        end_pools=first + pools_up_to[end] - pools_up_to[first],
        is_pool=is_pool,
        levels=levels,
        pool_levels=[a + np.flatnonzero(is_pool[a:b]) for a, b in pairwise(levels)],
        of_pool=number[:count],
        of_operation=number[count:],
        preorder=_preorder(above, number),
    )
    for here in layout.pool_levels:
        layout.families.extend(family for family in (layout.children_of(here),) if len(family.parents))
        layout.pool_families.extend(family for family in (layout.pools_below(here),) if len(family.parents))
    return layout


@dataclass(frozen=True, slots=True)
class PoolArrays:
    """Attributes of pools, by element. The columns of operations contain defaults. The root's column does too, except for `memory_only`."""

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


def _depths(above: list[int]) -> Ints:
    depth: list[int] = []
    for place, parent in enumerate(above):
        if not -1 <= parent < place:
            raise BrokenInvariant(f"pool {place} of the input comes before its parent {parent}")
        depth.append(depth[parent] + 1 if parent >= 0 else 1)
    return np.array(depth, np.int64)


def _numbers(parents: Ints, depths: Ints) -> tuple[Ints, list[int]]:
    """Return the number of each element, in the order of the input, and the first number of each level."""
    number = np.zeros(len(parents), np.int64)
    levels = [0, 1]
    while levels[-1] <= len(parents):
        members = np.flatnonzero(depths == len(levels) - 1)
        if not len(members):
            raise BrokenInvariant("an operation is in no pool")
        above = np.where(parents[members] < 0, 0, number[parents[members]])
        number[members[np.argsort(above, kind="stable")]] = levels[-1] + np.arange(len(members))
        levels.append(levels[-1] + len(members))
    return number, levels


def _preorder(above: list[int], number: Ints) -> Ints:
    below: list[list[int]] = [[] for _ in range(len(above) + 1)]
    for place, parent in enumerate(above):
        below[parent].append(place)
    order: list[int] = []
    open_ = below[-1][::-1]
    while open_:
        order.append(open_.pop())
        open_ += reversed(below[order[-1]])
    return number[np.array(order, np.int64)]


def _partial(rows: Iterable[Partial], count: int, missing: int) -> Ints:
    flat = np.fromiter(
        (missing if amount is None else amount for row in rows for amount in row), np.int64, count * RESOURCES
    )
    return np.ascontiguousarray(flat.reshape(count, RESOURCES).T)
