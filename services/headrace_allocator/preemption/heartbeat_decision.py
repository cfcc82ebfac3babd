"""All that is decided on one heartbeat, in order: graceful requests, regular starts, preemptive stages, an overcommitted node.

Nothing is booked: the decision is over an overlay, and whoever applies it changes the facts once.
Source: section 8.1 of the specification of allocation and preemption.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.ids import OperationId
from headrace.wire.preemption import PreemptionReason
from headrace_allocator.decision.extending import Extension, GiveBack, extend
from headrace_allocator.decision.placing import Choice, Placement, start_regularly
from headrace_allocator.decision.view import Overlay
from headrace_allocator.decision.walk import RoomLeft, next_in_line, why_room_is_left
from headrace_allocator.preemption.deactivations import Deactivations, of_regular_stages
from headrace_allocator.preemption.graceful import asked_gracefully
from headrace_allocator.preemption.observing import would_be_preempted
from headrace_allocator.preemption.overcommit import victims_of_overcommit
from headrace_allocator.preemption.stages import Preemption, StageOutcome, run_stages
from headrace_allocator.preemption.victims import groups_of
from headrace_allocator.preemption.yarn.execution import carried_out
from headrace_allocator.preemption.yarn.plans import Plan


class Due(msgspec.Struct, frozen=True):
    """Steps of the decision that may be made on this heartbeat."""

    #: False where no job may be given out, not even to allocations that are there.
    extend: bool = True
    #: False while an allocation waits on the node for room, too.
    start: bool = True
    #: True if places may be taken for others at all, and if the pause since the last preemptive stages on the node is over.
    preempt: bool = True
    preemptive_stages: bool = True
    #: What is to be done by a YARN policy, though an allocation waits on the node.
    plans: Sequence[Plan] = ()
    #: True if the node has had less than was given out on it for longer than that is allowed.
    repair_overcommit: bool = False

    @property
    def stages(self) -> bool:
        """True if preemptive stages run."""
        return self.start and self.preempt and self.preemptive_stages

    def some_change(self, *, has_room: bool, stages_have_work: bool) -> bool:
        """True if something may be decided for a node all of whose allocations run on as they are."""
        return (
            bool(self.plans)
            or self.repair_overcommit
            or (self.start and has_room)
            or (self.stages and stages_have_work)
        )


class HeartbeatDecision(msgspec.Struct):
    """The starts, extensions and preemptions that are decided for one node."""

    extensions: list[Extension | GiveBack] = []
    #: In free room.
    placements: list[Placement] = []
    #: The preemptive stages that ran. What one starts and what it takes for that happens together or not at all.
    stages: list[StageOutcome] = []
    #: For nobody: graceful requests, and what an overcommitted node has no room for.
    preemptions: list[Preemption] = []
    #: What would be taken beside that, did pools not only observe preemption.
    observed: list[Preemption] = []
    #: Operations of which no job fitted though the least that they need did.
    refused: set[OperationId] = set()
    #: Why no more of them did; None where nothing may start, or too little room is left.
    room_left: RoomLeft | None = None
    #: What was passed over meanwhile. None: nothing was.
    deactivations: Deactivations | None = None
    #: True if jobs that could start on the node wait for its next heartbeat, as no more may start on this one.
    is_cut_short: bool = False


def decide(overlay: Overlay, due: Due, choose: Choice = next_in_line) -> HeartbeatDecision:
    """Decides on one heartbeat. Graceful requests and overcommit are not held up by an allocation that waits.

    `choose` says who is next.
    """
    made, may_start = HeartbeatDecision(), False
    if due.preempt:
        made.preemptions = list(asked_gracefully(overlay))
    # The room of plans is nobody else's.
    made.stages = [outcome for plan in due.plans if (outcome := carried_out(overlay, plan)) is not None]
    if due.extend:
        made.extensions = extend(overlay, choose)
    if due.start:
        most = overlay.view.most_starts
        made.placements = start_regularly(overlay, choose)
        made.refused, made.room_left = set(overlay.refused), why_room_is_left(overlay)
        if made.room_left is not None:
            made.deactivations = of_regular_stages(overlay)
        may_start = most is None or len(made.placements) < most
        if not may_start and made.room_left is RoomLeft.HELD_BACK:
            made.is_cut_short = next_in_line(overlay, overlay.room) is not None
        if due.stages:
            made.stages += run_stages(overlay, choose, may_start=may_start)
    if due.repair_overcommit:
        # What an operation that is over left on the node has no group, and goes anyway.
        groups = groups_of(overlay, overlay.view.allocations)
        made.preemptions += [
            Preemption(victim, PreemptionReason.RESOURCE_OVERCOMMIT, groups[victim])
            for victim in victims_of_overcommit(overlay, groups)
        ]
    _count_passed_over(made, overlay)
    if due.preempt and overlay.met_observing_pool:
        # Last, since it writes to the overlay what is not to be.
        started = any(outcome.placement is not None for outcome in made.stages)
        made.observed = would_be_preempted(overlay, stages=bool(made.stages) and not started, may_start=may_start)
    return made


def _count_passed_over(made: HeartbeatDecision, overlay: Overlay) -> None:
    """Counts what the stages passed over, and the operations that were refused on the way."""
    stages = [outcome.deactivations for outcome in made.stages if outcome.deactivations is not None]
    if not (stages or overlay.refusals):
        return
    total = made.deactivations = made.deactivations or Deactivations()
    for one in stages:
        total.add(one)
    total.schedule_allocation_failed = overlay.refusals
