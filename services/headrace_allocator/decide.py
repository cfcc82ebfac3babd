"""Everything that is decided on one heartbeat: graceful requests, regular starts, preemptive stages and overcommit repair, in this order.

The decision is written to an overlay over the facts. The facts themselves change only when the caller applies the decision. Source: section
8.1 of the specification of allocation and preemption.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.ids import OperationId
from headrace.wire.preemption import PreemptionReason
from headrace_allocator.decision.extending import Extension, GiveBack, extend
from headrace_allocator.decision.placing import Placement, start_regularly
from headrace_allocator.decision.view import Overlay
from headrace_allocator.decision.walk import RoomLeft, next_in_line, why_room_is_left
from headrace_allocator.preemption.audit.deactivations import Deactivations, of_regular_stages
from headrace_allocator.preemption.audit.observing import would_be_preempted
from headrace_allocator.preemption.overcommit_and_limits import asked_gracefully, victims_of_overcommit
from headrace_allocator.preemption.stages import StageOutcome, run_stages
from headrace_allocator.preemption.victims import Preemption, groups_of
from headrace_allocator.preemption.yarn.execution import carried_out
from headrace_allocator.preemption.yarn.plans import Plan


class DueSteps(msgspec.Struct, frozen=True):
    """The steps of the decision that may be taken on this heartbeat."""

    #: False if no job may be given out, not even to existing allocations.
    extend: bool = True
    #: False if no allocation may start, for instance while an allocation on the node still waits for free resources.
    start: bool = True
    #: True if allocations may be preempted at all.
    preempt: bool = True
    #: True if the backoff since the last preemptive stages on the node is over.
    preemptive_stages: bool = True
    #: Preemption plans of a YARN policy for this node. They are carried out even while an allocation on the node waits for free resources.
    plans: Sequence[Plan] = ()
    #: True if the node has been overcommitted for longer than is allowed.
    repair_overcommit: bool = False

    @property
    def stages(self) -> bool:
        """True if preemptive stages may run in the decision on this heartbeat."""
        return self.start and self.preempt and self.preemptive_stages

    def some_change(self, *, has_room: bool, stages_have_work: bool) -> bool:
        """True if the decision could change something on the node even if its existing allocations need no order."""
        return (
            bool(self.plans)
            or self.repair_overcommit
            or (self.start and has_room)
            or (self.stages and stages_have_work)
        )


class HeartbeatDecision(msgspec.Struct):
    """The starts, extensions and preemptions that are decided for one node."""

    extensions: list[Extension | GiveBack] = []
    #: Starts in free resources.
    placements: list[Placement] = []
    #: The preemptive stages that ran. A stage's start and its preemptions are applied together, or none of them is applied.
    stages: list[StageOutcome] = []
    #: Preemptions that are not made for another operation: graceful requests, and allocations that do not fit on an overcommitted node.
    preemptions: list[Preemption] = []
    #: Further preemptions that would happen if pools with `preemption=observe` allowed preemption.
    observed: list[Preemption] = []
    #: Operations that were tried in vain: of each resource, enough was free for the job that needs least of it, but no single job fitted.
    refused: set[OperationId] = set()
    #: The reason why no further job starts in the free resources; None if nothing may start or too little is free for any job.
    room_left: RoomLeft | None = None
    #: Numbers of job classes and operations that the decision passed over, by reason; None if nothing was counted.
    deactivations: Deactivations | None = None
    #: True if more jobs fit on the node but must wait for the node's next heartbeat, because the limit of starts per heartbeat is reached.
    is_cut_short: bool = False


def decide(overlay: Overlay, due: DueSteps) -> HeartbeatDecision:
    """Decide on one heartbeat.

    Graceful requests and overcommit repair happen even while an allocation on the node waits for free resources.
    """
    made, may_start = HeartbeatDecision(), False
    if due.preempt:
        made.preemptions = list(asked_gracefully(overlay))
    # Plans come first, so that the resources of a plan go to no other operation.
    made.stages = [outcome for plan in due.plans if (outcome := carried_out(overlay, plan)) is not None]
    if due.extend:
        made.extensions = extend(overlay)
    if due.start:
        most = overlay.view.most_starts
        made.placements = start_regularly(overlay)
        made.refused, made.room_left = set(overlay.refused), why_room_is_left(overlay)
        if made.room_left is not None:
            made.deactivations = of_regular_stages(overlay)
        may_start = most is None or len(made.placements) < most
        if not may_start and made.room_left is RoomLeft.HELD_BACK:
            made.is_cut_short = next_in_line(overlay, overlay.room) is not None
        if due.stages:
            made.stages += run_stages(overlay, may_start=may_start)
    if due.repair_overcommit:
        # An allocation that is left over from an ended operation has no group. Such an allocation is not preempted here, since it ends
        # anyway.
        groups = groups_of(overlay, overlay.view.allocations)
        made.preemptions += [
            Preemption(victim, PreemptionReason.RESOURCE_OVERCOMMIT, groups[victim])
            for victim in victims_of_overcommit(overlay, groups)
        ]
    _count_passed_over(made, overlay)
    if due.preempt and overlay.met_observing_pool:
        # Preemptions that are only recorded, for pools that observe, are computed last: computing them writes changes to the overlay that
        # will not be applied.
        started = any(outcome.placement is not None for outcome in made.stages)
        made.observed = would_be_preempted(overlay, stages=bool(made.stages) and not started, may_start=may_start)
    return made


def _count_passed_over(made: HeartbeatDecision, overlay: Overlay) -> None:
    """Count the job classes that the stages passed over, and the operations that were refused because no job of theirs fitted."""
    stages = [outcome.deactivations for outcome in made.stages if outcome.deactivations is not None]
    if not (stages or overlay.refusals):
        return
    total = made.deactivations = made.deactivations or Deactivations()
    for one in stages:
        total.add(one)
    total.schedule_allocation_failed = overlay.refusals
