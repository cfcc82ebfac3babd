"""Graceful operations: they are asked to end allocations that are above their fair share. Preemptive stages take nothing from them.

Source: section 10 of the specification of allocation and preemption.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.wire.preemption import PreemptionReason
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.groups import Group
from headrace_allocator.preemption.stages import Preemption
from headrace_allocator.preemption.victims import may_lose
from headrace_allocator.preemption.whole_gangs import goes_whole


def asked_gracefully(overlay: Overlay) -> Iterator[Preemption]:
    """Yield a request for each preemptible allocation of a graceful operation on the node that was not asked before.

    The allocations count as used until they end. Gangs that are preempted as a whole get no request, since it would be for a part of
    them.
    """
    for allocation in overlay.view.restless:
        operation = overlay.view.operations.get(allocation.operation)
        if operation is None or not operation.is_graceful or goes_whole(operation, overlay.view.pools):
            continue
        if allocation.take_back is not None or allocation.preemption is not None:
            continue
        options = operation.options(overlay.view.pools)
        if allocation.exempt_ms(options.preemption_exempt_time_ms, overlay.view.boottime_ms):
            continue
        if may_lose(overlay, options) and overlay.group(operation, allocation) is Group.PREEMPTIBLE:
            yield Preemption(allocation, PreemptionReason.GRACEFUL_PREEMPTION, Group.PREEMPTIBLE)
