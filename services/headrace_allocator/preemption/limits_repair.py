"""Violated limits: what is used above a limit is taken back, from the newest that may be taken.

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
    """Takes from the end of the keep order whatever is above a limit at that moment. It ends once all are repaired."""
    if not _some_limit_is_passed(overlay, kept):
        return
    while kept:
        victim = kept.pop()
        operation = overlay.view.operations[victim.operation]
        if is_above_a_limit(overlay, operation):
            overlay.free(operation, victim)
            yield victim


def needs_repair(overlay: Overlay) -> bool:
    """True if the node is overcommitted, or some pool, or an operation on the node, is above its limit."""
    view = overlay.view
    if view.pools.exceeded or not overlay.room.dominates(ZERO):
        return True
    # Most trees have no operation with limits.
    limited = [one.operation for one in view.allocations if one.operation in view.limited] if view.limited else ()
    return any(is_above_a_limit(overlay, view.operations[name]) for name in limited)


def _some_limit_is_passed(overlay: Overlay, allocations: Iterable[Allocation]) -> bool:
    """True if some pool, or an operation that has one of these, may be above its limit. Most nodes have nothing of the kind."""
    pools, limited = overlay.view.pools, overlay.view.limited
    changed = (pools.pool(name) for name in overlay.pools)
    return (
        bool(pools.exceeded)
        or any(exceeds(pool.used + overlay.pools[pool.name], pool.most) for pool in changed if pool.limited)
        or (bool(limited) and any(one.operation in limited for one in allocations))
    )


def is_above_a_limit(overlay: Overlay, operation: Operation) -> bool:
    """True if the operation or a pool above it uses more of a resource than its limit. Tolerance does not count here."""
    if operation.limited and exceeds(overlay.held(operation), operation.spec.resource_limits):
        return True
    return any(
        exceeds(pool.used + overlay.pools.get(pool.name, ZERO), pool.most)
        for pool in overlay.view.pools.above(operation.spec.pool)
    )
