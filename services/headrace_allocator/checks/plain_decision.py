"""The decision of a heartbeat, made plainly: what starts, what is preempted, and in which order.

It remembers nothing from call to call, looks at every allocation of the node, and cuts groups from scratch. It is slow and easily seen to
be right, so the quick way is compared with it. It reads the same view, and writes to an overlay of its own.

Source: sections 8.1, 9.1 to 9.5 and 11 of the specification of allocation and preemption.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from headrace.pools.pool_config import PreemptionSwitch
from headrace.pools.tree_options import VictimRules
from headrace.resources import ZERO, Resources
from headrace.wire.heartbeat import AllocationState
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.preemption import PreemptionReason
from headrace.wire.snapshots import PreemptionPriority, StarvationStatus
from headrace_allocator.decide import DueSteps, HeartbeatDecision
from headrace_allocator.decision.extending import extend
from headrace_allocator.decision.holding_back import held_back, pool_limit_reached
from headrace_allocator.decision.placing import Choice, start_regularly
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.groups import Group
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolState, exceeds
from headrace_allocator.preemption.at_bound import crosses_bound, may_be_taken_at_bound
from headrace_allocator.preemption.legacy import blocking_ancestor, held_for
from headrace_allocator.preemption.repairs import asked_gracefully
from headrace_allocator.preemption.stages import (
    STAGES,
    PreemptiveStage,
    StageOutcome,
    run_for_few_nodes,
    start_with_crossing,
    starves_itself,
)
from headrace_allocator.preemption.victims import Candidates, Preemption
from headrace_allocator.preemption.whole_gangs import goes_whole, may_go_whole
from headrace_allocator.preemption.yarn.execution import carried_out

#: Upper bound of the allocations cut from scratch in one go: some 10 ms. In larger operations the group is taken from the facts, which
#: the allocator's own checks compare with a cut from scratch.
_MOST_CUT: Final = 5_000


def decide_plainly(
    overlay: Overlay, due: DueSteps, choose: Choice, ran: Collection[PreemptionPriority] = ()
) -> HeartbeatDecision:
    """Decide on one heartbeat, without what is only observed or only reported. `choose` selects the next operation.

    `ran` are the priorities of the stages that the quick way ran. The aggressive stage runs if an operation certainly has a job for it,
    or if it is in `ran`: even without a start it may repair limits.
    """
    made = HeartbeatDecision()
    if due.preempt:
        made.preemptions = list(asked_gracefully(overlay))
    made.stages = [outcome for plan in due.plans if (outcome := carried_out(overlay, plan)) is not None]
    if due.extend:
        made.extensions = extend(overlay, choose)
    if due.start:
        most = overlay.view.most_starts
        made.placements = start_regularly(overlay, choose)
        if due.stages:
            may_start = most is None or len(made.placements) < most
            made.stages += _stages(overlay, choose, ran, may_start=may_start)
    if due.repair_overcommit:
        made.preemptions += _of_overcommit(overlay)
    return made


def _stages(
    overlay: Overlay, choose: Choice, ran: Collection[PreemptionPriority], *, may_start: bool
) -> Iterator[StageOutcome]:
    overlay.pass_limits(overlay.view.pools.options.victim_rules is not VictimRules.LEGACY)
    for stage in STAGES:
        starves = may_start and any(_waits(overlay, one, stage.priority) for one in overlay.view.operations.values())
        if stage.priority is PreemptionPriority.AGGRESSIVE and not (starves or stage.priority in ran):
            continue
        outcome = _run(overlay, stage, choose, starves=may_start)
        yield outcome
        if outcome.placement is not None:
            break
    else:
        yield from run_for_few_nodes(overlay, choose, STAGES if may_start else ())
    overlay.pass_limits(False)


def _waits(overlay: Overlay, operation: Operation, priority: PreemptionPriority) -> bool:
    """True if the operation is of this priority and certainly has a job that may start somewhere."""
    if operation.preemption_priority is not priority:
        return False
    pools = overlay.view.pools
    why = held_back(operation, operation.slots.ready_count, operation.held, tolerant_in=pools)
    return why is None and pool_limit_reached(operation, pools, tolerant=True) is None


def _run(overlay: Overlay, stage: PreemptiveStage, choose: Choice, *, starves: bool) -> StageOutcome:
    found, room = _candidates(overlay, stage.least), overlay.room
    discount = Resources.sum(one.usage for one in found.free)
    placement, of_gang, crossing = (
        start_with_crossing(overlay, stage, found, discount, choose) if starves else (None, [], [])
    )
    starter = None if placement is None else placement.operation
    repairs = found.to_repair()
    may_go = repairs if starter is None else [*found.free, *crossing, *held_for(overlay, found.held, starter)]
    groups = dict(found.groups)
    left = _keep_order([one for one in may_go if one not in of_gang], groups)
    for one in of_gang:
        _take(overlay, one)
    taken: list[Allocation] = []
    while left and min(overlay.room.as_tuple()) < 0:
        taken.append(_take(overlay, left.pop()))
    if overlay.view.pools.options.drop_needless_victims:
        for one in sorted(taken, key=_began_ms):
            if overlay.room.dominates(one.usage):
                overlay.keep(overlay.view.operations[one.operation], one)
                taken.remove(one)
                left.append(one)
        left = _keep_order(left, _cut(overlay, left))
    if starter is not None and found.exempt:
        left = _keep_order([*left, *found.exempt], groups)
    properly = starter is not None and starves_itself(starter, stage.priority)
    preemptions = [Preemption(one, stage.reason, groups[one], starter, properly) for one in (*of_gang, *taken)]
    for one in reversed(left):
        # By the legacy victim rules, an allocation held for a pool is not taken to repair limits.
        if one in repairs and _is_above_a_limit(overlay, overlay.view.operations[one.operation]):
            _take(overlay, one)
            preemptions.append(Preemption(one, PreemptionReason.RESOURCE_LIMITS_VIOLATED, groups[one]))
    return StageOutcome(stage, starves, placement, preemptions, len(found.free), discount, room, ZERO, {})


def _candidates(overlay: Overlay, least: Group) -> Candidates:
    """Return the preemption candidates by sections 6.9, 9.1 and 9.2, and with the legacy victim rules by section 9.3."""
    found = Candidates([], {}, {}, {})
    view, policy = overlay.view, overlay.view.pools.options
    groups = _cut(overlay, [one for one in view.allocations if _is_there(overlay, one)])
    for one, group in groups.items():
        operation = view.operations[one.operation]
        options = operation.options(view.pools)
        is_aggressive = group is Group.AGGRESSIVELY_PREEMPTIBLE
        crosses = group < least and not goes_whole(operation, view.pools) and _crosses(overlay, one, least)
        if (group < least and not crosses) or (is_aggressive and not options.allow_aggressive_preemption):
            continue
        if options.preemption is not PreemptionSwitch.ON:
            continue
        if least is Group.PREEMPTIBLE and not options.allow_normal_preemption:
            continue
        shield, exempt_ms = (
            _shield(overlay, operation, least),
            one.exempt_ms(options.preemption_exempt_time_ms, view.boottime_ms),
        )
        if crosses:
            if shield is not None or exempt_ms:
                continue
            found.crossing.append(one)
        elif shield is None and exempt_ms:
            found.exempt[one] = exempt_ms
        elif shield is None and goes_whole(operation, view.pools):
            if may_go_whole(operation):
                found.gangs.setdefault(operation, []).append(one)
        elif shield is None:
            found.free.append(one)
        elif (
            not isinstance(shield, PoolState) or exempt_ms or is_aggressive or not policy.enable_conditional_preemption
        ):
            continue
        else:
            found.held.setdefault(shield.name, []).append(one)
        found.groups[one] = group
    return found


def _crosses(overlay: Overlay, one: Allocation, least: Group) -> bool:
    """True if the allocation crosses the bound of its operation's share, and the normal stage may take it for that."""
    return least is Group.PREEMPTIBLE and may_be_taken_at_bound(overlay) and crosses_bound(overlay, one)


