"""Allocations that live: more jobs for those that run short of them, places given back where others are owed them."""

from __future__ import annotations

import msgspec

from headrace.ids import OperationId
from headrace.resources import EPS
from headrace.wire.heartbeat import AllocationState
from headrace_allocator.decision.job_length import jobs_ahead, spare_jobs
from headrace_allocator.decision.least_satisfied import Candidate
from headrace_allocator.decision.reasons import NoJobReady
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation

__all__ = ["Extension", "GiveBack", "extend"]


class Extension(msgspec.Struct, frozen=True):
    """So many more jobs for an allocation."""

    allocation: Allocation
    jobs: int


class GiveBack(msgspec.Struct, frozen=True):
    """A place that is given back at the end of its running job. The jobs behind it run elsewhere."""

    allocation: Allocation


def extend(overlay: Overlay) -> list[Extension | GiveBack]:
    """Decides on each allocation of the node, in the order in which they started."""
    decided: list[Extension | GiveBack] = []
    for allocation in overlay.view.allocations:
        operation = overlay.view.operations.get(allocation.operation)
        if operation is None or allocation.take_back is not None or allocation.state is not AllocationState.RUNNING:
            continue
        if not operation.schedulable:
            continue
        jobs = _more_jobs(overlay, operation, allocation)
        if jobs <= 0 and not allocation.unstarted:
            continue
        if _wanted_elsewhere(overlay, operation, allocation):
            if allocation.unstarted:
                decided.append(GiveBack(allocation))
        elif jobs > 0:
            decided.append(Extension(allocation, jobs))
            overlay.give_out(operation, jobs)
            if overlay.ready(operation) <= 0:
                overlay.moved[operation.id] = NoJobReady()
    return decided


def _more_jobs(overlay: Overlay, operation: Operation, allocation: Allocation) -> int:
    """As many jobs as end before the next answer, but none that has a place of its own."""
    ahead = jobs_ahead(operation, overlay.view.pace_ms)
    most = min(ahead - allocation.unstarted, overlay.ready(operation))
    return min(most, spare_jobs(overlay, operation)) if ahead > 1 and most > 0 else 0


def _wanted_elsewhere(overlay: Overlay, operation: Operation, allocation: Allocation) -> bool:
    """True if its operation has more than it is owed and another, that has less, could use the place."""
    if overlay.satisfaction(operation) <= 1 + EPS:
        return False
    order = overlay.view.order
    return any(
        _is_short(next((each for each in order.walk(size) if each[2] not in overlay.moved), None), operation.id)
        for size in order.fitting(overlay.view.free + allocation.resources)
    )


def _is_short(best: Candidate | None, but: OperationId) -> bool:
    return best is not None and best[0] < 1 - EPS and best[2] != but
