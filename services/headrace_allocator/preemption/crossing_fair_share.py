"""Preempt the allocation that crosses the bound of its operation's fair share, for an operation that is owed a whole job.

An operation is owed a whole job if its fair share still covers one more job. By the published rules the allocation that crosses the bound
is protected, however far its usage goes beyond the bound. So large jobs of other pools can keep a pool from a guarantee that is hardly
larger than one of these jobs. With the option `preempt_at_bound_for_owed_jobs`, a stage that found no other victim also considers this
allocation.

Two rules keep two operations from preempting each other in turn. The operation that starts stays within its fair share. The operation that
loses the allocation has more than its fair share, and so has each pool above it that is not also above the starting operation. So each such
preemption reduces the usage beyond fair shares.
"""

from __future__ import annotations

from typing import Final

from headrace.pools.tree_options import VictimRules
from headrace.resources import EPS
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation

#: Upper bound of the operations that one stage tests. The test finds out whether the allocations that cross a bound free enough resources
#: for a job of the operation.
MOST_ASKED: Final = 8


def may_be_taken_at_bound(overlay: Overlay) -> bool:
    """True if the tree allows the preemption of allocations that cross a bound. The older victim rules (`legacy`) do not support it."""
    options = overlay.view.pools.options
    return options.preempt_at_bound_for_owed_jobs and options.victim_rules is not VictimRules.LEGACY


def crosses_bound(overlay: Overlay, allocation: Allocation) -> bool:
    """True if an allocation crosses the bound of its operation's fair share. The usage of allocations that were freed so far does not
    count.
    """
    operation = overlay.view.operations[allocation.operation]
    return operation.cut_groups(overlay.view.pools).crosses(allocation, overlay.freed_of(operation))


def may_be_preempted_for(overlay: Overlay, allocation: Allocation, starter: Operation) -> bool:
    """True if an allocation that crosses the bound may be preempted for the operation `starter`."""
    pools = overlay.view.pools
    loser = overlay.view.operations[allocation.operation]
    if loser is starter:
        return False
    shared = set(pools.pool(starter.spec.pool).path())
    alone = (pool for pool in pools.pool(loser.spec.pool).path() if pool not in shared)
    return overlay.satisfaction(loser) > 1 + EPS and all(overlay.entry_of_pool(pool)[0] > 1 + EPS for pool in alone)
