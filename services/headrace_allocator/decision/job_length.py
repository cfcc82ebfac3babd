"""Jobs that an allocation gets at once, by the measured length of the operation's jobs."""

from __future__ import annotations

import math

from headrace.resources import ZERO
from headrace.wire.heartbeat import LARGEST_ALLOCATION_JOBS
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.operations import ROUND_TRIPS_AHEAD, Operation

__all__ = ["jobs_ahead", "spare_jobs"]


def jobs_ahead(operation: Operation, pace_ms: int) -> int:
    """As many jobs as end in two heartbeat round trips, 64 at most. One until their length is measured.

    Example: jobs of 100 ms and a heartbeat each second: 2 * 1000 / 100 = 20.
    """
    if operation.mean_job_ms is None or not operation.runs_ahead(pace_ms):
        return 1
    return min(LARGEST_ALLOCATION_JOBS, math.ceil(ROUND_TRIPS_AHEAD * pace_ms / max(operation.mean_job_ms, 1.0)))


def spare_jobs(overlay: Overlay, operation: Operation) -> int:
    """The number of its pending jobs that find no place of their own in the tree's free room."""
    free = overlay.view.free_in_tree
    places = operation.spec.resources.times_that_fit(free) if free.dominates(ZERO) else 0
    return overlay.pending(operation) - places
