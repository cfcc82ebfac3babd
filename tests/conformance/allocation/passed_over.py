"""What a heartbeat's stages passed over, told operation by operation under the names of the specification.

The engine passes over whole classes of jobs and keeps no list of operations. Here each operation is asked the engine's own questions, in
the order of sections 8.5 and 8.6, with the room that the stage left. A stage that stopped since no room was left has tried nobody who
would be known of, so it gives no reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Final

from headrace.ids import OperationId
from headrace.pools.node_filter import matches
from headrace.resources import Resources
from headrace_allocator.decide import HeartbeatDecision
from headrace_allocator.decision.start_limits import (
    demand_covered,
    fair_share_reached,
    not_schedulable,
    own_limit_reached,
    pool_limit_reached,
)
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation
from tests.conformance.reporting import Problem, Unsupported

__all__ = ["BEFORE_ATTEMPTS", "PassedOver", "known_reasons"]

_REASONS: Final = {
    "is_not_alive", "fair_share_exceeded", "unmatched_scheduling_tag", "min_needed_resources_unsatisfied", "no_available_demand",
    "resource_limits_exceeded", "schedule_allocation_failed", "no_best_leaf_descendant",
}  # fmt: skip
#: Reasons for which an operation is left out before anybody tries to start a job of it.
BEFORE_ATTEMPTS: Final = {"is_not_alive", "fair_share_exceeded", "unmatched_scheduling_tag"}
#: Reasons of parts of the other system that have no counterpart here, and those that it counts for a stage and not for an operation.
_WITHOUT_COUNTERPART: Final = {
    "fair_share_limits_exceeded", "saturated_in_tentative_tree", "operation_disabled", "bad_packing",
    "max_concurrent_schedule_allocation_calls_per_node_shard_violated",
    "max_concurrent_schedule_allocation_exec_duration_per_node_shard_violated",
    "recent_schedule_allocation_failed", "incompatible_scheduling_segment", "regular_allocation_on_ssd_node_forbidden",
    "is_not_eligible_for_any_gpu_preemptive_scheduling", "is_not_eligible_for_default_gpu_full_host_preemptive_scheduling",
    "is_not_eligible_for_ssd_aggressive_preemptive_scheduling", "is_not_eligible_for_ssd_normal_preemptive_scheduling",
    "is_not_eligible_for_aggressive_preemptive_scheduling", "is_not_eligible_for_normal_preemptive_scheduling",
    "is_not_eligible_for_ssd_aggressively_preemptive_scheduling",
}  # fmt: skip


def known_reasons(names: list[str]) -> list[str]:
    """The reasons of an expectation, sorted. Raises `Unsupported` for one without counterpart here, `Problem` for an unknown one."""
    for name in names:
        if name in _WITHOUT_COUNTERPART:
            raise Unsupported(f"the reason {name} is none of a single operation here")
        if name not in _REASONS:
            raise Problem(f"unknown deactivation reason {name}")
    return sorted(names)


class PassedOver:
    """The operations that the stages of one heartbeat passed over, each with its reasons."""

    def __init__(
        self, facts: Facts, node: Node, decided: HeartbeatDecision, high: Set[OperationId], *, may_start: bool
    ) -> None:
        #: Operations of the stage of high priority, when it began.
        self.high = high
        self._facts = facts
        self._node = node
        self._decided = decided
        stages, most = decided.stages, facts.timing.most_starts
        self._room = stages[0].room if stages else node.free
        #: True if regular stages went on until nobody was left to try.
        self.tried_all = may_start and self._room.dominates(facts.pools.min_spare) and most != len(decided.placements)
        #: By operation, of regular stages and of all.
        self.regular: dict[str, set[str]] = {}
        self.all: dict[str, set[str]] = {}
        for name, operation in facts.operations.items():
            regular = self._of_regular(operation)
            if regular is not None:
                self.regular[name] = {regular}
            preemptive = set(self._of_preemptive(operation))
            self.all[name] = self.regular.get(name, set()) | preemptive

    def reasons(self, name: str) -> set[str]:
        """Those of an operation, or of a pool without an operation that could start."""
        if name in self.all:
            return self.all[name]
        below = [one.id for one in self._facts.operations.values() if self._is_below(one, name)]
        emptied = bool(below) and all(self.regular.get(one) for one in below)
        return {"no_best_leaf_descendant"} if emptied else set()

    def _is_below(self, operation: Operation, pool: str) -> bool:
        return any(above.name == pool for above in self._facts.pools.pool(operation.spec.pool).path())

    def _of_regular(self, operation: Operation) -> str | None:
        return self._why_not(operation, self._room, tolerant=False) if self.tried_all else None

    def _of_preemptive(self, operation: Operation) -> Iterator[str]:
        """The reasons of stages that tried the operation and started nothing."""
        for outcome in self._decided.stages:
            room = outcome.room + outcome.discount
            tried = outcome.tried_to_start and operation.preemption_priority is outcome.stage.priority
            if not tried or outcome.placement is not None or not room.dominates(self._facts.pools.min_spare):
                continue
            why = self._why_not(operation, room + Resources.sum(outcome.held.values()), tolerant=True)
            if why is not None:
                yield why

    def _why_not(self, operation: Operation, room: Resources, *, tolerant: bool) -> str | None:
        """The first reason for which no job of it starts on the node in a room."""
        pools = self._facts.pools
        if not_schedulable(operation) is not None:
            return "is_not_alive"
        if fair_share_reached(operation) is not None:
            return "fair_share_exceeded"
        if not all(matches(formula, self._node.record.tags) for formula in pools.filters_of(operation.spec)):
            return "unmatched_scheduling_tag"
        if not room.dominates(operation.min_needed):
            return "min_needed_resources_unsatisfied"
        # An operation that started all its jobs on this heartbeat is considered again, and wants no more.
        has_all = not operation.slots.ready_count and operation.share is not None and operation.share.schedulable
        if has_all or demand_covered(operation, operation.held) is not None:
            return "no_available_demand"
        over_own = own_limit_reached(operation, operation.held, tolerant_in=pools if tolerant else None)
        if over_own is not None or pool_limit_reached(operation, pools, tolerant=tolerant) is not None:
            return "resource_limits_exceeded"
        return "schedule_allocation_failed" if operation.id in self._decided.refused else None
