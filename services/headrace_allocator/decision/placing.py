"""Placing: the free resources of a node go to the least satisfied operation whose jobs fit, again and again.

Cost: one walk down the order for each start. The facts stay as they are; all changes are written to the overlay.

Source: sections 8.2 and 8.4 of the specification of allocation and preemption.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from headrace.resources import ZERO, Resources
from headrace.wire.heartbeat import LARGEST_ALLOCATION_JOBS
from headrace.wire.snapshots import PreemptionPriority
from headrace.wire.start_stages import StartStage
from headrace_allocator.decision.job_classes import room_below
from headrace_allocator.decision.view import Overlay, added_below, ready_tasks
from headrace_allocator.decision.walk import borrows, next_in_line
from headrace_allocator.facts.operations import ROUND_TRIPS_AHEAD, Operation
from headrace_allocator.facts.pool_tree import tolerant_limit


class Placement(msgspec.Struct, frozen=True):
    """A new allocation of an operation on the node."""

    operation: Operation
    jobs: int
    #: Resources of each job.
    job: Resources
    stage: StartStage = StartStage.REGULAR_MEDIUM_PRIORITY
    #: Number of the task to which the jobs belong; None if all jobs of the operation have one size.
    task: int | None = None


def place(
    overlay: Overlay,
    priority: PreemptionPriority | None = None,
    *,
    discount: Resources = ZERO,
    there: Callable[[Operation], Resources | None] | None = None,
    most: int | None = None,
    most_refused: int | None = None,
    spare: Resources | None = None,
    stage: StartStage = StartStage.REGULAR_MEDIUM_PRIORITY,
) -> list[Placement]:
    """Decide what starts in the free resources of the node. Returns the placements in the order of decision, one per allocation.

    A preemptive stage passes further arguments:

    * `priority`: only operations of this preemption priority take part.
    * `discount`: the most that preemption can free for any operation.
    * `there`: a function for stages in which preemption frees less for some operations. It returns the resources that are available to
      an operation, free resources included; None if the operation may use none of them.
    * `most`: the number of starts after which to stop.
    * `most_refused`: the number of operations without a fitting job after which to stop.

    Nothing starts while fewer resources than `spare` are available. If `spare` is not given, the tree's minimum applies.
    """
    spare = overlay.view.min_spare if spare is None else spare
    placed: list[Placement] = []
    refused = 0
    while (most is None or len(placed) < most) and refused != most_refused:
        room = overlay.room if discount is ZERO else overlay.room + discount
        if not room.dominates(spare):
            break
        operation = next_in_line(overlay, room, priority)
        if operation is None:
            break
        job, task = operation.spec.resources, None
        if there is not None or operation.kinds:
            available = room if there is None else there(operation)
            lends = priority is None
            fitting = None if available is None else _job_that_fits(overlay, operation, available, lends=lends)
            if fitting is None:
                overlay.refuse(operation, counts=available is not None)
                refused += 1
                continue
            job, task = fitting
        placed.append(_start(overlay, operation, job, stage, task))
    return placed


def _job_that_fits(
    overlay: Overlay, operation: Operation, room: Resources, *, lends: bool
) -> tuple[Resources, int | None] | None:
    """Return the size and the task of the operation's first ready job that fits into `room` and stays within all limits; None if there is
    no such job.
    """
    reserved = overlay.reserved
    if reserved is not None and reserved is not operation and not (lends and borrows(overlay, operation)):
        room = room - reserved.spec.resources
    if not operation.kinds:
        # Limits need not be checked here: the walk down the order has compared this size with them already.
        return (operation.spec.resources, None) if room.dominates(operation.spec.resources) else None
    most = room.within(_headroom(overlay, operation))
    ready = ready_tasks(overlay, operation, preempts=not lends)
    return next(((task.resources, n) for n, task in ready if most.dominates(task.resources)), None)


def _headroom(overlay: Overlay, operation: Operation) -> Resources:
    """Return the resources that the operation's own limits and the limits of the pools above it leave."""
    pools, own = overlay.view.pools, operation.spec.resource_limits
    if overlay.passes_limits:
        own = tolerant_limit(own, operation.spec.resource_limits_overcommit_tolerance, pools.options)
    left = room_below(own, overlay.held(operation) + operation.in_doubt)
    for pool in pools.above(operation.spec.pool):
        limit = pool.limit(pools.options, tolerant=overlay.passes_limits)
        left = left.within(room_below(limit, pool.charged + added_below(overlay, pool)))
    return left


def _start(overlay: Overlay, operation: Operation, job: Resources, stage: StartStage, task: int | None) -> Placement:
    # On a node that is reserved for another operation an allocation gets a single job: a second job might not end before the node is
    # needed.
    is_single = overlay.view.allowed.one_job_of(operation.id) or borrows(overlay, operation)
    jobs = 1 if is_single else jobs_ahead(operation, overlay.view.pace_ms)
    if jobs > 1:
        jobs = max(1, min(jobs, overlay.ready(operation), spare_jobs(overlay, operation)))
    overlay.use(operation, job, jobs, task)
    return Placement(operation, jobs, job, stage, task)


def start_regularly(overlay: Overlay) -> list[Placement]:
    """Decide what starts in free resources without preemption. If the tree uses high priority, operations with high priority come
    first.
    """
    options = overlay.view.pools.options
    if not options.enable_guarantee_priority_scheduling and options.batch_operation_scheduling is None:
        return place(overlay, most=overlay.view.most_starts)
    placed: list[Placement] = []
    for high in (True, False):
        placed += _stage(overlay, len(placed), high=high)
    overlay.consider()
    return placed


def _stage(overlay: Overlay, before: int, *, high: bool) -> list[Placement]:
    """Run one regular stage. After the first batch that starts something, later batches may start jobs only while more resources are free
    (`fallback_min_spare_allocation_resources`).
    """
    view, spare = overlay.view, overlay.view.min_spare
    options, most = view.pools.options.batch_operation_scheduling, view.most_starts
    stage = StartStage.REGULAR_HIGH_PRIORITY if high else StartStage.REGULAR_MEDIUM_PRIORITY
    placed: list[Placement] = []
    for batch in view.batches.get(high, ()) if options is not None and view.batches else (None,):
        overlay.consider(batch, high=high)
        left = None if most is None else most - before - len(placed)
        placed += place(overlay, most=left, spare=spare, stage=stage)
        if placed and options is not None:
            spare = options.fallback_min_spare_allocation_resources.whole
    return placed


def jobs_ahead(operation: Operation, pace_ms: int) -> int:
    """Return the number of jobs that end, one after another, in two heartbeat round trips, 64 at most. The number is 1 until the length of
    jobs is measured.

    Example: with jobs of 100 ms and a heartbeat each second, it is 2 * 1000 / 100 = 20.
    """
    mean_ms, ahead_ms = operation.mean_job_ms, ROUND_TRIPS_AHEAD * pace_ms
    if mean_ms >= ahead_ms or operation.kinds or operation.gang is not None:
        return 1
    return min(LARGEST_ALLOCATION_JOBS, math.ceil(ahead_ms / max(mean_ms, 1.0)))


def spare_jobs(overlay: Overlay, operation: Operation) -> int:
    """Return how many of the operation's pending jobs do not fit into the free resources of the whole tree."""
    free = overlay.view.free_in_tree
    places = operation.spec.resources.times_that_fit(free) if free.dominates(ZERO) else 0
    return overlay.pending(operation) - places
