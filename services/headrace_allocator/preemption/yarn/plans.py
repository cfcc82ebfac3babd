"""Plans: the decisions of the searches, kept until the next heartbeat of their node turns them into orders.

A planned preemption already counts as taken from its operation, and a planned start as booked on its node. A plan that cannot be carried
out is dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from headrace.ids import NodeName, OperationId
from headrace.resources import ZERO, Resources
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.nodes import Node


class Plan(msgspec.Struct, frozen=True, eq=False):
    """Allocations to preempt on one node, and the job to start there."""

    node: NodeName
    victims: tuple[Allocation, ...]
    #: Steady-clock seconds after which the plan is dropped.
    until_s: float
    #: The operation that gets the freed resources; None if the resources are for no particular operation.
    operation: OperationId | None = None
    #: Size of the job that the operation starts there.
    size: Resources = ZERO


class Plans:
    """All preemption plans of a tree, by node, and the allocations that are victims of a plan."""

    def __init__(self) -> None:
        self._of: dict[NodeName, list[Plan]] = {}
        self._marked: dict[Allocation, Resources] = {}
        #: By operation, the total usage of its allocations that are victims of plans.
        self._taken: dict[OperationId, Resources] = {}
        self.counts: Counter[str] = Counter()

    def add(self, plan: Plan) -> None:
        """Add a plan and mark its victims."""
        self._of.setdefault(plan.node, []).append(plan)
        for one in plan.victims:
            self._marked[one] = one.usage
            self._taken[one.operation] = self.taken(one.operation) + one.usage
        self.counts["made"] += 1

    def take(self, node: NodeName) -> list[Plan]:
        """Remove and return the plans for a node. The caller must carry them out now, since nothing else has a record of them."""
        plans = self._of.pop(node, [])
        for plan in plans:
            self._unmark(plan)
        return plans

    def is_marked(self, allocation: Allocation) -> bool:
        """True if the allocation is a victim of a plan."""
        return allocation in self._marked

    def taken(self, operation: OperationId) -> Resources:
        """Return the amount that plans take from an operation."""
        return self._taken.get(operation, ZERO)

    def room_on(self, node: Node) -> Resources:
        """Return the free resources of a node as if its plans were carried out."""
        room = node.free
        for plan in self._of.get(node.record.node, ()):
            room = room + Resources.sum(self._marked[one] for one in plan.victims) - plan.size
        return room

    def drop(self, *, before_s: float | None = None) -> None:
        """Drop all plans, or only those that expire at `before_s` or earlier (steady-clock seconds)."""
        for plan in list(self):
            if before_s is None or plan.until_s <= before_s:
                self.counts["dropped"] += 1
                self._unmark(plan)
                self._of[plan.node].remove(plan)
                if not self._of[plan.node]:
                    del self._of[plan.node]

    def __iter__(self) -> Iterator[Plan]:
        return (plan for plans in self._of.values() for plan in plans)

    def _unmark(self, plan: Plan) -> None:
        # Only the victims of this plan are examined. There may be thousands of plans, and each heartbeat removes the plans of its node.
        for one in plan.victims:
            left = self.taken(one.operation) - self._marked.pop(one)
            if left == ZERO:
                del self._taken[one.operation]
            else:
                self._taken[one.operation] = left
