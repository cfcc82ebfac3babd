"""Placing: the free room of a node goes to the least satisfied operation whose jobs fit, again and again.

Cost: the starts times the walks down the order. Nothing is booked, all is written to the overlay.
Source: sections 8.2 and 8.4 of the specification of allocation and preemption.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from headrace.ids import PoolName
from headrace.resources import ZERO, Resources
from headrace.wire.heartbeat import LARGEST_ALLOCATION_JOBS
from headrace.wire.snapshots import PreemptionPriority
from headrace.wire.start_stages import StartStage
from headrace_allocator.decision.job_classes import room_below
from headrace_allocator.decision.view import Overlay
from headrace_allocator.decision.walk import next_in_line
from headrace_allocator.facts.operations import ROUND_TRIPS_AHEAD, Operation
from headrace_allocator.facts.pool_tree import tolerant_limit

#: Chooses who gets the next place in a room: the overlay, the room, and whose priority alone takes part.
Choice = Callable[[Overlay, Resources, PreemptionPriority | None], Operation | None]


class Placement(msgspec.Struct, frozen=True):
    """A new allocation of an operation on the node, with so many jobs."""

    operation: Operation
    jobs: int
    #: Of each job.
    job: Resources
    stage: StartStage = StartStage.REGULAR_MEDIUM_PRIORITY


class Extra(msgspec.Struct, frozen=True):
    """Room beside that of the node, by the older rules: for one operation alone, and under limits of pools."""

    of_operation: Callable[[Operation], Resources] = lambda _: ZERO
    below_pools: Mapping[PoolName, Resources] = {}


_NO_EXTRA: Final = Extra()


def place(
    overlay: Overlay,
    priority: PreemptionPriority | None = None,
    *,
    discount: Resources = ZERO,
    held: Resources = ZERO,
    most: int | None = None,
    spare: Resources | None = None,
    choose: Choice = next_in_line,
    extra: Extra = _NO_EXTRA,
    stage: StartStage = StartStage.REGULAR_MEDIUM_PRIORITY,
) -> list[Placement]:
    """Decides what starts in the free room, in the order of the decisions. Each placement is one allocation.

    A preemptive stage lets only operations of its priority take part, counts `discount` as room, and stops after `most` starts. By the
    older rules it may start more while some operation, for which so much more is `held`, could. Then jobs have `extra` room.
    Nothing starts in less room than `spare`, or than the tree spares.
    """
    spare = overlay.view.min_spare if spare is None else spare
    placed: list[Placement] = []
    while most is None or len(placed) < most:
        room = overlay.room if discount is ZERO else overlay.room + discount
        if not (room if held is ZERO else room + held).dominates(spare):
            break
        operation = choose(overlay, room, priority)
        if operation is None:
            break
        job = _job_that_fits(overlay, operation, room, extra) if operation.task_groups else operation.spec.resources
        if job is None:
            overlay.refuse(operation)
        else:
            placed.append(_start(overlay, operation, job, stage))
    return placed


def _job_that_fits(overlay: Overlay, operation: Operation, room: Resources, extra: Extra) -> Resources | None:
    """The size of its first waiting job that fits on the node and under all limits, None without one."""
    most = (room + extra.of_operation(operation)).within(_headroom(overlay, operation, extra))
    for group in operation.task_groups:
        if group.pending > overlay.tasks.get((operation.id, group.job), 0) and most.dominates(group.job):
            return group.job
    return None


def _headroom(overlay: Overlay, operation: Operation, extra: Extra) -> Resources:
    """The most that its own limits and those of the pools above it leave."""
    pools, own = overlay.view.pools, operation.spec.resource_limits
    if overlay.passes_limits:
        own = tolerant_limit(own, operation.spec.resource_limits_overcommit_tolerance, pools.options)
    left = room_below(own, overlay.held(operation) + operation.in_doubt)
    for pool in pools.above(operation.spec.pool):
        limit = pool.limit(pools.options, tolerant=overlay.passes_limits)
        going = extra.below_pools.get(pool.name, ZERO)
        left = left.within(room_below(limit, pool.charged + overlay.pools.get(pool.name, ZERO) - going))
    return left


def _start(overlay: Overlay, operation: Operation, job: Resources, stage: StartStage) -> Placement:
    jobs = jobs_ahead(operation, overlay.view.pace_ms)
    if jobs > 1:
        jobs = max(1, min(jobs, overlay.ready(operation), spare_jobs(overlay, operation)))
    overlay.use(operation, job, jobs)
    if operation.task_groups:
        overlay.tasks[operation.id, job] = overlay.tasks.get((operation.id, job), 0) + 1
    return Placement(operation, jobs, job, stage)


def start_regularly(overlay: Overlay, choose: Choice = next_in_line) -> list[Placement]:
    """Decides what starts in free room. Those of high priority come first where the tree has such."""
    options = overlay.view.pools.options
    if not options.enable_guarantee_priority_scheduling and options.batch_operation_scheduling is None:
        return place(overlay, most=overlay.view.most_starts, choose=choose)
    placed: list[Placement] = []
    for high in (True, False):
        placed += _stage(overlay, choose, len(placed), high=high)
    overlay.consider()
    return placed


def _stage(overlay: Overlay, choose: Choice, before: int, *, high: bool) -> list[Placement]:
    """One stage. Once it started something the batches that follow leave more room free."""
    view, spare = overlay.view, overlay.view.min_spare
    options, most = view.pools.options.batch_operation_scheduling, view.most_starts
    stage = StartStage.REGULAR_HIGH_PRIORITY if high else StartStage.REGULAR_MEDIUM_PRIORITY
    placed: list[Placement] = []
    for batch in view.batches.get(high, ()) if options is not None and view.batches else (None,):
        overlay.consider(batch, high=high)
        left = None if most is None else most - before - len(placed)
        placed += place(overlay, most=left, spare=spare, choose=choose, stage=stage)
        if placed and options is not None:
            spare = options.fallback_min_spare_allocation_resources.whole
    return placed


def jobs_ahead(operation: Operation, pace_ms: int) -> int:
    """The number of jobs that end in two heartbeat round trips, 64 at most. One until their length is measured.

    Example: jobs of 100 ms and a heartbeat each second: 2 * 1000 / 100 = 20.
    """
    mean_ms, ahead_ms = operation.mean_job_ms, ROUND_TRIPS_AHEAD * pace_ms
    if mean_ms >= ahead_ms or operation.task_groups or operation.gang is not None:
        return 1
    return min(LARGEST_ALLOCATION_JOBS, math.ceil(ahead_ms / max(mean_ms, 1.0)))


def spare_jobs(overlay: Overlay, operation: Operation) -> int:
    """The number of its pending jobs that find no place of their own in the tree's free room."""
    free = overlay.view.free_in_tree
    places = operation.spec.resources.times_that_fit(free) if free.dominates(ZERO) else 0
    return overlay.pending(operation) - places
