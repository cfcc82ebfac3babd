"""The rules by which an operation is held back: what keeps it out of the scheduling order now.

The same functions decide and explain, so that a person is shown the very reason of the decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from headrace.ids import PoolName
from headrace.pools.amounts import PartialResources
from headrace.resources import EPS, RESOURCE_NAMES, ZERO, Resources
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.explain.reasons import (
    DemandCovered,
    Exceeded,
    FairShareReached,
    FifoCountReached,
    GangNeverFits,
    GangWaits,
    JobSizeRefused,
    NoJobReady,
    NoShareYet,
    OperationIsSuspended,
    OperationLimitReached,
    OperationNotRunning,
    PoolLimitReached,
    Reason,
)
from headrace_allocator.facts.job_slots import is_whole
from headrace_allocator.facts.operations import Operation, judged_together, members, names_in_gang, never_fits
from headrace_allocator.facts.pool_tree import PoolStates, tolerant_limit
from headrace_allocator.gangs.gang import MAY_GATHER

#: The enum member is looked up only once here, because a look-up costs as much as ten comparisons.
_NONE: Final = PreemptionPriority.NONE
_NO_ADDITION: Mapping[PoolName, Resources] = {}


def held_back(
    operation: Operation, ready: int, held: Resources, *, tolerant_in: PoolStates | None = None
) -> Reason | None:
    """Return the reason, apart from limits of pools, for which no job of the operation may start on any node; None if a job may start.

    The operation has `ready` jobs to give out and holds `held`. A preemptive stage passes the tree's pools in `tolerant_in`; then the
    operation's tolerance is added to its limits.
    """
    if not operation.schedulable:
        return not_schedulable(operation)
    if ready <= 0:
        return NoJobReady()
    if operation.refused_size is not None:
        return job_size_refused(operation)
    # While a gang waits, only other jobs of its operation are given out.
    if (
        operation.gang is not None
        and (waits := gang_waits(operation)) is not None
        and ready <= operation.slots.gang_ready_count
    ):
        return waits
    if (unnamed := no_share_yet(operation)) is not None:
        return unnamed
    # To save time, a reason that cannot apply to the operation is not computed: this code runs for each allocation that a heartbeat gives
    # out.
    if operation.is_graceful and (graceful := fair_share_reached(operation)) is not None:
        return graceful
    if (covered := demand_covered(operation, held)) is not None:
        return covered
    if operation.in_fifo_pool and (fifo := fifo_count_reached(operation)) is not None:
        return fifo
    return own_limit_reached(operation, held, tolerant_in=tolerant_in) if operation.limited else None


def only_by_preemption(operation: Operation) -> bool:
    """True if the operation is at its own limits. Then only a preemptive stage, which adds the tolerance of the limits, may start a job."""
    return own_limit_reached(operation, operation.held) is not None


def not_schedulable(operation: Operation) -> OperationIsSuspended | OperationNotRunning | None:
    """Return the reason if no job of the operation may be given out at all."""
    if operation.schedulable:
        return None
    return OperationIsSuspended() if operation.suspended else OperationNotRunning(operation.state)


def job_size_refused(operation: Operation) -> JobSizeRefused | None:
    """Return the reason if the size of the operation's jobs breaks a bound of its pool, of a pool above it or of the tree."""
    if operation.refused_size is None:
        return None
    pool, broken = operation.refused_size
    return JobSizeRefused(pool, broken.resource, broken.amount, broken.bound, broken.is_above)


def no_share_yet(operation: Operation) -> NoShareYet | None:
    """Return the reason if no snapshot has named the operation in its pool. Then the pool's limits and filters may be unknown too."""
    share = operation.share
    return NoShareYet() if share is None or share.parent != operation.spec.pool else None


def gang_waits(operation: Operation) -> GangWaits | GangNeverFits | None:
    """Return the reason if no resources may be held for a gang: some jobs of the gang are on nodes, the gang pauses, or it can never
    fit.
    """
    gang = operation.gang
    if (never := gang_never_fits(operation)) is not None:
        return never
    if gang is None or (gang.phase in MAY_GATHER and is_whole(operation.slots) and not members(operation)):
        return None
    return GangWaits(gang.phase, operation.spec.gang_job_count, members(operation), tasks=names_in_gang(operation))


