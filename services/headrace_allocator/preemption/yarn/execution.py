"""Carry out plans: turn them into orders on the heartbeat of their node."""

from __future__ import annotations

from typing import Final

from headrace.resources import ZERO, Resources
from headrace.wire.preemption import PreemptionReason
from headrace.wire.snapshots import PreemptionPriority
from headrace.wire.start_stages import StartStage
from headrace_allocator.decision.placing import Placement
from headrace_allocator.decision.view import Overlay, ready_tasks
from headrace_allocator.facts.operations import starts_only_in_its_turn
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.preemption.stages import PreemptiveStage, StageOutcome
from headrace_allocator.preemption.victims import Preemption
from headrace_allocator.preemption.yarn.candidates import is_there
from headrace_allocator.preemption.yarn.plans import Plan

_STAGE: Final = PreemptiveStage(
    PreemptionPriority.NORMAL, Group.PREEMPTIBLE, PreemptionReason.PREEMPTION, StartStage.YARN_PLAN
)


def carried_out(overlay: Overlay, plan: Plan) -> StageOutcome | None:
    """Preempt the victims of a plan as far as they are still needed, and start its job. Return None if the plan cannot be carried out.

    The shares of operations are not checked again. The allocation of the job exists at once; the job waits on the node until the victims
    have ended.
    """
    view, room = overlay.view, overlay.room
    victims = [one for one in plan.victims if one in view.allocations and is_there(one) and one not in overlay.freed]
    victims = [one for one in victims if one.operation in view.operations]
    if plan.operation is None:
        for one in victims:
            overlay.free(view.operations[one.operation], one)
        taken = [Preemption(one, PreemptionReason.POOL_SHORTAGE, Group.PREEMPTIBLE) for one in victims]
        return StageOutcome(_STAGE, False, None, taken, len(victims), _sum(taken), room, ZERO, {})
    operation = view.operations.get(plan.operation)
    if operation is None or overlay.held_back(operation) is not None:
        return None
    if starts_only_in_its_turn(operation) and (view.some_gang_gathers or not overlay.takes_part(operation.id)):
        return None
    task = next((n for n, task in ready_tasks(overlay, operation) if task.resources == plan.size), None)
    if operation.kinds and task is None:
        return None
    freed = []
    for one in victims:
        if overlay.room.dominates(plan.size):
            break
        overlay.free(view.operations[one.operation], one)
        freed.append(one)
    if not overlay.room.dominates(plan.size):
        for one in freed:
            overlay.keep(view.operations[one.operation], one)
        return None
    overlay.use(operation, plan.size, 1, task)
    timeout_ms = view.pools.options.yarn.wait_before_kill
    taken = [
        Preemption(one, PreemptionReason.PREEMPTION, Group.PREEMPTIBLE, operation, properly=True, timeout_ms=timeout_ms)
        for one in freed
    ]
    unused = _sum(taken).within(overlay.room.or_more(ZERO))
    placement = Placement(operation, 1, plan.size, _STAGE.name, task)
    return StageOutcome(_STAGE, True, placement, taken, len(victims), _sum(taken), room, unused, {})


def _sum(taken: list[Preemption]) -> Resources:
    return Resources.sum(one.allocation.usage for one in taken)
