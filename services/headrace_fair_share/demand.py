"""The demand of an operation: its usage and all that it waits for.

The allocator's word counts as soon as it names an operation. Until then admission's does, by which all open jobs are pending.
"""

from __future__ import annotations

import msgspec

from headrace.resources import ZERO, Resources
from headrace.wire.snapshots import UsageItem
from headrace_fair_share.facts.operations import KnownOperation


class Demand(msgspec.Struct, frozen=True, gc=False):
    """The demand and usage of one operation, in amounts."""

    demand: Resources
    usage: Resources
    #: True if jobs of a running operation wait for a place; only then it is schedulable.
    is_pending: bool
    #: Slots that the waiting jobs need, and the smallest job.
    needed_slots: int = 0
    min_needed: Resources = ZERO


def demand_of(operation: KnownOperation, usage: UsageItem | None, *, was_named: bool) -> Demand:
    """Works out the demand of an operation from the newest usage, if the allocator names it there.

    Without usage, `was_named` tells an operation that the allocator named before, which now has nothing, from one that it has not
    heard of. An operation that is suspended or not running demands only what it still uses.
    """
    if usage is None:
        if was_named or not operation.takes_part:
            return Demand(ZERO, ZERO, is_pending=False)
        initial = operation.job * operation.initial_jobs
        return Demand(initial, ZERO, operation.initial_jobs > 0, initial.user_slots, operation.job)
    if not operation.takes_part:
        return Demand(usage.usage, usage.usage, is_pending=False)
    demand, needed = usage.usage + usage.precommit + usage.pending, usage.pending.user_slots
    return Demand(demand, usage.usage, usage.pending_jobs > 0, needed, usage.min_needed)
