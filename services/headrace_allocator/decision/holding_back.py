"""The rule by which an operation is held back: whatever keeps it out of the order at this moment.

The same functions decide and explain, so that a reason told is the reason that held.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.ids import PoolName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.resources import RESOURCE_NAMES, Resources
from headrace_allocator.decision.reasons import (
    Exceeded,
    NoJobReady,
    OperationLimitReached,
    OperationNotRunning,
    OperationSuspended,
    PoolLimitReached,
    Reason,
)
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolTree

__all__ = ["held_back", "not_schedulable", "own_limit_reached", "pool_limit_reached"]

_NO_ADDITION: Mapping[PoolName, Resources] = {}


def held_back(
    operation: Operation,
    ready: int,
    held: Resources,
    pools: PoolTree,
    added: Mapping[PoolName, Resources] = _NO_ADDITION,
) -> Reason | None:
    """The reason for which no job of the operation may start anywhere, or None if one may.

    It has `ready` jobs to give out and holds `held`; limited pools have `added` in use beside what is booked.
    """
    if not operation.schedulable:
        return not_schedulable(operation)
    if ready <= 0:
        return NoJobReady()
    return own_limit_reached(operation, held) or pool_limit_reached(operation, pools, added)


def not_schedulable(operation: Operation) -> OperationSuspended | OperationNotRunning | None:
    """The reason for which its jobs may not be given out at all."""
    if operation.schedulable:
        return None
    return OperationSuspended() if operation.suspended else OperationNotRunning(operation.state)


def own_limit_reached(operation: Operation, held: Resources) -> OperationLimitReached | None:
    """The operation's own limits leave no room for one more job of it, even if all jobs in doubt run."""
    limits = operation.spec.resource_limits
    exceeded = _exceeded(operation, limits, held + operation.in_doubt) if limits != NOTHING else ()
    return OperationLimitReached(exceeded) if exceeded else None


def pool_limit_reached(
    operation: Operation, pools: PoolTree, added: Mapping[PoolName, Resources] = _NO_ADDITION
) -> PoolLimitReached | None:
    """The lowest pool above the operation whose limit leaves no room for one more job of it."""
    for limit in pools.above(operation.spec.pool):
        used = limit.used + added[limit.pool] if limit.pool in added else limit.used
        exceeded = _exceeded(operation, limit.most, used)
        if exceeded:
            return PoolLimitReached(limit.pool, exceeded)
    return None


def _exceeded(operation: Operation, limits: PartialResources, used: Resources) -> tuple[Exceeded, ...]:
    """Each resource of which one more job of the operation, beside what is used, would take too much."""
    needed = operation.spec.resources.as_tuple()
    figures = zip(RESOURCE_NAMES, limits.as_tuple(), used.as_tuple(), needed, strict=True)
    return tuple(
        Exceeded(name, there, most) for name, most, there, more in figures if most is not None and there + more > most
    )
