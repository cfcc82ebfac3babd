"""The preemptive stages of a heartbeat, and the plans of the YARN policies.

Source: sections 8.1, 9.1 to 9.5 of the specification of allocation and preemption.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from headrace.ids import PoolName
from headrace.pools.tree_options import VictimRules
from headrace.resources import ZERO, Resources
from headrace.wire.heartbeat import AllocationState
from headrace.wire.preemption import PreemptionReason
from headrace.wire.snapshots import PreemptionPriority, StarvationStatus
from headrace.wire.start_stages import StartStage
from headrace_allocator.decision.placing import Placement
from headrace_allocator.decision.view import View
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.preemption.stages import STAGES, PreemptiveStage, StageOutcome
from headrace_allocator.preemption.victims import Preemption
from headrace_allocator.preemption.yarn.plans import Plan
from tests.reference.heartbeats.choosing import filters_of, may_start_one_more
from tests.reference.heartbeats.placing import place
from tests.reference.heartbeats.state import State, ready_in_gang
from tests.reference.heartbeats.victims import (
    Found,
    candidates,
    crossing_for,
    excess,
    groups_of,
    is_above_a_limit,
    is_owed_a_job,
    is_short_of,
    keep_order,
    part_of,
)

__all__ = ["carry_out", "run_stages", "stage_for_few_nodes"]

#: Upper bound of the operations that a stage looks at until it finds one that is owed what it would take.
_MOST_ASKED = 8


def run_stages(state: State, ran: Collection[PreemptionPriority], *, may_start: bool) -> Iterator[StageOutcome]:
    """Run the stages until one starts a job.

    `ran` are the stages that the allocator ran. The aggressive stage must run if an operation certainly has a job for it. It may run
    without, and may then repair limits.
    """
    state.tolerant = state.view.pools.options.victim_rules is not VictimRules.LEGACY
    state.begin_stage()
    for stage in STAGES:
        is_due = stage.priority in ran or (may_start and _some_job_waits(state.view, stage))
        if stage.priority is PreemptionPriority.AGGRESSIVE and not is_due:
            continue
        outcome = _run(state, stage, may_start=may_start)
        yield outcome
        if outcome.placement is not None:
            break
    else:
        if may_start:
            yield from stage_for_few_nodes(state)
    state.tolerant = False
    state.begin_stage()


def _some_job_waits(view: View, stage: PreemptiveStage) -> bool:
    """True if an operation of the stage's priority had a job before this decision that may start somewhere."""
    before = State(view)
    before.tolerant = True
    starving = (one for one in view.operations.values() if one.preemption_priority is stage.priority)
    return any(may_start_one_more(before, one) for one in starving)


def _run(state: State, stage: PreemptiveStage, *, may_start: bool) -> StageOutcome:
    """Start the job that fits if all candidates are gone, and preempt as many of them as it needs. Then repair limits."""
    found, room = candidates(state, stage.least), state.room
    discount, held = _usage(found.free), {pool: _usage(ones) for pool, ones in found.held.items()}
    placement, of_gang, crossing = _start(state, stage, found) if may_start else (None, [], [])
    starter = None if placement is None else placement.operation
    to_repair = found.to_repair()
    may_go = to_repair if starter is None else [*found.free, *crossing, *found.held_for(state, starter)]
    left = keep_order([one for one in may_go if one not in of_gang], found.groups)
    for one in of_gang:
        state.free(one)
    taken = _until_it_fits(state, left)
    if state.view.pools.options.drop_needless_victims:
        left = _spare_needless(state, left, taken)
    if starter is not None and found.exempt:
        left = keep_order([*left, *found.exempt], found.groups)
    taken = [*of_gang, *taken]
    unused = _usage(taken).within(state.room)
    preemptions = _preemptions(stage, taken, found, starter)
    for one in reversed(left):
        if one in to_repair and is_above_a_limit(state, state.operation_of(one)):
            state.free(one)
            preemptions.append(Preemption(one, PreemptionReason.RESOURCE_LIMITS_VIOLATED, found.groups[one]))
    return StageOutcome(stage, may_start, placement, preemptions, len(found.free), discount, room, unused, held)


def stage_for_few_nodes(state: State) -> Iterator[StageOutcome]:
    """Start one job of an operation that can run on some nodes only, in place of what other operations have too much."""
    options, room = state.view.pools.options, state.room
    if not options.take_excess_for_few_nodes or options.victim_rules is VictimRules.LEGACY:
        return
    for stage in STAGES:
        state.begin_stage(lambda one: any(filters_of(state, one)))
        found = excess(state)
        placement = _place_one(state, stage, _usage(found.free))
        state.begin_stage()
        if placement is not None:
            taken = _until_it_fits(state, keep_order(found.free, found.groups))
            preemptions = _preemptions(stage, taken, found, placement.operation)
            discount, unused = _usage(found.free), _usage(taken).within(state.room)
            yield StageOutcome(
                stage, True, placement, preemptions, len(found.free), discount, room, unused, {}, for_few_nodes=True
            )
            return


