"""Plans: what the searches decided to take, until the node's next heartbeat, when it is ordered.

Whatever is planned counts as taken from its operation and as booked on its node. A plan that cannot be carried out is dropped.
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
    """Allocations to be taken on one node."""

    node: NodeName
    victims: tuple[Allocation, ...]
    #: Nobody waits for it any more after this.
    until_s: float
    #: The operation that gets the room for a job of this size; None: whoever comes first.
    operation: OperationId | None = None
    size: Resources = ZERO


class Plans:
    """All plans of a tree."""

    def __init__(self) -> None:
        self._of: dict[NodeName, list[Plan]] = {}
        self._marked: dict[Allocation, Resources] = {}
        #: By operation, what is marked of it.
        self._taken: dict[OperationId, Resources] = {}
        self.counts: Counter[str] = Counter()

    def add(self, plan: Plan) -> None:
        """Marks what a plan takes."""
        self._of.setdefault(plan.node, []).append(plan)
        for one in plan.victims:
            self._marked[one] = one.usage
            self._taken[one.operation] = self.taken(one.operation) + one.usage
        self.counts["made"] += 1

    def take(self, node: NodeName) -> list[Plan]:
        """Removes the plans for a node, which are carried out now or never."""
        plans = self._of.pop(node, [])
        for plan in plans:
            self._unmark(plan)
        return plans

    def is_marked(self, allocation: Allocation) -> bool:
        """True if a plan takes an allocation."""
        return allocation in self._marked

    def taken(self, operation: OperationId) -> Resources:
        """The amount that plans take from an operation."""
        return self._taken.get(operation, ZERO)

    def room_on(self, node: Node) -> Resources:
        """The room that a node has once its plans are carried out."""
        room = node.free
        for plan in self._of.get(node.record.node, ()):
            room = room + Resources.sum(self._marked[one] for one in plan.victims) - plan.size
        return room

    def drop(self, *, before_s: float | None = None) -> None:
        """Drops all plans, or those that nobody waits for any more."""
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
        # No look at other plans: there may be thousands, and a heartbeat takes those of its node.
        for one in plan.victims:
            left = self.taken(one.operation) - self._marked.pop(one)
            if left == ZERO:
                del self._taken[one.operation]
            else:
                self._taken[one.operation] = left
