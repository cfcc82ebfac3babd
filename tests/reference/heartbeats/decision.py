"""Everything that is decided on one heartbeat, in its order. Source: sections 8.1, 9.5 and 11 of the specification."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from headrace.resources import ZERO
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.preemption import PreemptionReason
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.decide import DueSteps, HeartbeatDecision
from headrace_allocator.decision.view import View
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.preemption.victims import Preemption
from tests.reference.heartbeats.placing import extend, start_regularly
from tests.reference.heartbeats.stages import carry_out, run_stages
from tests.reference.heartbeats.state import State
from tests.reference.heartbeats.victims import allows_preemption, exempt_for_ms, goes_whole, groups_of, keep_order

__all__ = ["decide_plainly"]


def decide_plainly(view: View, due: DueSteps, ran: Collection[PreemptionPriority] = ()) -> HeartbeatDecision:
    """Decide on one heartbeat, by the steps that are due. `ran` are the preemptive stages that the allocator ran."""
    state, made, most = State(view), HeartbeatDecision(), view.most_starts
    if due.preempt:
        made.preemptions = list(_asked_gracefully(state))
    made.stages = [outcome for plan in due.plans if (outcome := carry_out(state, plan)) is not None]
    if due.extend:
        made.extensions = extend(state)
    if due.start:
        made.placements = start_regularly(state)
        if due.stages:
            may_start = most is None or len(made.placements) < most
            made.stages += run_stages(state, ran, may_start=may_start)
    if due.repair_overcommit:
        made.preemptions += _of_overcommit(state)
    return made


def _asked_gracefully(state: State) -> Iterator[Preemption]:
    """Yield a request for each preemptible allocation of a graceful operation that was not asked before."""
    asked = [
        one
        for one in state.view.allocations
        if one.take_back is None and one.preemption is None and one.operation in state.view.operations
    ]
    for one, group in groups_of(state, asked).items():
        operation = state.operation_of(one)
        is_graceful = operation.spec.preemption_mode is PreemptionMode.GRACEFUL and not goes_whole(state, one)
        may_go = allows_preemption(state, operation) and not exempt_for_ms(state, one)
        if is_graceful and may_go and group is Group.PREEMPTIBLE:
            yield Preemption(one, PreemptionReason.GRACEFUL_PREEMPTION, group)


def _of_overcommit(state: State) -> Iterator[Preemption]:
    """Yield each allocation that does not fit beside the allocations kept before it."""
    if state.room.dominates(ZERO):
        return
    known = [one for one in state.view.allocations if one.operation in state.view.operations]
    groups, kept = groups_of(state, known), ZERO
    for one in keep_order([one for one in known if state.usage(one) != ZERO], groups):
        if state.view.limits.dominates(kept + one.usage):
            kept = kept + one.usage
        else:
            state.free(one)
            yield Preemption(one, PreemptionReason.RESOURCE_OVERCOMMIT, groups[one])
