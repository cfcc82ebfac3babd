"""The view of one node and the tree that a decision reads, and the overlay of changes that it writes.

A view is frozen for the length of one decision. An overlay is made in constant time, costs what it touches, and is thrown away
without a trace; only whoever applies the decision changes the facts.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.ids import OperationId, PoolName
from headrace.resources import ZERO, Resources
from headrace_allocator.decision.holding_back import held_back
from headrace_allocator.decision.least_satisfied import Candidate, LeastSatisfied, satisfaction
from headrace_allocator.decision.reasons import Reason
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolTree

__all__ = ["Overlay", "View"]


class View(msgspec.Struct, frozen=True):
    """One node and the tree at the moment of a heartbeat. Whoever holds it reads, and changes nothing."""

    free: Resources
    allocations: tuple[Allocation, ...]
    #: Of the whole tree, and what of it nobody has.
    total: Resources
    free_in_tree: Resources
    operations: Mapping[OperationId, Operation]
    pools: PoolTree
    order: LeastSatisfied
    #: Until the node's next heartbeat.
    pace_ms: int

    @staticmethod
    def of(facts: Facts, node: Node, order: LeastSatisfied, pace_ms: int) -> View:
        """The view of one node of the tree."""
        return View(
            free=node.free,
            allocations=tuple(node.allocations.values()),
            total=facts.total,
            free_in_tree=facts.total - facts.used,
            operations=facts.operations,
            pools=facts.pools,
            order=order,
            pace_ms=pace_ms,
        )


class Overlay:
    """The view as it would be with all that was decided so far."""

    def __init__(self, view: View) -> None:
        self.view = view
        #: Free room of the node.
        self.room = view.free
        #: The new place of each operation that moved in the order, or the reason for which it left.
        self.moved: dict[OperationId, Candidate | Reason] = {}
        self._jobs: dict[OperationId, int] = {}
        self._held: dict[OperationId, Resources] = {}
        self._pools: dict[PoolName, Resources] = {}

    def ready(self, operation: Operation) -> int:
        """The number of its jobs that can be given out at once."""
        return operation.slots.ready_count - self._jobs.get(operation.id, 0)

    def pending(self, operation: Operation) -> int:
        """The number of its jobs that wait for a place."""
        return operation.slots.pending_count - self._jobs.get(operation.id, 0)

    def held(self, operation: Operation) -> Resources:
        """All that it holds on nodes."""
        return self._held.get(operation.id, operation.held)

    def satisfaction(self, operation: Operation) -> float:
        """Usage over fair share."""
        return satisfaction(operation, self.held(operation), self.view.total)

    def held_back(self, operation: Operation) -> Reason | None:
        """The reason for which no more of its jobs may start, or None if one may."""
        return held_back(operation, self.ready(operation), self.held(operation), self.view.pools, self._pools)

    def give_out(self, operation: Operation, jobs: int) -> None:
        """Gives out so many of its jobs. Which ones is settled when the decision is applied."""
        self._jobs[operation.id] = self._jobs.get(operation.id, 0) + jobs

    def use(self, operation: Operation, amount: Resources) -> None:
        """The operation holds so much more on this node: its room, its usage and that of all limited pools above.

        A negative amount frees: whoever looks for victims takes them away here and sees what fits then.
        """
        self.room = self.room - amount
        self._held[operation.id] = self.held(operation) + amount
        for limit in self.view.pools.above(operation.spec.pool):
            self._pools[limit.pool] = self._pools.get(limit.pool, ZERO) + amount
