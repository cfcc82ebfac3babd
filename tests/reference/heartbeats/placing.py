"""What starts in free resources, and which allocations get more jobs or are given back.

Source: sections 8.2 and 8.4 of the specification of allocation and preemption.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from headrace.resources import EPS, ZERO, Resources
from headrace.wire.heartbeat import LARGEST_ALLOCATION_JOBS, AllocationState
from headrace.wire.snapshots import PreemptionPriority
from headrace.wire.start_stages import StartStage
from headrace_allocator.decision.extending import Extension, GiveBack
from headrace_allocator.decision.placing import Placement
from headrace_allocator.decision.scheduling_order import Batch
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation
from tests.reference.heartbeats.choosing import accepts_size, ends_in_time, next_operation, within_limits
from tests.reference.heartbeats.state import State

__all__ = ["extend", "place", "start_regularly"]


def place(
    state: State,
    stage: StartStage,
    priority: PreemptionPriority | None = None,
    *,
    discount: Resources = ZERO,
    more: Resources = ZERO,
    there: Callable[[Operation], Resources | None] | None = None,
    spare: Resources | None = None,
    most: int | None = None,
    most_refused: int | None = None,
) -> list[Placement]:
    """Start operations as long as a job fits, at most `most`, and not with less than `spare` (by default the tree's minimum).

    `discount` is the amount that preemption can free, and `more` the most that it can free for a single operation in addition
    (`State.more_room`). If it frees less than `discount` for some operations, `there` returns the resources that are available to an
    operation, and None if it may have none. After `most_refused` such operations no further one is tried.
    """
    spare = state.view.min_spare if spare is None else spare
    placed: list[Placement] = []
    refused = 0
    while (most is None or len(placed) < most) and refused != most_refused:
        room = state.room + discount
        operation = next_operation(state, room, priority) if (room + more).dominates(spare) else None
        if operation is None:
            break
        is_lent = priority is None and ends_in_time(state, operation)
        available = room if there is None else there(operation)
        fitting = _job_that_fits(state, operation, available, is_lent=is_lent, preempts=priority is not None)
        if fitting is None:
            state.refused.add(operation.id)
            refused += 1
            continue
        jobs = 1 if ends_in_time(state, operation) else jobs_ahead(state, operation)
        if jobs > 1:
            jobs = max(1, min(jobs, state.ready(operation), _jobs_beyond_the_tree(state, operation)))
        size, task = fitting
        state.start(operation, size, jobs, task)
        placed.append(Placement(operation, jobs, size, stage, task))
    return placed


def _job_that_fits(
    state: State, operation: Operation, room: Resources | None, *, is_lent: bool, preempts: bool
) -> tuple[Resources, int | None] | None:
    """Return size and task of the first ready job that fits beside a reserved job and stays within all limits."""
    if room is None:
        return None
    room = room + state.more_room(operation)
    if state.reserved is not None and state.reserved is not operation and not is_lent:
        room = room - state.reserved.spec.resources
    found: list[tuple[Resources, int | None]] = [(operation.spec.resources, None)]
    if operation.kinds:
        found = [
            (operation.kinds[number].resources, number) for number in state.ready_tasks(operation, preempts=preempts)
        ]
    return next(
        (job for job in found if room.dominates(job[0]) and within_limits(state, operation, job[0])),
        None,
    )


def start_regularly(state: State) -> list[Placement]:
    """Start jobs in free resources: in a tree with high priority or batches, stage by stage and batch by batch."""
    view, options = state.view, state.view.pools.options
    batching = options.batch_operation_scheduling
    if not options.enable_guarantee_priority_scheduling and batching is None:
        return place(state, StartStage.REGULAR_MEDIUM_PRIORITY, most=view.most_starts)
    placed: list[Placement] = []
    for high in (True, False):
        stage = StartStage.REGULAR_HIGH_PRIORITY if high else StartStage.REGULAR_MEDIUM_PRIORITY
        of_stage, spare = 0, view.min_spare
        batches = view.batches.get(high, ()) if batching is not None and view.batches else (None,)
        for batch in batches:
            state.begin_stage(_in_batch(state, batch, high=high))
            left = None if view.most_starts is None else view.most_starts - len(placed)
            found = place(state, stage, spare=spare, most=left)
            placed, of_stage = placed + found, of_stage + len(found)
            if of_stage and batching is not None:
                spare = batching.fallback_min_spare_allocation_resources.whole
    state.begin_stage()
    return placed


def _in_batch(state: State, batch: Batch | None, *, high: bool) -> Callable[[Operation], bool]:
    uses_priority = state.view.pools.options.enable_guarantee_priority_scheduling

    def takes_part(operation: Operation) -> bool:
        is_high = uses_priority and _is_below_its_promise(operation)
        return is_high is high and (batch is None or operation.id in batch.operations)

    return takes_part


def _is_below_its_promise(operation: Operation) -> bool:
    """True if the operation had less than it is promised, in every resource of which more would help."""
    share = operation.share
    if share is None:
        return False
    short = [promised - used > EPS for promised, used in zip(share.promised_fair_share, share.usage_share, strict=True)]
    helps = [fair < wanted for fair, wanted in zip(share.fair_share.total, share.demand_share, strict=True)]
    return all(one for one, more in zip(short, helps, strict=True) if more) if any(helps) else any(short)


def jobs_ahead(state: State, operation: Operation) -> int:
    """Return the number of jobs that end in two round trips, at least 1 and at most 64."""
    mean_ms, ahead_ms = operation.mean_job_ms, 2 * state.view.pace_ms
    if state.view.allowed.one_job or operation.id in state.view.allowed.once:
        return 1
    if mean_ms >= ahead_ms or operation.kinds or operation.gang is not None:
        return 1
    return min(LARGEST_ALLOCATION_JOBS, math.ceil(ahead_ms / max(mean_ms, 1.0)))


def _jobs_beyond_the_tree(state: State, operation: Operation) -> int:
    """Return how many pending jobs do not fit into the free resources of the whole tree."""
    free = state.view.free_in_tree
    fit = operation.spec.resources.times_that_fit(free) if free.dominates(ZERO) else 0
    return operation.slots.pending_count - state.given[operation.id] - fit


def extend(state: State) -> list[Extension | GiveBack]:
    """Decide for each allocation of the node whether it gets more jobs or is given back."""
    decided: list[Extension | GiveBack] = []
    for one in state.view.allocations:
        operation = state.view.operations.get(one.operation)
        if operation is None or one.take_back is not None or one.state is not AllocationState.RUNNING:
            continue
        ahead = jobs_ahead(state, operation)
        if (
            operation.suspended
            or not operation.schedulable
            or not accepts_size(state, operation)
            or (len(one.slots) <= 1 and ahead == 1)
        ):
            continue
        jobs = 0
        if ahead > 1:
            jobs = min(ahead - one.unstarted, state.ready(operation), _jobs_beyond_the_tree(state, operation))
        if jobs <= 0 and not one.unstarted:
            continue
        allowed = state.view.allowed
        is_held_back = allowed.is_held or operation.id in allowed.avoided or operation.id in allowed.once
        # A reserved node drains, and so does a node on which jobs fail.
        if is_held_back or state.reserved not in (None, operation) or _is_owed_to_another(state, operation, one):
            decided += [GiveBack(one)] if one.unstarted else []
        elif jobs > 0:
            state.given[operation.id] += jobs
            decided.append(Extension(one, jobs))
    return decided


def _is_owed_to_another(state: State, operation: Operation, one: Allocation) -> bool:
    """True if the operation or a pool above has too much, and an operation that has too little would get the resources."""
    if all(satisfied <= 1 + EPS for satisfied in _satisfactions(state, operation)):
        return False
    state.use(operation, ZERO - one.resources)
    other = next_operation(state, state.room)
    state.use(operation, one.resources)
    if other is None or other is operation:
        return False
    return _apart(state, operation, other) > 1 + EPS and _apart(state, other, operation) < 1 - EPS


def _satisfactions(state: State, operation: Operation, without: Operation | None = None) -> Iterator[float]:
    """Yield the satisfaction of the operation, then of the pools above it that go by their own satisfaction, from the lowest up.

    Pools above the operation `without` are left out.
    """
    yield state.satisfaction(operation)
    shared = state.above(without) if without is not None else []
    for pool in state.above(operation):
        options = None if pool.item is None else pool.item.options
        if pool not in shared and options is not None and options.use_pool_satisfaction_for_scheduling:
            yield state.satisfaction_of_pool(pool)


def _apart(state: State, operation: Operation, other: Operation) -> float:
    """Return the satisfaction at the highest level at which the two operations differ."""
    return list(_satisfactions(state, operation, without=other))[-1]
