"""Preemption without a beneficiary: graceful requests, overcommitted nodes, and operations or pools above their limits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from headrace.resources import ZERO
from headrace.wire.preemption import PreemptionReason
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import exceeds
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.preemption.gang_victims import goes_whole
from headrace_allocator.preemption.victims import Preemption, keep_order, pool_allows_preemption


def asked_gracefully(overlay: Overlay) -> Iterator[Preemption]:
    """Yield one request to end for each preemptible allocation of a graceful operation on the node.

    The allocations count as used until they end. Gangs that are preempted as a whole get no request, since the request would concern
    only a part of the gang.
    """
    for allocation in overlay.view.restless:
        operation = overlay.view.operations.get(allocation.operation)
        if operation is None or not operation.is_graceful:
            continue
        if goes_whole(operation, allocation, overlay.view.pools):
            continue
        if allocation.take_back is not None or allocation.preemption is not None:
            continue
        options = operation.options(overlay.view.pools)
        if allocation.exempt_ms(options.preemption_exempt_time_ms, overlay.view.boottime_ms):
            continue
        if pool_allows_preemption(overlay, options) and overlay.group(operation, allocation) is Group.PREEMPTIBLE:
            yield Preemption(allocation, PreemptionReason.GRACEFUL_PREEMPTION, Group.PREEMPTIBLE)


def victims_of_overcommit(overlay: Overlay, groups: Mapping[Allocation, Group]) -> Iterator[Allocation]:
    """Free and yield each allocation that does not fit beside the allocations kept before it.

    `groups` has the group of every allocation of a known operation.
    """
    if overlay.room.dominates(ZERO):
        return
    operations, kept = overlay.view.operations, ZERO
    for allocation in keep_order([one for one in groups if overlay.usage(one) != ZERO], groups):
        if overlay.view.limits.dominates(kept + allocation.usage):
            kept = kept + allocation.usage
        else:
            overlay.free(operations[allocation.operation], allocation)
            yield allocation


def victims_above_limits(overlay: Overlay, kept: list[Allocation]) -> Iterator[Allocation]:
    """Free and yield allocations that are above a limit, until no limit is exceeded.

    `kept` is in the order of `keep_order`. Victims are taken from its end, so the allocations to keep longest are examined last.
    """
    if not _some_limit_is_passed(overlay, kept):
        return
    while kept:
        victim = kept.pop()
        operation = overlay.view.operations[victim.operation]
        if is_above_a_limit(overlay, operation):
            overlay.free(operation, victim)
            yield victim


def needs_repair(overlay: Overlay) -> bool:
    """True if the node is overcommitted, any pool of the tree is above its limit, or an operation on the node is above a limit."""
    view = overlay.view
    if view.pools.exceeded or not overlay.room.dominates(ZERO):
        return True
    # This list is empty on most nodes: few trees have operations with limits of their own.
    limited = [one.operation for one in view.allocations if one.operation in view.limited] if view.limited else ()
    return any(is_above_a_limit(overlay, view.operations[name]) for name in limited)


def _some_limit_is_passed(overlay: Overlay, allocations: Iterable[Allocation]) -> bool:
    """True if a pool, or an operation with one of these allocations, may be above its limit. False on most nodes."""
    pools, limited = overlay.view.pools, overlay.view.limited
    changed = (pools.pool(name) for name in overlay.pools)
    return (
        bool(pools.exceeded)
        or any(exceeds(pool.used + overlay.pools[pool.name], pool.most) for pool in changed if pool.limited)
        or (bool(limited) and any(one.operation in limited for one in allocations))
    )


def is_above_a_limit(overlay: Overlay, operation: Operation) -> bool:
    """True if the operation or a pool above it uses more of a resource than its limit allows.

    Limits count here without their overcommit tolerance.
    """
    if operation.limited and exceeds(overlay.held(operation), operation.spec.resource_limits):
        return True
    return any(
        exceeds(pool.used + overlay.pools.get(pool.name, ZERO), pool.most)
        for pool in overlay.view.pools.above(operation.spec.pool)
    )
