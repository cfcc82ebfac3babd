"""Which operation gets the next allocation on a node, by looking at every operation.

Source: sections 1.4, 8.3, 8.5 and 8.6 of the specification of allocation and preemption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.node_filter import matches
from headrace.pools.pool_config import FifoPoolSchedulingOrder
from headrace.resources import EPS, RESOURCE_NAMES, ZERO, Resources
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.operations import OperationState
from headrace.wire.snapshots import PreemptionPriority, SchedulingStatus, ShareItem
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolState
from tests.reference.heartbeats.state import State, gang_may_start, ready_in_gang

__all__ = ["accepts_size", "ends_in_time", "may_start_one_more", "next_operation", "within_limits"]

#: Satisfaction, share of the dominant resource above the fair share, rank, arrival number, name.
_Place = tuple[float, float, int, int, str]


class _Child(msgspec.Struct, frozen=True):
    """A child of a pool, with the operation that would be chosen below it and the satisfaction that counts for the pool above."""

    place: _Place
    satisfied: float
    operation: Operation


def next_operation(state: State, room: Resources, priority: PreemptionPriority | None = None) -> Operation | None:
    """Return the operation whose job comes first and fits into `room`. With `priority`, only operations of this priority take part.

    On a reserved node the operation with the reservation comes first. All others may have what its job leaves, and without preemption also
    what is free until its job is expected to fit.
    """
    reserved = state.reserved
    if reserved is not None and _is_able(state, reserved, room, priority):
        return reserved
    beside = room if reserved is None else room - reserved.spec.resources
    able = [
        one
        for one in state.view.operations.values()
        if _is_able(state, one, beside, priority)
        or (priority is None and ends_in_time(state, one) and _is_able(state, one, room, priority))
    ]
    best = _best_below(state, state.view.pools.root, able)
    return None if best is None else best.operation


def ends_in_time(state: State, one: Operation) -> bool:
    """True if a job of the operation ends, kill included, before the operation with the reservation needs the node."""
    spec = one.spec
    if spec.time_limit_ms is None or one.gang is not None or state.reserved is None or state.reserved is one:
        return False
    return spec.time_limit_ms + spec.interruption_timeout_ms <= state.view.lent_ms


def _is_able(state: State, one: Operation, room: Resources, priority: PreemptionPriority | None) -> bool:
    """True if a job of the operation may start in `room`, in the present stage."""
    view = state.view
    if priority not in (None, one.preemption_priority) or one.id in state.refused or not state.takes_part(one):
        return False
    if state.avoids_node(one) or not (room + state.more_room(one)).dominates(one.min_needed):
        return False
    # One gang gathers resources at a time. Other jobs of its operation need not wait.
    if not state.has_turn(one) and one.slots.ready_count == ready_in_gang(one):
        return False
    if not all(matches(formula, view.tags) for formula in filters_of(state, one)):
        return False
    # An operation that could start nothing before still cannot after allocations of it are freed.
    return _may_start(state, one, one.slots.ready_count, one.held) and may_start_one_more(state, one)


def filters_of(state: State, one: Operation) -> list[str]:
    """Return the formulas over tags that a node must match to run jobs of the operation."""
    options = [pool.item.options for pool in state.above(one)[:1] if pool.item is not None]
    above = [formula for each in options if each is not None for formula in each.scheduling_tag_filters]
    return [*above, *one.spec.node_filters]


def may_start_one_more(state: State, one: Operation) -> bool:
    """True if the operation and the limits of the pools above it allow one more job, on any node."""
    return _may_start(state, one, state.ready(one), state.held(one)) and within_limits(state, one, one.min_needed)


def _may_start(state: State, one: Operation, ready: int, held: Resources) -> bool:
    """True if the operation's own state and limits allow one more job, with `ready` jobs to give out and `held` on nodes."""
    share, spec = one.share, one.spec
    if one.state is not OperationState.RUNNING or one.suspended or ready <= 0:
        return False
    if not gang_may_start(one) and ready <= ready_in_gang(one):
        return False
    if not accepts_size(state, one):
        return False
    if share is None or share.parent != spec.pool:
        return False
    is_below = share.scheduling_status is SchedulingStatus.BELOW_FAIR_SHARE
    if spec.preemption_mode is PreemptionMode.GRACEFUL and not is_below:
        return False
    wanted = zip(share.demand_share, one.total.as_tuple(), (held + one.min_needed).as_tuple(), strict=True)
    if one.total != ZERO and any(needed > int(part * whole + 0.5) for part, whole, needed in wanted):
        return False
    # Only an operation that is owed nothing and wanted more than it had may stand too far back in its fifo pool.
    waits_in_vain = share.demand_share != share.usage_share and max(share.fair_share.total) <= EPS
    if share.fifo_index is not None and not share.schedulable and waits_in_vain:
        return False
    return _is_within(held + one.in_doubt + one.min_needed, spec.resource_limits, _own_tolerance(one), state)


