"""Normal preemption that took too much: afterwards the operation that lost an allocation has less than it is owed, or a pool has less than
its guarantee.

The check does not share code with the choice of victims, so that it also finds faults in the rules of that choice. The counts start at zero
with each allocator process.
"""

from __future__ import annotations

import enum
from collections import Counter

from headrace.pools.tree_options import PreemptionPolicy, VictimRules
from headrace.resources import EPS, Share
from headrace.runtime.engine import Figure, by_label, counter
from headrace.wire.preemption import PreemptionReason
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolState, PoolStates
from headrace_allocator.facts.preemption_groups import Group


class Left(enum.StrEnum):
    """A state of an operation or a pool that normal preemption should not lead to."""

    OPERATION_BELOW_FAIR_SHARE = "operation_below_fair_share"
    #: Not always a fault: one operation of the pool may be above its fair share while another operation of the pool waits below its own.
    POOL_BELOW_GUARANTEE = "pool_below_guarantee"


class Overreach:
    """Normal preemptions of this term that took too much."""

    def __init__(self) -> None:
        self._counts: Counter[Left] = Counter()

    def note(self, pools: PoolStates, loser: Operation, reason: PreemptionReason, group: Group) -> None:
        """Check an operation that has just lost an allocation of the given group.

        Trees with the older victim rules are not checked, since these rules allow normal preemption to go below a share.
        """
        options = pools.options
        if options.preempt_at_bound_for_owed_jobs and group is not Group.PREEMPTIBLE:
            # With this option, an allocation that crosses the bound is preempted as a whole. So the usage may fall below the bound, and
            # this is no fault.
            return
        if reason is not PreemptionReason.PREEMPTION or options.victim_rules is VictimRules.LEGACY:
            return
        if options.preemption_policy is not PreemptionPolicy.YTSAURUS:
            # The YARN policies compare amounts in another way, so they are not checked.
            return
        threshold = pools.options.preemption_satisfaction_threshold
        kept, wanted = [threshold * share for share in loser.fair_share], loser.demand_share
        if _is_below(loser.held.share_of(pools.total), kept, loser.fair_share, wanted):
            self._counts[Left.OPERATION_BELOW_FAIR_SHARE] += 1
        if any(_is_below_guarantee(pool, pools) for pool in pools.pool(loser.spec.pool).path()):
            self._counts[Left.POOL_BELOW_GUARANTEE] += 1

    def figures(self) -> list[Figure]:
        """Return the metric of preemptions that took too much, by the state in which they left an operation or a pool."""
        says = "Normal preemptions that left an operation below its fair share or a pool below its guarantee."
        family = counter("preempted_too_much", "allocations", 0, says)
        return by_label(family, "preempted_too_much", "left", {left.value: self._counts[left] for left in Left})


def _is_below_guarantee(pool: PoolState, pools: PoolStates) -> bool:
    item = pool.item
    return item is not None and _is_below(
        pool.used.share_of(pools.total), item.strong_guarantee_share, item.fair_share.total, item.demand_share
    )


def _is_below(usage: Share, least: Share | list[float], fair: Share, demand: Share) -> bool:
    """True if the usage is below `least`, or below the demand in resources where the demand is smaller than `least`.

    The usage must be below this bound in every resource in which the fair share is smaller than the demand. If there is no such resource,
    it is enough that the usage is below the bound in one resource.
    """
    below = [min(some, wanted) - used > EPS for used, some, wanted in zip(usage, least, demand, strict=True)]
    helping = [is_below for is_below, owed, wanted in zip(below, fair, demand, strict=True) if owed < wanted]
    return all(helping) if helping else any(below)
