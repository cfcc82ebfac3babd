"""The allocation that crosses the bound of its operation's fair share, taken for a job that another operation is owed whole.

By the published rules it is protected, however far it crosses. So a pool may be kept from its guarantee by jobs of others that are
nearly as large as that. With `preempt_at_bound_for_owed_jobs` a stage that found nobody else looks at it, too. Two rules keep such
operations from taking the same place in turn: whoever gets it stays within its fair share, and whoever loses it, with each pool that
is above it alone, has more than its fair share. So what is held beyond shares shrinks with each such preemption.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace.pools.tree_options import VictimRules
from headrace.resources import EPS, Resources
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.decision.placing import Choice
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation

#: Operations that are asked in one stage if what crosses the bounds of others on the node is enough for them.
_MOST_ASKED: Final = 8


def may_be_taken_at_bound(overlay: Overlay) -> bool:
    """True if the tree lets allocations that cross a bound be taken. The older rules of victims do not know them."""
    options = overlay.view.pools.options
    return options.preempt_at_bound_for_owed_jobs and options.victim_rules is not VictimRules.LEGACY


def crosses_bound(overlay: Overlay, allocation: Allocation) -> bool:
    """True if an allocation crosses the bound of its operation's fair share, by what is freed so far."""
    operation = overlay.view.operations[allocation.operation]
    freed = [one for one in overlay.freed if one.operation == operation.id]
    return operation.cut_groups(overlay.view.pools).crosses(allocation, freed)


def goes_for(overlay: Overlay, allocation: Allocation, starter: Operation) -> bool:
    """True if an allocation that crosses the bound may be taken for this operation."""
    pools = overlay.view.pools
    loser = overlay.view.operations[allocation.operation]
    if loser is starter:
        return False
    shared = set(pools.pool(starter.spec.pool).path())
    alone = (pool for pool in pools.pool(loser.spec.pool).path() if pool not in shared)
    return overlay.satisfaction(loser) > 1 + EPS and all(overlay.entry_of_pool(pool)[0] > 1 + EPS for pool in alone)


def choice_of_owed(choose: Choice, there: Callable[[Operation], Resources]) -> Choice:
    """Chooses as `choose` does, of operations for whose next job the room that is `there` for each is enough."""

    def chosen(overlay: Overlay, room: Resources, priority: PreemptionPriority | None) -> Operation | None:
        for _ in range(_MOST_ASKED):
            operation = choose(overlay, room, priority)
            if operation is None or there(operation).dominates(operation.spec.resources):
                return operation
            overlay.refuse(operation)
        return None

    return chosen
