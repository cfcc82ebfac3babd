"""Repair a node that has been overcommitted for too long: allocations that fit are kept, all others are preempted.

Groups, starvation and pools protect no allocation here. A smaller allocation may be kept even if a larger one before it is preempted.
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
