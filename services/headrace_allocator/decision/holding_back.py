"""The rule by which an operation is held back: whatever keeps it out of the order at this moment.

The same functions decide and explain, so that a reason told is the reason that held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from headrace.ids import PoolName
from headrace.pools.amounts import PartialResources
from headrace.resources import EPS, RESOURCE_NAMES, ZERO, Resources
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.decision.reasons import (
    DemandCovered,
    Exceeded,
    FairShareReached,
    FifoCountReached,
    GangNeverFits,
    GangWaits,
    NoJobReady,
    NoShareYet,
    OperationLimitReached,
    OperationNotRunning,
    OperationSuspended,
    PoolLimitReached,
    Reason,
)
from headrace_allocator.facts.operations import Operation, members, never_fits, together
from headrace_allocator.facts.pool_tree import PoolTree, tolerant_limit
from headrace_allocator.facts.slots import is_whole
from headrace_allocator.gangs.gang import GangPhase

#: Looked up once: the lookup of a member in its enumeration costs as much as ten comparisons.
_NONE: Final = PreemptionPriority.NONE
_MAY_GATHER: Final = frozenset({GangPhase.WAITING, GangPhase.GATHERING})
_NO_ADDITION: Mapping[PoolName, Resources] = {}


def held_back(
    operation: Operation, ready: int, held: Resources, *, tolerant_in: PoolTree | None = None
) -> Reason | None:
    """The reason of its own for which no job of the operation may start anywhere, or None if one may.

    It has `ready` jobs to give out and holds `held`. A preemptive stage, which gives the tree, adds tolerance to its limits.
    """
    if not operation.schedulable:
        return not_schedulable(operation)
    if ready <= 0:
        return NoJobReady()
    if operation.gang is not None and (waits := gang_waits(operation)) is not None:
        return waits
    if (unnamed := no_share_yet(operation)) is not None:
        return unnamed
    # What most operations have nothing to do with is not asked of them: this runs for each place that a heartbeat gives out.
    if operation.is_graceful and (graceful := fair_share_reached(operation)) is not None:
        return graceful
    if (covered := demand_covered(operation, held)) is not None:
        return covered
    if operation.in_fifo_pool and (fifo := fifo_count_reached(operation)) is not None:
        return fifo
    return own_limit_reached(operation, held, tolerant_in=tolerant_in) if operation.limited else None


def only_by_preemption(operation: Operation) -> bool:
    """True if its own limits let jobs start by their tolerance alone, which preemptive stages have."""
    return own_limit_reached(operation, operation.held) is not None


def not_schedulable(operation: Operation) -> OperationSuspended | OperationNotRunning | None:
    """The reason for which its jobs may not be given out at all."""
    if operation.schedulable:
        return None
    return OperationSuspended() if operation.suspended else OperationNotRunning(operation.state)


def no_share_yet(operation: Operation) -> NoShareYet | None:
    """No snapshot has named it in its pool: limits and filters of that pool may not be known either."""
    share = operation.share
    return NoShareYet() if share is None or share.parent != operation.spec.pool else None


def gang_waits(operation: Operation) -> GangWaits | GangNeverFits | None:
    """A gang for which no room may be held. Jobs of it are on nodes, it pauses, or there can never be enough."""
    gang = operation.gang
    if (never := gang_never_fits(operation)) is not None:
        return never
    if gang is None or (gang.phase in _MAY_GATHER and is_whole(operation.slots) and not members(operation)):
        return None
    return GangWaits(gang.phase, operation.spec.job_count, members(operation))


def gang_never_fits(operation: Operation) -> GangNeverFits | None:
    """A gang of which no job is on a node, and of more jobs than can run at once."""
    gang = operation.gang
    if gang is None or gang.at_once is None or members(operation) or not never_fits(operation):
        return None
    return GangNeverFits(together(operation), gang.at_once.most, gang.at_once.limit_of)


def demand_covered(operation: Operation, held: Resources) -> DemandCovered | None:
    """Another job would be more than the operation wanted at the last snapshot. Whatever it wants since then is for the next."""
    most = operation.most_held
    return None if most is None or most.dominates(held) else DemandCovered()


def fifo_count_reached(operation: Operation) -> FifoCountReached | None:
    """Too many stand before it in its fifo pool for it to take part, as the last snapshot says."""
    share = operation.share
    if share is None or share.schedulable or not operation.in_fifo_pool or operation.most_held is None:
        return None
    # None of its jobs waited then, or it was owed something: the count has nothing to do with it, and a job that came back may start.
    if share.demand_share == share.usage_share or max(operation.fair_share) > EPS:
        return None
    return FifoCountReached()


def fair_share_reached(operation: Operation) -> FairShareReached | None:
    """A graceful operation gets nothing while it has what it is owed."""
    return FairShareReached() if operation.is_graceful and not operation.below_fair_share else None


def own_limit_reached(
    operation: Operation, held: Resources, *, tolerant_in: PoolTree | None = None
) -> OperationLimitReached | None:
    """The operation's own limits leave no room for one more job of it, even if all jobs in doubt run."""
    if not operation.limited:
        return None
    limits = operation.spec.resource_limits
    if tolerant_in is not None and operation.preemption_priority is not _NONE:
        tolerance = operation.spec.resource_limits_overcommit_tolerance
        limits = tolerant_limit(limits, tolerance, tolerant_in.options)
    exceeded = _exceeded(operation, limits, held + operation.in_doubt)
    return OperationLimitReached(exceeded) if exceeded else None


def pool_limit_reached(
    operation: Operation,
    pools: PoolTree,
    added: Mapping[PoolName, Resources] = _NO_ADDITION,
    *,
    tolerant: bool = False,
) -> PoolLimitReached | None:
    """The lowest pool above the operation whose limit leaves no room for one more job of it."""
    return next(pool_limits_reached(operation, pools, added, tolerant=tolerant), None)


def pool_limits_reached(
    operation: Operation,
    pools: PoolTree,
    added: Mapping[PoolName, Resources] = _NO_ADDITION,
    *,
    tolerant: bool = False,
) -> Iterator[PoolLimitReached]:
    """Each such pool, the lowest first."""
    for pool in pools.above(operation.spec.pool):
        most = pool.limit(pools.options, tolerant=tolerant)
        exceeded = _exceeded(operation, most, pool.charged + added.get(pool.name, ZERO))
        if exceeded:
            yield PoolLimitReached(pool.name, exceeded)


def _exceeded(operation: Operation, limits: PartialResources, used: Resources) -> tuple[Exceeded, ...]:
    """Each resource of which one more job of the operation, beside what is used, would take too much."""
    figures = zip(RESOURCE_NAMES, limits.as_tuple(), used.as_tuple(), operation.min_needed.as_tuple(), strict=True)
    return tuple(
        Exceeded(name, there, most, more)
        for name, most, there, more in figures
        if most is not None and there + more > most
    )
