"""Allocations that live: more jobs for those that run short of them, places given back where others are owed them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from headrace.resources import EPS, ZERO
from headrace.wire.heartbeat import AllocationState
from headrace_allocator.decision.placing import Choice, jobs_ahead, spare_jobs
from headrace_allocator.decision.view import Overlay
from headrace_allocator.decision.walk import next_in_line
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation

#: Looked up once: the lookup of a member in its enumeration costs as much as ten comparisons.
_RUNNING: Final = AllocationState.RUNNING


class Extension(msgspec.Struct, frozen=True):
    """A number of further jobs for an allocation."""

    allocation: Allocation
    jobs: int


class GiveBack(msgspec.Struct, frozen=True):
    """A place that is given back at the end of its running job. The jobs behind it run elsewhere."""

    allocation: Allocation


def extend(overlay: Overlay, choose: Choice = next_in_line) -> list[Extension | GiveBack]:
    """Decides on each allocation of the node, in the order in which they started."""
    decided: list[Extension | GiveBack] = []
    operations, pace_ms = overlay.view.operations, overlay.view.pace_ms
    for allocation in overlay.view.restless:
        operation = operations.get(allocation.operation)
        if operation is None or (len(allocation.slots) <= 1 and jobs_ahead(operation, pace_ms) == 1):
            continue
        if allocation.take_back is not None or allocation.state is not _RUNNING:
            continue
        if not operation.schedulable:
            continue
        jobs = _more_jobs(overlay, operation, allocation)
        if jobs <= 0 and not allocation.unstarted:
            continue
        # A reserved node drains: what its allocations leave is for the operation that has the reservation.
        if overlay.reserved not in (None, operation) or gives_back(overlay, operation, allocation, choose):
            if allocation.unstarted:
                decided.append(GiveBack(allocation))
        elif jobs > 0:
            decided.append(Extension(allocation, jobs))
            overlay.use(operation, ZERO, jobs)
    return decided


def _more_jobs(overlay: Overlay, operation: Operation, allocation: Allocation) -> int:
    """The jobs that end before the next answer, but none that has a place of its own."""
    ahead = jobs_ahead(operation, overlay.view.pace_ms)
    most = min(ahead - allocation.unstarted, overlay.ready(operation))
    return min(most, spare_jobs(overlay, operation)) if ahead > 1 and most > 0 else 0


def gives_back(overlay: Overlay, operation: Operation, allocation: Allocation, choose: Choice) -> bool:
    """True if its operation or a pool above has more than owed, and another with less would get the place."""
    if all(satisfied <= 1 + EPS for satisfied in _satisfactions(overlay, operation)):
        return False
    overlay.use(operation, ZERO - allocation.resources)
    other = choose(overlay, overlay.room, None)
    overlay.use(operation, allocation.resources)
    if other is None or other is operation:
        return False
    return _apart(overlay, operation, other) > 1 + EPS and _apart(overlay, other, operation) < 1 - EPS


def _satisfactions(overlay: Overlay, operation: Operation) -> Iterator[float]:
    """Its satisfaction, and of the pools above those that are judged by their own."""
    yield overlay.satisfaction(operation)
    for pool in overlay.view.pools.pool(operation.spec.pool).path():
        if pool.follows_own_satisfaction:
            yield overlay.entry_of_pool(pool)[0]


def _apart(overlay: Overlay, operation: Operation, other: Operation) -> float:
    """The satisfaction of the highest pool that is above the operation alone, or else of the operation."""
    pools = overlay.view.pools
    shared = set(pools.pool(other.spec.pool).path())
    alone = [
        pool for pool in pools.pool(operation.spec.pool).path() if pool not in shared and pool.follows_own_satisfaction
    ]
    return overlay.entry_of_pool(alone[-1])[0] if alone else overlay.satisfaction(operation)