def accepts_size(state: State, one: Operation) -> bool:
    """True if the bounds of the operation's pool, which include those of all pools above it, let jobs of these sizes start."""
    told = [pool.item.options for pool in state.above(one)[:1] if pool.item is not None]
    bounds = next((options for options in told if options is not None), None) or state.view.pools.options
    return all(
        _lies_between(bounds.min_job_resource_limits, size, bounds.max_job_resource_limits) for size in one.spec.sizes
    )


def _lies_between(least: PartialResources, size: Resources, most: PartialResources) -> bool:
    triples = zip(least.as_tuple(), size.as_tuple(), most.as_tuple(), strict=True)
    return all((low is None or low <= has) and (high is None or has <= high) for low, has, high in triples)


def within_limits(state: State, one: Operation, size: Resources) -> bool:
    """True if one more job of this size stays within the limits of the operation and of all pools above it."""
    limits = [(state.held(one) + one.in_doubt, one.spec.resource_limits, _own_tolerance(one))]
    for pool in state.above(one):
        if pool.item is not None:
            options = pool.item.options
            tolerance = None if options is None else options.resource_limits_overcommit_tolerance
            limits.append((state.charged(pool), pool.item.limits, tolerance))
    return all(_is_within(used + size, limit, tolerance, state) for used, limit, tolerance in limits)


def _own_tolerance(one: Operation) -> PartialResources | None:
    starves = one.preemption_priority is not PreemptionPriority.NONE
    return one.spec.resource_limits_overcommit_tolerance if starves else None


def _is_within(used: Resources, limit: PartialResources, tolerance: PartialResources | None, state: State) -> bool:
    """True if the usage is within a limit. Preemptive stages add the tolerance; None if the limit has none."""
    if not state.tolerant or tolerance is None:
        tolerance = NOTHING
    elif state.view.pools.options.enable_infinite_resource_limits_overcommit:
        return True
    triples = zip(used.as_tuple(), limit.as_tuple(), tolerance.whole.as_tuple(), strict=True)
    return all(most is None or has <= most + extra for has, most, extra in triples)


def _best_below(state: State, pool: PoolState, able: Iterable[Operation]) -> _Child | None:
    """Return the child of a pool that comes first, among the children with an operation that may start."""
    return min(_children(state, pool, able), key=lambda child: child.place, default=None)


def _children(state: State, pool: PoolState, able: Iterable[Operation]) -> Iterator[_Child]:
    below: dict[PoolState, list[Operation]] = {}
    for one in able:
        way = [*state.above(one), state.view.pools.root]
        if way[0] is pool:
            satisfied = state.satisfaction(one)
            yield _Child(_place_in_pool(state, pool, one, satisfied), satisfied, one)
        else:
            below.setdefault(way[way.index(pool) - 1], []).append(one)
    for child, operations in below.items():
        best = _best_below(state, child, operations)
        assert best is not None
        options = None if child.item is None else child.item.options
        by_itself = options is not None and options.use_pool_satisfaction_for_scheduling
        satisfied = state.satisfaction_of_pool(child) if by_itself else best.satisfied
        rank = 0 if child.item is None else child.item.rank
        yield _Child((satisfied, _excess_of_pool(state, child), rank, 0, child.name), satisfied, best.operation)


def _place_in_pool(state: State, pool: PoolState, one: Operation, satisfied: float) -> _Place:
    """Return the operation's place among the children of its pool. A pool that keeps fifo order goes by the rank alone."""
    item = pool.item
    keeps_order = (
        item is not None
        and item.options is not None
        and item.options.fifo_pool_scheduling_order is FifoPoolSchedulingOrder.FIFO
    )
    if keeps_order and one.share is not None and one.share.fifo_index is not None:
        return (0.0, 0.0, one.rank, one.arrival, one.id)
    return (satisfied, _excess(one.share, state.held(one), one.total), one.rank, one.arrival, one.id)


def _excess_of_pool(state: State, pool: PoolState) -> float:
    return _excess(pool.item, state.used(pool), state.view.pools.total)


def _excess(item: ShareItem | None, used: Resources, total: Resources) -> float:
    """Return the share of the dominant resource that is used above the fair share."""
    if item is None:
        return 0.0
    at = RESOURCE_NAMES.index(item.dominant_resource)
    return used.share_of(total)[at] - item.fair_share.total[at]