def gang_never_fits(operation: Operation) -> GangNeverFits | None:
    """Return the reason if a gang without a job on any node has more jobs than can run at once."""
    gang = operation.gang
    if gang is None or gang.at_once is None or members(operation) or not never_fits(operation):
        return None
    names = names_in_gang(operation)
    return GangNeverFits(judged_together(operation), gang.at_once.most, gang.at_once.limit_of, names)


def demand_covered(operation: Operation, held: Resources) -> DemandCovered | None:
    """Return the reason if one more job would exceed the demand that the operation had at the last snapshot. Demand that arose later counts
    from the next snapshot on.
    """
    most = operation.most_held
    return None if most is None or most.dominates(held) else DemandCovered()


def fifo_count_reached(operation: Operation) -> FifoCountReached | None:
    """Return the reason if too many operations come before this one in its fifo pool, according to the last snapshot."""
    share = operation.share
    if share is None or share.schedulable or not operation.in_fifo_pool or operation.most_held is None:
        return None
    # If the operation had no pending job at the snapshot, or was owed something, then it was not left out because of the operations before
    # it. So a job that was requeued since the snapshot may start.
    if share.demand_share == share.usage_share or max(operation.fair_share) > EPS:
        return None
    return FifoCountReached()


def fair_share_reached(operation: Operation) -> FairShareReached | None:
    """Return the reason if a graceful operation has its fair share: it gets no more."""
    return FairShareReached() if operation.is_graceful and not operation.below_fair_share else None


def own_limit_reached(
    operation: Operation, held: Resources, *, tolerant_in: PoolStates | None = None, needed: Resources | None = None
) -> OperationLimitReached | None:
    """Return the reason if the operation's own limits do not allow one more job. All unconfirmed jobs of the operation are assumed to run.

    `needed` is the size of the job. If it is not given, the smallest amount of each resource that any pending job needs counts.
    """
    if not operation.limited:
        return None
    limits = operation.spec.resource_limits
    if tolerant_in is not None and operation.preemption_priority is not _NONE:
        tolerance = operation.spec.resource_limits_overcommit_tolerance
        limits = tolerant_limit(limits, tolerance, tolerant_in.options)
    exceeded = _exceeded(needed or operation.min_needed, limits, held + operation.in_doubt)
    return OperationLimitReached(exceeded) if exceeded else None


def pool_limit_reached(
    operation: Operation,
    pools: PoolStates,
    added: Mapping[PoolName, Resources] = _NO_ADDITION,
    *,
    tolerant: bool = False,
) -> PoolLimitReached | None:
    """Return the reason for the lowest pool above the operation whose limit does not allow one more job; None if all allow it."""
    return next(pool_limits_reached(operation, pools, added, tolerant=tolerant), None)


def pool_limits_reached(
    operation: Operation,
    pools: PoolStates,
    added: Mapping[PoolName, Resources] = _NO_ADDITION,
    *,
    tolerant: bool = False,
    needed: Resources | None = None,
) -> Iterator[PoolLimitReached]:
    """Yield the reason for each pool above the operation whose limit does not allow one more job, from the lowest up.

    `needed` is the size of the job. If it is not given, the smallest amount of each resource that any pending job needs counts.
    """
    for pool in pools.above(operation.spec.pool):
        most = pool.limit(pools.options, tolerant=tolerant)
        exceeded = _exceeded(needed or operation.min_needed, most, pool.charged + added.get(pool.name, ZERO))
        if exceeded:
            is_larger = any(one.needed > one.limit for one in exceeded)
            yield PoolLimitReached(pool.name, exceeded, is_larger and pools.options.enable_limiting_ancestor_check)


def _exceeded(needed: Resources, limits: PartialResources, used: Resources) -> tuple[Exceeded, ...]:
    """Return the resources whose limits would be exceeded if one more job were added to `used`."""
    figures = zip(RESOURCE_NAMES, limits.as_tuple(), used.as_tuple(), needed.as_tuple(), strict=True)
    return tuple(
        Exceeded(name, there, most, more)
        for name, most, there, more in figures
        if most is not None and there + more > most
    )
