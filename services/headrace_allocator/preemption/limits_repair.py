"""Violated limits: usage above a limit is taken back, beginning with the newest allocation that may be preempted.

Source: section 9.5 of the specification of allocation and preemption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.resources import ZERO
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import exceeds


def victims_above_limits(overlay: Overlay, kept: list[Allocation]) -> Iterator[Allocation]:
    """Free and yield allocations that are above a limit, from the end of the keep order, until no limit is exceeded."""
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
    # Most trees have no operation with limits of its own.
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

    The overcommit tolerance does not count here.
    """
    if operation.limited and exceeds(overlay.held(operation), operation.spec.resource_limits):
        return True
    return any(
        exceeds(pool.used + overlay.pools.get(pool.name, ZERO), pool.most)
        for pool in overlay.view.pools.above(operation.spec.pool)
    )
