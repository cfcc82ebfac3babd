"""Deactivations: what decisions on heartbeats passed over, counted by reason under the names of the specification.

A decision passes over a whole class of jobs at once, so that classes are counted, not operations, and one may count for several
reasons. Operations that are out of the order altogether are no part of a decision: `ranking` counts them by what holds them back.
Source: sections 8.5 and 8.6 of the specification of allocation and preemption.
"""

from __future__ import annotations

import msgspec

from headrace.resources import Resources
from headrace.runtime.engine import Figure, by_label, counter
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.decision.least_satisfied import LeastSatisfied
from headrace_allocator.decision.view import Overlay


class Deactivations(msgspec.Struct):
    """Counts by reason, of one decision or of all."""

    #: Classes whose jobs do not fit into the room that is left on the node, or that preemption could make.
    min_needed_resources_unsatisfied: int = 0
    #: Classes that fit, and whose filters the tags of the node do not match.
    unmatched_scheduling_tag: int = 0
    #: Classes that the limit of a pool holds back, counted in each such pool of the tree. Preemptive stages, which may have more, add none.
    resource_limits_exceeded: int = 0
    #: Classes of gangs that fit and wait while room is held for another.
    gang_waits_for_a_turn: int = 0
    #: Classes that wait and have another priority than a preemptive stage that ran for somebody.
    is_not_eligible_for_aggressive_preemptive_scheduling: int = 0
    is_not_eligible_for_normal_preemptive_scheduling: int = 0
    #: Operations of which no job fitted though the least of each resource that they need did.
    schedule_allocation_failed: int = 0
    #: Pools that a walk left without an operation.
    no_best_leaf_descendant: int = 0

    def add(self, other: Deactivations) -> None:
        """Adds those of another decision."""
        for reason in _REASONS:
            count = getattr(other, reason)
            if count:
                setattr(self, reason, getattr(self, reason) + count)

    def add_all_too_large(self, order: LeastSatisfied) -> None:
        """Counts all classes that wait as too large, which is known without a decision, and those that limits hold back."""
        self.min_needed_resources_unsatisfied += len(order.root.counts)
        self.resource_limits_exceeded += order.shut_classes

    def add_nobody_goes(self, order: LeastSatisfied) -> None:
        """Counts what a normal preemptive stage passes over on a node without room, of which nothing may be taken."""
        eligible = (order.root.classes & order.classes.of_priority(PreemptionPriority.NORMAL)).bit_count()
        self.min_needed_resources_unsatisfied += eligible
        self.is_not_eligible_for_normal_preemptive_scheduling += len(order.root.counts) - eligible

    def figures(self) -> list[Figure]:
        """One count for each reason."""
        says = (
            "Classes of jobs that decisions on heartbeats passed over, by reason. "
            "Of schedule_allocation_failed it is operations, of no_best_leaf_descendant pools."
        )
        counts = {reason: getattr(self, reason) for reason in _REASONS}
        return by_label(counter("deactivations", "decisions", 0, says), "deactivations", "reason", counts)


_REASONS = Deactivations.__struct_fields__


def of_regular_stages(overlay: Overlay) -> Deactivations:
    """The classes that regular stages passed over, once all that could start has started. Cost: two sets of classes."""
    order = overlay.view.order
    found = _of_room(overlay, order.root.classes, len(order.root.counts), overlay.room)
    found.resource_limits_exceeded = order.shut_classes
    return found


def of_preemptive_stage(overlay: Overlay, priority: PreemptionPriority, room: Resources | None) -> Deactivations:
    """The classes that a preemptive stage passed over. If it started nothing, `room` is all that there would have been."""
    order = overlay.view.order
    eligible = order.root.classes & order.classes.of_priority(priority)
    count = eligible.bit_count()
    found = Deactivations() if room is None else _of_room(overlay, eligible, count, room)
    others = len(order.root.counts) - count
    if priority is PreemptionPriority.AGGRESSIVE:
        found.is_not_eligible_for_aggressive_preemptive_scheduling = others
    else:
        found.is_not_eligible_for_normal_preemptive_scheduling = others
    return found


def _of_room(overlay: Overlay, waiting: int, count: int, room: Resources) -> Deactivations:
    """Those of so many classes for which a room on the node is too small, or the node is another, or the time."""
    view, classes = overlay.view, overlay.view.order.classes
    fitting = waiting & classes.fitting(room)
    if not fitting:
        return Deactivations(count)
    fit = fitting.bit_count()
    matching = fitting & classes.matching(view.tags)
    others = 0 if matching == fitting else fit - matching.bit_count()
    waits = (matching & classes.waiting_gangs).bit_count() if view.some_gang_gathers else 0
    return Deactivations(count - fit, others, gang_waits_for_a_turn=waits)
