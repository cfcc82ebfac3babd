"""The demand of an operation: its usage and everything that it is pending for.

The allocator's figures count as soon as it reports the operation. Until then admission's count: all unfinished jobs are pending.
"""

from __future__ import annotations

import msgspec

from headrace.resources import ZERO, Resources
from headrace.wire.snapshots import UsageItem
from headrace_fair_share.facts.operations import KnownOperation


class Demand(msgspec.Struct, frozen=True, gc=False):
    """The demand and usage of one operation, as amounts."""

    demand: Resources
    usage: Resources
    #: True if a running operation has pending jobs. Only then is the operation schedulable.
    is_pending: bool
    #: Slots that the pending jobs need; resources of the smallest job.
    needed_slots: int = 0
    min_needed: Resources = ZERO


def demand_of(operation: KnownOperation, usage: UsageItem | None, *, was_named: bool) -> Demand:
    """Compute the demand of an operation from the newest usage, if the allocator reports the operation there.

    Without usage, `was_named` distinguishes an operation that the allocator reported before, which has nothing now, from an operation that
    it does not know yet. A suspended operation, or one that is not running, demands only what it still uses.
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
