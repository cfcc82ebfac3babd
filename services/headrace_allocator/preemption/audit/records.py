"""The record of a preemption: which operation benefits, which rule allowed it, and what the losing operation keeps."""

from __future__ import annotations

from typing import Final

from headrace.ids import OperationId
from headrace.pools.effective_options import EffectiveOptions
from headrace.pools.tree_options import PreemptionPolicy
from headrace.resources import ZERO, Resources
from headrace.runtime.engine import Moment
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolStates
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.preemption.victims import Preemption

#: Reasons for which an allocation is preempted regardless of its group.
_WHATEVER_THE_GROUP: Final = frozenset({PreemptionReason.RESOURCE_OVERCOMMIT, PreemptionReason.POOL_SHORTAGE})


def record_of(
    preemption: Preemption,
    victim: Operation,
    pools: PoolStates,
    now: Moment,
    *,
    boottime_ms: int = 0,
    observed: bool = False,
    gone: Resources = ZERO,
) -> PreemptionRecord:
    """Return the record of a preemption. Call it before the allocation is removed from the usage of the operation `victim`.

    For an `observed` preemption, `gone` is the amount that earlier observed preemptions of the same decision would have taken from
    `victim`. `boottime_ms` is the CLOCK_BOOTTIME of the allocation's node.
    """
    options, beneficiary = victim.options(pools), preemption.beneficiary
    graceful = preemption.reason is PreemptionReason.GRACEFUL_PREEMPTION
    own_timeout_ms = (
        options.allocation_graceful_preemption_timeout_ms if graceful else options.allocation_preemption_timeout_ms
    )
    before = victim.held - gone
    left = before - preemption.allocation.usage
    job, exempt_time_ms = preemption.allocation.job, _exempt_time_ms(preemption, options, pools)
    return PreemptionRecord(
        reason=preemption.reason,
        beneficiary=OperationId("") if beneficiary is None else beneficiary.id,
        properly=preemption.properly,
        decided_at_ms=now.wall_ms,
        timeout_ms=own_timeout_ms if preemption.timeout_ms is None else preemption.timeout_ms,
        group=preemption.group,
        threshold=_threshold(preemption, pools),
        fair_share=victim.fair_share,
        share_before=before.share_of(pools.total),
        share_after=(left if left.dominates(ZERO) else before).share_of(pools.total),
        observed=observed,
        exempt_time_ms=exempt_time_ms,
        ran_ms=job.ran_ms(boottime_ms) if job is not None and exempt_time_ms else 0,
    )


def _exempt_time_ms(preemption: Preemption, options: EffectiveOptions, pools: PoolStates) -> int:
    """Return the exempt time that applied, in milliseconds.

    It is 0 for a preemption that repairs a node or a limit, and under a YARN policy, since the exempt time does not count in these cases.
    """
    is_for_others = preemption.beneficiary is not None or preemption.reason is PreemptionReason.GRACEFUL_PREEMPTION
    counts = is_for_others and pools.options.preemption_policy is PreemptionPolicy.YTSAURUS
    return options.preemption_exempt_time_ms if counts else 0


def _threshold(preemption: Preemption, pools: PoolStates) -> float:
    """Return the satisfaction threshold that defines the group of the preempted allocation, or 0 if no threshold applies."""
    if preemption.reason in _WHATEVER_THE_GROUP or preemption.group is Group.NON_PREEMPTIBLE:
        return 0.0
    if preemption.group is Group.PREEMPTIBLE:
        return pools.options.preemption_satisfaction_threshold
    return pools.options.aggressive_preemption_satisfaction_threshold
