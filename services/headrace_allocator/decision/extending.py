"""Decides which existing allocations get more jobs, and which are given back because another operation is owed their resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from headrace.resources import EPS, ZERO
from headrace.wire.heartbeat import AllocationState
from headrace_allocator.decision.placing import jobs_ahead, spare_jobs
from headrace_allocator.decision.view import Overlay
from headrace_allocator.decision.walk import next_in_line
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation

#: The enum member is looked up only once here, because a look-up costs as much as ten comparisons.
_RUNNING: Final = AllocationState.RUNNING


class Extension(msgspec.Struct, frozen=True):
    """Further jobs for an allocation."""

    allocation: Allocation
    jobs: int


class GiveBack(msgspec.Struct, frozen=True):
    """An allocation that is given back when its running job ends. Jobs of the allocation that have not begun run elsewhere."""

    allocation: Allocation


def extend(overlay: Overlay) -> list[Extension | GiveBack]:
    """Decide which allocations of the node get more jobs, and which are given back. Allocations that started earlier are considered
    first.
    """
    decided: list[Extension | GiveBack] = []
    operations, pace_ms = overlay.view.operations, overlay.view.pace_ms
    for allocation in overlay.view.restless:
        operation = operations.get(allocation.operation)
        if operation is None or (len(allocation.slots) <= 1 and jobs_ahead(operation, pace_ms) == 1):
            continue
        if allocation.take_back is not None or allocation.state is not _RUNNING:
            continue
        if not operation.schedulable or operation.refused_size is not None:
            continue
        jobs = _more_jobs(overlay, operation, allocation)
        if jobs <= 0 and not allocation.unstarted:
            continue
        # On a node that is reserved for one operation, allocations of other operations get no further jobs: the resources that they leave
        # are for the operation that has the reservation.
        drains = overlay.reserved not in (None, operation) or overlay.view.allowed.drains(operation.id)
        if drains or gives_back(overlay, operation, allocation):
            if allocation.unstarted:
                decided.append(GiveBack(allocation))
        elif jobs > 0:
            decided.append(Extension(allocation, jobs))
            overlay.use(operation, ZERO, jobs)
    return decided


def _more_jobs(overlay: Overlay, operation: Operation, allocation: Allocation) -> int:
    """Return the number of further jobs for the allocation.

    The allocation gets as many jobs as end in two heartbeat round trips, but no more than the number of pending jobs that do not fit into
    the free resources of the tree.
    """
    if overlay.view.allowed.one_job_of(operation.id):
        return 0
    ahead = jobs_ahead(operation, overlay.view.pace_ms)
    most = min(ahead - allocation.unstarted, overlay.ready(operation))
    return min(most, spare_jobs(overlay, operation)) if ahead > 1 and most > 0 else 0


def gives_back(overlay: Overlay, operation: Operation, allocation: Allocation) -> bool:
    """True if the operation must give the allocation back.

    This is the case if the operation, or a pool above it, has more than its fair share, and the operation that would get the resources next
    has less than its fair share.
    """
    if all(satisfied <= 1 + EPS for satisfied in _satisfactions(overlay, operation)):
        return False
    overlay.use(operation, ZERO - allocation.resources)
    other = next_in_line(overlay, overlay.room)
    overlay.use(operation, allocation.resources)
    if other is None or other is operation:
        return False
    return _apart(overlay, operation, other) > 1 + EPS and _apart(overlay, other, operation) < 1 - EPS


def _satisfactions(overlay: Overlay, operation: Operation) -> Iterator[float]:
    """Yield the satisfaction of the operation, then of each pool above it that is judged by its own satisfaction."""
    yield overlay.satisfaction(operation)
    for pool in overlay.view.pools.pool(operation.spec.pool).path():
        if pool.follows_own_satisfaction:
            yield overlay.entry_of_pool(pool)[0]


def _apart(overlay: Overlay, operation: Operation, other: Operation) -> float:
    """Return the satisfaction by which the operation is compared with `other`.

    It is the satisfaction of the highest pool that contains the operation and not `other`, among the pools that are judged by their own
    satisfaction. Without such a pool it is the satisfaction of the operation itself.
    """
    pools = overlay.view.pools
    shared = set(pools.pool(other.spec.pool).path())
    alone = [
        pool for pool in pools.pool(operation.spec.pool).path() if pool not in shared and pool.follows_own_satisfaction
    ]
    return overlay.entry_of_pool(alone[-1])[0] if alone else overlay.satisfaction(operation)
