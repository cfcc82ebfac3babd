"""Deactivations: what the decisions on heartbeats passed over, counted by reason under the names of the specification.

A decision passes over a whole class of jobs at once. So the counts are of classes, not of operations, and one class may count for several
reasons. Operations that are not in the scheduling order are no part of a decision; `ranking` counts them by the reason that holds them
back.

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
    """Counts by reason, of one decision or of all decisions together."""

    #: Number of classes whose jobs do not fit into the resources that are free on the node or that preemption could free there.
    min_needed_resources_unsatisfied: int = 0
    #: Number of classes whose jobs fit but whose scheduling tag filters do not match the tags of the node.
    unmatched_scheduling_tag: int = 0
    #: Number of classes that the limit of a pool holds back. A class counts once for each such pool. Preemptive stages do not count here,
    #: since they may exceed limits.
    resource_limits_exceeded: int = 0
    #: Number of classes of gangs whose jobs fit but wait because resources are held for another gang.
    gang_waits_for_a_turn: int = 0
    #: Number of pending classes that the aggressive stage passed over, because their preemption priority is not aggressive.
    is_not_eligible_for_aggressive_preemptive_scheduling: int = 0
    #: Number of pending classes that the normal stage passed over, because their preemption priority is not normal.
    is_not_eligible_for_normal_preemptive_scheduling: int = 0
    #: Number of operations of which no job fitted, although the free resources reached the smallest amount of each resource that any of
    #: their jobs needs.
    schedule_allocation_failed: int = 0
    #: Number of pools below which the walk down the scheduling order found no operation.
    no_best_leaf_descendant: int = 0

    def add(self, other: Deactivations) -> None:
        """Add the counts of another decision."""
        for reason in _REASONS:
            count = getattr(other, reason)
            if count:
                setattr(self, reason, getattr(self, reason) + count)

    def add_all_too_large(self, order: LeastSatisfied) -> None:
        """Count all pending classes as too large, and count the classes that pool limits hold back.

        Call this if it is known without a decision that no job fits.
        """
        self.min_needed_resources_unsatisfied += len(order.root.counts)
        self.resource_limits_exceeded += order.shut_classes

    def add_without_candidates(self, order: LeastSatisfied) -> None:
        """Count the classes that a normal preemptive stage passes over on a node without free resources and without possible victims."""
        eligible = (order.root.classes & order.classes.of_priority(PreemptionPriority.NORMAL)).bit_count()
        self.min_needed_resources_unsatisfied += eligible
        self.is_not_eligible_for_normal_preemptive_scheduling += len(order.root.counts) - eligible

    def figures(self) -> list[Figure]:
        """Return one metric with a value for each reason."""
        says = (
            "Job classes that decisions on heartbeats passed over, by reason. "
            "schedule_allocation_failed counts operations, and no_best_leaf_descendant counts pools."
        )
        counts = {reason: getattr(self, reason) for reason in _REASONS}
        return by_label(counter("deactivations", "decisions", 0, says), "deactivations", "reason", counts)


_REASONS = Deactivations.__struct_fields__


def of_regular_stages(overlay: Overlay) -> Deactivations:
    """Count the classes that the regular stages passed over. Call this after everything that could start has started."""
    order = overlay.view.order
    found = _of_room(overlay, order.root.classes, len(order.root.counts), overlay.room)
    found.resource_limits_exceeded = order.shut_classes
    return found


def of_preemptive_stage(overlay: Overlay, priority: PreemptionPriority, room: Resources | None) -> Deactivations:
    """Count the classes that a preemptive stage passed over.

    If the stage started no job, `room` is the resources that preemption could have made available. If it started a job, `room` is None.
    """
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
    """Count which of the `waiting` classes do not fit into `room`, do not match the tags of the node, or wait for the turn of their gang.

    `count` is the number of classes in `waiting`.
    """
    view, classes = overlay.view, overlay.view.order.classes
    fitting = waiting & classes.fitting(room)
    if not fitting:
        return Deactivations(count)
    fit = fitting.bit_count()
    matching = fitting & classes.matching(view.tags)
    others = 0 if matching == fitting else fit - matching.bit_count()
    waits = (matching & classes.waiting_gangs).bit_count() if view.some_gang_gathers else 0
    return Deactivations(count - fit, others, gang_waits_for_a_turn=waits)