def _is_there(overlay: Overlay, one: Allocation) -> bool:
    """True if an allocation uses something, is not being taken back, and belongs to an operation that may lose it."""
    operation = overlay.view.operations.get(one.operation)
    if operation is None or one in overlay.freed or one.usage == ZERO:
        return False
    if one.take_back is not None or one.state is AllocationState.ENDED:
        return False
    is_graceful = operation.spec.preemption_mode is PreemptionMode.GRACEFUL
    return not is_graceful and (operation.schedulable or not operation.ending)


def _shield(overlay: Overlay, operation: Operation, least: Group) -> Operation | PoolState | None:
    policy = overlay.view.pools.options
    if policy.victim_rules is VictimRules.LEGACY:
        return blocking_ancestor(overlay, operation, least)
    starves = operation.starvation is not StarvationStatus.NON_STARVING
    return operation if starves and not policy.allow_preemption_from_starving_operations else None


def _cut(overlay: Overlay, allocations: Iterable[Allocation]) -> dict[Allocation, Group]:
    """Return the group of each allocation, cut from scratch. The operations must be known."""
    by_operation: dict[Operation, list[Allocation]] = {}
    allocations = list(allocations)
    for one in allocations:
        by_operation.setdefault(overlay.view.operations[one.operation], []).append(one)
    groups: dict[Allocation, Group] = {}
    most = _MOST_CUT
    for operation, ones in by_operation.items():
        everything = operation.cut_groups(overlay.view.pools)
        if len(everything) > most:
            groups.update((one, overlay.group(operation, one)) for one in ones)
        else:
            most -= len(everything)
            groups.update(everything.groups_without(overlay.freed))
    return {one: groups[one] for one in allocations}


def _keep_order(allocations: Iterable[Allocation], groups: dict[Allocation, Group]) -> list[Allocation]:
    """Return the allocations in the order of section 9.4, the best protected first."""
    kept = sorted(allocations, key=_began_ms)
    kept.sort(key=lambda one: groups[one] is not Group.PREEMPTIBLE and one.usage.cpu < one.resources.cpu)
    kept.sort(key=lambda one: groups[one])
    return kept


def _of_overcommit(overlay: Overlay) -> Iterator[Preemption]:
    """Yield the preemptions of section 11: allocations that do not fit beside the allocations kept before them."""
    if min(overlay.room.as_tuple()) >= 0:
        return
    known = [one for one in overlay.view.allocations if one.operation in overlay.view.operations]
    groups, kept = _cut(overlay, known), ZERO
    for one in _keep_order([one for one in known if overlay.usage(one) != ZERO], groups):
        if overlay.view.limits.dominates(kept + one.usage):
            kept = kept + one.usage
        else:
            yield Preemption(_take(overlay, one), PreemptionReason.RESOURCE_OVERCOMMIT, groups[one])


def _take(overlay: Overlay, one: Allocation) -> Allocation:
    overlay.free(overlay.view.operations[one.operation], one)
    return one


def _is_above_a_limit(overlay: Overlay, operation: Operation) -> bool:
    if exceeds(overlay.held(operation), operation.spec.resource_limits):
        return True
    pools = overlay.view.pools
    above = pools.pool(operation.spec.pool).path()
    return any(exceeds(pool.used + overlay.pools.get(pool.name, ZERO), pool.most) for pool in above)


def _began_ms(one: Allocation) -> float:
    return math.inf if one.progress_started_ms is None else one.progress_started_ms