def _start(
    state: State, stage: PreemptiveStage, found: Found
) -> tuple[Placement | None, list[Allocation], list[Allocation]]:
    """Start one job. Return it with the allocations of a gang that is preempted for it, and those at bounds that may be."""
    discount = _usage(found.free)
    state.more_room, state.going, more = _extra(state, found)
    placement = _place_one(state, stage, discount, more=more)
    state.more_room, state.going, _ = _extra(state, Found())
    if placement is not None:
        return placement, [], []
    for gang, there in sorted(found.gangs.items(), key=lambda item: (part_of(state, item[0]), item[0].id)):
        room = state.room + discount + _usage(there)

        def room_of_gang(starter: Operation, gang: Operation = gang, room: Resources = room) -> Resources | None:
            return room if starter is not gang and is_short_of(state, gang, starter) else None

        placement = _place_one(state, stage, discount + _usage(there), there=room_of_gang, most_refused=_MOST_ASKED)
        if placement is not None:
            return placement, there, []
    if not found.crossing:
        return None, [], []
    room = state.room + discount
    crossing = {one: crossing_for(state, found, one) for one in state.view.operations.values()}
    state.begin_stage(lambda one: is_owed_a_job(state, one))
    more = discount + _usage(found.crossing)
    placement = _place_one(state, stage, more, there=lambda one: room + _usage(crossing[one]), most_refused=_MOST_ASKED)
    state.begin_stage()
    return placement, [], [] if placement is None else crossing[placement.operation]


def _extra(state: State, found: Found) -> tuple[Callable[[Operation], Resources], dict[PoolName, Resources], Resources]:
    """Return what each operation may use in addition, what counts as free under limits of pools, and the most of the former.

    Only the older rules have any of them. There is no tolerance under them.
    """
    going: dict[PoolName, Resources] = {}
    if state.view.pools.options.victim_rules is VictimRules.LEGACY:
        for one in found.free:
            for pool in state.above(state.operation_of(one)):
                going[pool.name] = going.get(pool.name, ZERO) + one.usage

    def of_operation(operation: Operation) -> Resources:
        return _usage(found.held_for(state, operation))

    most = ZERO
    for name in found.held:
        path = state.view.pools.pool(name).path()
        most = most.or_more(_usage(one for pool in path for one in found.held.get(pool.name, [])))
    return of_operation, going, most


def _place_one(state: State, stage: PreemptiveStage, discount: Resources, **options: Any) -> Placement | None:
    placed = place(state, stage.name, stage.priority, discount=discount, most=1, **options)
    return next(iter(placed), None)


def _until_it_fits(state: State, left: list[Allocation]) -> list[Allocation]:
    """Preempt allocations from the end of the keep order until the node is no longer overcommitted."""
    taken: list[Allocation] = []
    while left and not state.room.dominates(ZERO):
        taken.append(left.pop())
        state.free(taken[-1])
    return taken


def _spare_needless(state: State, left: list[Allocation], taken: list[Allocation]) -> list[Allocation]:
    """Keep each allocation that need not be preempted, the earliest start first. Return all that is left, in keep order."""
    for one in keep_order(taken, dict.fromkeys(taken, Group.PREEMPTIBLE)):
        if state.room.dominates(one.usage):
            state.keep(one)
            taken.remove(one)
            left.append(one)
    return keep_order(left, groups_of(state, left))


def _preemptions(
    stage: PreemptiveStage, taken: list[Allocation], found: Found, starter: Operation | None
) -> list[Preemption]:
    starving = {
        PreemptionPriority.AGGRESSIVE: StarvationStatus.AGGRESSIVELY_STARVING,
        PreemptionPriority.NORMAL: StarvationStatus.STARVING,
    }
    properly = starter is not None and starter.starvation is starving[stage.priority]
    return [Preemption(one, stage.reason, found.groups[one], starter, properly) for one in taken]


def _usage(allocations: Iterable[Allocation]) -> Resources:
    return Resources.sum(one.usage for one in allocations)


def carry_out(state: State, plan: Plan) -> StageOutcome | None:
    """Preempt the victims of a plan of a YARN policy as far as they are needed, and start its job; None if it cannot start."""
    victims = [one for one in plan.victims if _is_there(state, one)]
    stage = PreemptiveStage(
        PreemptionPriority.NORMAL, Group.PREEMPTIBLE, PreemptionReason.PREEMPTION, StartStage.YARN_PLAN
    )
    room, count = state.room, len(victims)
    if plan.operation is None:
        for one in victims:
            state.free(one)
        taken = [Preemption(one, PreemptionReason.POOL_SHORTAGE, Group.PREEMPTIBLE) for one in victims]
        return StageOutcome(stage, False, None, taken, count, _usage(victims), room, ZERO, {})
    operation = state.view.operations.get(plan.operation)
    if operation is None or not may_start_one_more(state, operation):
        return None
    if not state.has_turn(operation) and operation.slots.ready_count == ready_in_gang(operation):
        return None
    alike = [n for n in state.ready_tasks(operation) if operation.kinds[n].resources == plan.size]
    if operation.kinds and not alike:
        return None
    needed: list[Allocation] = []
    for one in victims:
        if not (room + _usage(needed)).dominates(plan.size):
            needed.append(one)
    if not (room + _usage(needed)).dominates(plan.size):
        return None
    for one in needed:
        state.free(one)
    state.start(operation, plan.size, 1, alike[0] if alike else None)
    timeout_ms = state.view.pools.options.yarn.wait_before_kill
    taken = [
        Preemption(one, PreemptionReason.PREEMPTION, Group.PREEMPTIBLE, operation, True, timeout_ms) for one in needed
    ]
    unused = _usage(needed).within(state.room.or_more(ZERO))
    placement = Placement(operation, 1, plan.size, stage.name, alike[0] if alike else None)
    return StageOutcome(stage, True, placement, taken, count, _usage(needed), room, unused, {})


def _is_there(state: State, one: Allocation) -> bool:
    """True if the allocation is on the node, uses something, is not ending, and belongs to a known operation."""
    if one not in state.view.allocations or one.operation not in state.view.operations:
        return False
    return one.take_back is None and one.state is not AllocationState.ENDED and state.usage(one) != ZERO
