"""The time at which a job is expected to fit on a node, from the jobs that run there and the allocations that may be preempted."""

from __future__ import annotations

import math
from operator import itemgetter

from headrace.pools.pool_config import PreemptionSwitch
from headrace.resources import ZERO
from headrace.wire.heartbeat import AllocationState
from headrace.wire.snapshots import PreemptionPriority, StarvationStatus
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation


def expected_wait_s(facts: Facts, node: Node, operation: Operation, unknown_s: float) -> float | None:
    """Return the seconds until a job of an operation fits on a node if nothing else starts there. None means that it never fits.

    The length of a job is not known until a job of its operation has ended. Until then, the job is expected to run for `unknown_s` more
    seconds, or for as long again as it has run already if that is longer. A job with a time limit is expected to be killed at the latest
    when its limit and its interruption timeout are over. This function examines each allocation of the node.
    """
    size = operation.spec.resources.or_more(facts.pools.min_spare)
    free = node.free
    if free.dominates(size):
        return 0.0
    if any(one.operation != operation.id for one in node.holds.values()) or not node.total.dominates(size):
        return None
    ends = [
        (_left_s(facts, node, one, operation, unknown_s), one.usage)
        for one in node.allocations.values()
        if one.usage != ZERO
    ]
    for left_s, usage in sorted(ends, key=itemgetter(0)):
        free = free + usage
        if free.dominates(size):
            return left_s
    return None


def _left_s(facts: Facts, node: Node, allocation: Allocation, starving: Operation, unknown_s: float) -> float:
    """Return the seconds until an allocation is expected to be free."""
    operation = facts.operations.get(allocation.operation)
    is_going = allocation.take_back is not None or allocation.state is AllocationState.ENDED
    if operation is None or is_going:
        return 0.0
    exempt_ms = _may_be_taken_in_ms(facts, node, allocation, operation, starving)
    if exempt_ms is not None:
        return exempt_ms / 1000
    ran_s = 0.0 if allocation.job is None else allocation.job.ran_ms(node.boottime_ms) / 1000
    # A job that has run 3 s longer than the mean is expected to run for 3 s more.
    mean_s, is_unknown = operation.mean_job_ms / 1000, math.isinf(operation.mean_job_ms)
    left_s = max(unknown_s, ran_s) if is_unknown else abs(mean_s - ran_s)
    limit_ms = operation.spec.time_limit_ms
    if limit_ms is None:
        return left_s
    return min(left_s, max(0.0, (limit_ms + operation.spec.interruption_timeout_ms) / 1000 - ran_s))


def _may_be_taken_in_ms(
    facts: Facts, node: Node, allocation: Allocation, operation: Operation, starving: Operation
) -> int | None:
    """Return the milliseconds until the allocation may be preempted for the starving operation; None if it may not be preempted."""
    pools = facts.pools
    if starving.preemption_priority is PreemptionPriority.NONE or facts.preemption_paused:
        return None
    if allocation.rest.keeps(allocation, pools.rules) or operation is starving or operation.is_graceful:
        return None
    options = operation.options(pools)
    if options.preemption is not PreemptionSwitch.ON or not options.allow_normal_preemption:
        return None
    starves = operation.starvation is not StarvationStatus.NON_STARVING
    if starves and not pools.options.allow_preemption_from_starving_operations:
        return None
    if not operation.cut_groups(pools).may_be_preemptible(allocation):
        return None
    return allocation.exempt_ms(options.preemption_exempt_time_ms, node.boottime_ms)
