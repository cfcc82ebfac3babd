"""Victims: which allocations of a node may be taken for a stage, in what order, and how many.

The choice is greedy, in one pass from the most preemptible and newest. It stops as soon as the node fits, and is no minimum.
Source: sections 6.9, 9.1, 9.2 and 9.4 of the specification of allocation and preemption.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from headrace.pools.pool_config import Preemption as PreemptionSwitch
from headrace.resources import ZERO
from headrace.wire.heartbeat import AllocationState
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.snapshots import StarvationStatus
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.groups import Group
from headrace_allocator.facts.operations import Operation

__all__ = ["candidates", "keep_order", "may_lose", "victims_until_it_fits"]


def candidates(overlay: Overlay, least: Group) -> list[Allocation]:
    """The allocations of the node that a stage may take. They are of at least this group, and of operations that may lose any."""
    found = []
    for allocation in overlay.view.allocations:
        operation = overlay.view.operations.get(allocation.operation)
        is_going = allocation.take_back is not None or allocation.state is AllocationState.ENDED
        if operation is None or operation.ending or is_going:
            continue
        if overlay.usage(allocation) == ZERO or not may_lose(overlay, operation, least):
            continue
        if _level(overlay, operation, allocation) >= least:
            found.append(allocation)
    return found


def may_lose(overlay: Overlay, operation: Operation, least: Group) -> bool:
    """False for a graceful operation, one that starves itself, and below a pool that forbids plain preemption or any."""
    options, policy = operation.options(overlay.view.pools), overlay.view.pools.options
    if operation.spec.preemption_mode is PreemptionMode.GRACEFUL or options.preemption is not PreemptionSwitch.ON:
        return False
    if least is Group.PREEMPTIBLE and not options.allow_normal_preemption:
        return False
    return operation.starvation is StarvationStatus.NON_STARVING or policy.allow_preemption_from_starving_operations


def keep_order(overlay: Overlay, allocations: Iterable[Allocation]) -> list[Allocation]:
    """Sorts allocations of the node, those first that are kept longest. Groups come first, then the beginning of progress."""

    def place(allocation: Allocation) -> tuple[Group, bool, float]:
        group = overlay.group(overlay.view.operations[allocation.operation], allocation)
        uses_less = group is not Group.PREEMPTIBLE and allocation.usage.cpu < allocation.resources.cpu
        began_ms = allocation.progress_started_ms
        return group, uses_less, math.inf if began_ms is None else began_ms

    return sorted(allocations, key=place)


def victims_until_it_fits(overlay: Overlay, kept: list[Allocation]) -> Iterator[Allocation]:
    """Takes from the end of the keep order, until the node has no less than what is used of it."""
    while kept and not overlay.room.dominates(ZERO):
        victim = kept.pop()
        overlay.free(overlay.view.operations[victim.operation], victim)
        yield victim


def _level(overlay: Overlay, operation: Operation, allocation: Allocation) -> Group:
    """Its group, where a shield against aggressive preemption counts as not preemptible."""
    group = overlay.group(operation, allocation)
    if (
        group is Group.AGGRESSIVELY_PREEMPTIBLE
        and not operation.options(overlay.view.pools).allow_aggressive_preemption
    ):
        return Group.NON_PREEMPTIBLE
    return group
