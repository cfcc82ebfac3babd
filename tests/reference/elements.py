"""The tree of one update: pools and operations with all that is worked out about them, and the attributes of section 4."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.pools import FifoSortParameter, IntegralType, PoolMode
from headrace.resources import Resources
from headrace_fair_share.hdrf.model import IntegralState, Limits, OperationInput, PoolInput, TreeInput, UpdateOptions
from tests.reference.plots import Plot
from tests.reference.values import CPU, ONES, ZEROS, Values, ensure, every, fits, largest, ratio_of, share, smaller

__all__ = ["Element", "Functions", "Operation", "Pool", "Tree", "grow"]


@dataclass
class Functions:
    """Share by fit factor, fit factor by suggestion, share by suggestion; in improved mode a function per child."""

    ff: Plot
    mff: Plot
    fs: Plot
    by_child: list[Plot] = field(default_factory=list)


@dataclass
class Element:
    """What pools, the root and operations have in common."""

    name: str
    parent: Pool | None
    usage: Resources = field(default_factory=Resources)
    demand: Resources = field(default_factory=Resources)
    usage_share: Values = ZEROS
    demand_share: Values = ZEROS
    limits_share: Values = ONES
    strong: Values = ZEROS
    #: Priority part and regular part of the strong guarantee.
    tiers: list[Values] = field(default_factory=lambda: [ZEROS, ZEROS])
    estimated: Values = ZEROS
    proposed: Values = ZEROS
    inferred: tuple[int, ...] = (0, 0, 0, 0, 0)
    total_flow: float = 0.0
    total_burst: float = 0.0
    weight: float = 1.0
    functions: Functions | None = None
    fair: Values = ZEROS
    promised: Values = ZEROS
    fifo_index: int | None = None
    effective_fifo_index: int | None = None

    def made(self) -> Functions:
        if self.functions is None:
            raise AssertionError(f"the functions of {self.name} are read before they are made")
        return self.functions

    def dominant_resource(self) -> int:
        """Where the share of usage is largest, or that of demand when nothing is used; the earlier resource on a tie."""
        shares = self.usage_share if any(self.usage.as_tuple()) else self.demand_share
        return shares.index(largest(shares)) if largest(shares) > 0 else CPU


@dataclass
class Operation(Element):
    """A leaf."""

    given: OperationInput = field(kw_only=True)


@dataclass
class Pool(Element):
    """A pool, or the root, which has no figures of its own."""

    given: PoolInput = field(kw_only=True)
    children: list[Element] = field(default_factory=list)
    #: In the order in which a fifo pool serves them.
    queue: list[Operation] = field(default_factory=list)
    flow_ratio: float = 0.0
    burst_ratio: float = 0.0
    volume: Values = ZEROS
    last_share_ratio: float = 0.0
    overflow: Values = ZEROS
    acceptable: Values = ZEROS
    accepted: Values = ZEROS
    overflow_of_children: Values = ZEROS

    @property
    def is_root(self) -> bool:
        return self.parent is None

    @property
    def is_fifo(self) -> bool:
        return self.given.mode is PoolMode.FIFO

    @property
    def is_integral(self) -> bool:
        return self.given.integral is not IntegralType.NONE

    def pools(self) -> list[Pool]:
        return [child for child in self.children if isinstance(child, Pool)]

    def served(self) -> list[Element]:
        """The children in the order of the hand-out."""
        return [*self.queue] if self.is_fifo else self.children

    def walk(self) -> Iterator[Pool]:
        """This pool and all below, parents first."""
        yield self
        for pool in self.pools():
            yield from pool.walk()

    def upwards(self) -> Iterator[Pool]:
        """This pool and its ancestors below the root."""
        pool: Pool = self
        while pool.parent is not None:
            yield pool
            pool = pool.parent


@dataclass
class Tree:
    """The root and what concerns all."""

    root: Pool
    pools: list[Pool]
    operations: list[Operation]
    total: Resources
    options: UpdateOptions

    def gangs_step(self, pool: Pool) -> bool:
        return self.options.gang_step_function and pool.given.gang_step_function


def grow(given: TreeInput) -> Tree:
    """The elements, tied to each other, with the attributes of section 4 that depend on nothing else."""
    root = Pool("<root>", None, given=PoolInput(name="<root>", parent=-2))
    tree = Tree(root, [], [], given.total, given.options)
    for pool_input in given.pools:
        parent = tree.pools[pool_input.parent] if pool_input.parent >= 0 else root
        state = given.integral.get(pool_input.name, IntegralState())
        pool = Pool(
            pool_input.name,
            parent,
            given=pool_input,
            volume=state.volume,
            last_share_ratio=state.last_share_ratio,
        )
        tree.pools.append(pool)
        parent.children.append(pool)
    for operation_input in given.operations:
        parent = tree.pools[operation_input.pool] if operation_input.pool >= 0 else root
        operation = Operation(operation_input.name, parent, given=operation_input)
        tree.operations.append(operation)
        parent.children.append(operation)
    _measure(tree, root)
    return tree


def _measure(tree: Tree, element: Element) -> None:
    """Ratios, limits, usage and demand, bottom-up, and the order of fifo pools."""
    match element:
        case Operation(given=given):
            element.usage, element.demand = given.usage, given.demand
            limits = smaller(_limits_share(given.limits, tree.total), given.best_allocation_share)
            weight = given.weight
            if element.parent is not None and element.parent.given.historic_usage_weights:
                weight = weight * 2.0**-given.historic_usage_average
            element.weight = weight
        case Pool(given=given):
            for child in element.children:
                _measure(tree, child)
            element.usage = Resources.sum(child.usage for child in element.children)
            element.demand = Resources.sum(child.demand for child in element.children)
            limits = _limits_share(given.limits, tree.total)
            if element.is_integral:
                element.flow_ratio = ratio_of(given.resource_flow.as_tuple(), tree.total)
                element.burst_ratio = ratio_of(given.burst_guarantee.as_tuple(), tree.total)
            element.total_flow, element.total_burst = element.flow_ratio, element.burst_ratio
            for child in element.children:
                element.total_flow += child.total_flow
                element.total_burst += child.total_burst
            if element.is_fifo:
                _line_up(element)
        case _:
            raise AssertionError(element)
    element.limits_share = limits
    element.usage_share = share(element.usage.as_tuple(), tree.total)
    element.demand_share = share(element.demand.as_tuple(), tree.total)
    ensure(fits(limits, ZEROS) and every(limits, 1.0), f"limits of {element.name} lie within [0, 1]: {limits}")
    ensure(fits(element.demand_share, element.usage_share), f"{element.name} uses no more than it demands")


def _limits_share(limits: Limits, total: Resources) -> Values:
    within = [t if limit is None else min(limit, t) for limit, t in zip(limits, total.as_tuple(), strict=True)]
    return share(within, total)


def _line_up(pool: Pool) -> None:
    """The order of a fifo pool, by weights as specified; what is equal in all keys keeps the order of attachment."""
    queue = [child for child in pool.children if isinstance(child, Operation)]
    ensure(len(queue) == len(pool.children), f"fifo pool {pool.name} has operations only")

    def rank(operation: Operation) -> list[float]:
        keys: dict[FifoSortParameter, float] = {
            FifoSortParameter.WEIGHT: -operation.given.weight,
            FifoSortParameter.START_TIME: operation.given.start_time_ms,
            FifoSortParameter.PENDING_JOB_COUNT: operation.given.pending_job_count,
        }
        return [keys[key] for key in pool.given.fifo_sort]

    pool.queue = sorted(queue, key=rank)
    for place, operation in enumerate(pool.queue):
        operation.fifo_index = place
