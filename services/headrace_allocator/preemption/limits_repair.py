"""Violated limits: what is used above a limit is taken back, from the newest that may be taken.

Source: section 9.5 of the specification of allocation and preemption.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.pools.amounts import NOTHING, PartialResources
from headrace.resources import ZERO, Resources
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation

__all__ = ["is_above_a_limit", "victims_above_limits"]


def victims_above_limits(overlay: Overlay, kept: list[Allocation]) -> Iterator[Allocation]:
    """Takes from the end of the keep order whatever is above a limit at that moment. It ends once all are repaired."""
    while kept:
        victim = kept.pop()
        operation = overlay.view.operations[victim.operation]
        if is_above_a_limit(overlay, operation):
            overlay.free(operation, victim)
            yield victim


def is_above_a_limit(overlay: Overlay, operation: Operation) -> bool:
    """True if the operation or a pool above it uses more of a resource than its limit. Tolerance does not count here."""
    own = operation.spec.resource_limits
    if own != NOTHING and _exceeds(overlay.held(operation), own):
        return True
    return any(
        _exceeds(pool.used + overlay.pools.get(pool.name, ZERO), pool.most)
        for pool in overlay.view.pools.above(operation.spec.pool)
    )


def _exceeds(used: Resources, limit: PartialResources) -> bool:
    return any(most is not None and has > most for has, most in zip(used.as_tuple(), limit.as_tuple(), strict=True))
