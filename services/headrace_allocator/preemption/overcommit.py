"""A node that has been overcommitted for too long: what fits is kept, the rest goes.

No group, starvation or pool protects here. A smaller allocation may stay though a larger one before it goes.
Source: section 11 of the specification of allocation and preemption.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.resources import ZERO
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.groups import Group
from headrace_allocator.preemption.victims import keep_order


def victims_of_overcommit(overlay: Overlay, groups: Mapping[Allocation, Group]) -> Iterator[Allocation]:
    """Takes each allocation that does not fit beside those that are kept before it. Each of a known operation has a group."""
    if overlay.room.dominates(ZERO):
        return
    operations, kept = overlay.view.operations, ZERO
    for allocation in keep_order([one for one in groups if overlay.usage(one) != ZERO], groups):
        if overlay.view.limits.dominates(kept + allocation.usage):
            kept = kept + allocation.usage
        else:
            overlay.free(operations[allocation.operation], allocation)
            yield allocation
