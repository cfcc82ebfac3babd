"""Who gets the room of a node: the least satisfied operation whose jobs fit, again and again.

Cost of a heartbeat: the classes of jobs, plus the starts times the logarithm of the operations.
"""

from __future__ import annotations

import heapq
import math
from typing import Final

from headrace.ids import OperationId
from headrace.resources import EPS, ZERO, Resources
from headrace.satisfaction import local_satisfaction
from headrace.wire.heartbeat import LARGEST_ALLOCATION_JOBS, AllocationState, JobSlot, TakeBackReason
from headrace_allocator.decision.least_satisfied import SchedulingOrder
from headrace_allocator.facts.facts import Allocation, Books, Node, OperationBook
from headrace_allocator.facts.limits import Limits

__all__ = ["Scheduler"]

#: An allocation gets as many jobs as end in this many heartbeat round trips.
_ROUND_TRIPS_AHEAD: Final = 2
#: A block is drawn when fewer jobs than this can be given out at once.
_LOW_BLOCK: Final = 128
#: What one draw adds at most: after a change of the allocator everything drawn and not ended is in doubt for a while.
_MOST_DRAWN: Final = 16_384


class Scheduler:
    """Decides starts, extensions and places given back on one node at a time."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self.order = SchedulingOrder()
        #: Operations whose place in the order is to be found anew, and whether that is so for all of them.
        self._marked: dict[OperationId, None] = {}
        self._all_marked = False
        self._shapes: frozenset[Resources] = frozenset()

    def mark(self, operation: OperationId) -> None:
        """Its place is to be found anew."""
        self._marked[operation] = None

    def mark_all(self) -> None:
        """The room of the tree changed. Only a mark: a heartbeat must not cost more for there being more operations."""
        self._all_marked = True

    def refresh_marked(self, most: int) -> bool:
        """Gives up to `most` marked operations their place; true while there are more."""
        if self._all_marked:
            self._all_marked = False
            self._shapes = frozenset(node.total for node in self._books.nodes.values() if node.accepts_jobs)
            self._marked = dict.fromkeys(self._books.operations)
        for _ in range(min(most, len(self._marked))):
            name = next(iter(self._marked))
            del self._marked[name]
            operation = self._books.operations.get(name)
            if operation is not None:
                self.refresh(operation)
                self._judge_size(operation)
        return bool(self._marked)

    def satisfaction(self, operation: OperationBook) -> float:
        """Of an operation with what it has and what is being started for it."""
        usage = (operation.usage + operation.precommit).share_of(self._books.total)
        return local_satisfaction(usage, operation.fair_share, operation.demand_share)

    def refresh(self, operation: OperationBook) -> None:
        """Gives an operation its place in the order, or takes it out when it has nothing to give out."""
        if not operation.schedulable or not operation.slots.ready_count or Limits.is_full(operation):
            self.order.remove(operation.id)
        elif (level := self._books.limits.full_level(operation)) is not None:
            level.parked[operation.id] = None
            self.order.remove(operation.id)
        else:
            self.order.put(operation.id, operation.spec.resources, self.satisfaction(operation), operation.arrival)

    def refresh_woken(self) -> None:
        """Gives operations their place that a limit held back and that may have room now."""
        woken, self._books.limits.woken = self._books.limits.woken, {}
        for name in woken:
            operation = self._books.operations.get(name)
            if operation is not None:
                self.refresh(operation)

    def wants_block(self, operation: OperationBook) -> int | None:
        """The border up to which more indexes should be drawn now; None when there are enough, or one is being drawn."""
        slots = operation.slots
        if not operation.schedulable or operation.drawing or slots.block >= operation.spec.job_count:
            return None
        if slots.ready_count >= _LOW_BLOCK:
            return None
        return min(operation.spec.job_count, slots.block + min(_MOST_DRAWN, max(slots.block, 2 * _LOW_BLOCK)))

    def place(self, node: Node, pace_ms: int) -> list[tuple[OperationBook, list[JobSlot]]]:
        """What the node's free room starts, in order; each pair is one allocation. The slots are taken, the room is booked by
        the caller as the pairs are turned into allocations: so it calls with the room as it is and gets all pairs at once."""
        self.refresh_woken()
        placed: list[tuple[OperationBook, list[JobSlot]]] = []
        room = node.free
        classes = [(best, c) for c in self.order.fitting(room) if (best := c.best()) is not None]
        heap = [(best, number) for number, (best, _) in enumerate(classes)]
        heapq.heapify(heap)
        while heap:
            (_, _, name), number = heapq.heappop(heap)
            size_class = classes[number][1]
            if not room.dominates(size_class.size):
                continue
            operation = self._books.operations[name]
            held = self._books.limits.full_level(operation) is not None
            slots = [] if held else operation.slots.take(self._jobs_per_start(operation, pace_ms))
            if slots:
                placed.append((operation, slots))
                room = room - size_class.size
                self._precommit(operation, size_class.size)
                self.refresh(operation)
            elif held:
                self.refresh(operation)
            else:
                self.order.remove(operation.id)
            best = size_class.best()
            if best is not None:
                heapq.heappush(heap, (best, number))
        for operation, _ in placed:
            # Booked for good when the allocation is added.
            self._precommit(operation, ZERO - operation.spec.resources)
        return placed

    def _precommit(self, operation: OperationBook, amount: Resources) -> None:
        operation.precommit = operation.precommit + amount
        self._books.limits.use(operation, amount)

    def extension(self, node: Node, allocation: Allocation, pace_ms: int) -> list[JobSlot] | TakeBackReason | None:
        """More jobs for an allocation, or that its place is given back at the end of its job, or neither."""
        operation = self._books.operations.get(allocation.operation)
        if operation is None or not operation.schedulable or allocation.state is not AllocationState.RUNNING:
            return None
        unstarted = len(allocation.slots) - (allocation.job is not None)
        if self._wanted_elsewhere(node, allocation, operation):
            return TakeBackReason.GIVEN_BACK if unstarted else None
        ahead = self._jobs_ahead(operation, pace_ms)
        spare = operation.slots.pending_count - self._places(operation)
        count = min(ahead - unstarted, spare, operation.slots.ready_count)
        if count <= 0 or ahead <= 1:
            return None
        slots = operation.slots.take(count)
        self.refresh(operation)
        return slots or None

    def _jobs_per_start(self, operation: OperationBook, pace_ms: int) -> int:
        spare = operation.slots.pending_count - self._places(operation)
        return max(1, min(self._jobs_ahead(operation, pace_ms), spare))

    def _jobs_ahead(self, operation: OperationBook, pace_ms: int) -> int:
        """As many jobs as end in two heartbeat round trips, by the measured length of the operation's jobs; one until measured."""
        if operation.mean_job_ms is None:
            return 1
        ahead = math.ceil(_ROUND_TRIPS_AHEAD * pace_ms / max(operation.mean_job_ms, 1.0))
        return max(1, min(LARGEST_ALLOCATION_JOBS, ahead))

    def _places(self, operation: OperationBook) -> int:
        """At most how many more jobs of it the tree's free room could run at this moment."""
        free = self._books.total - self._books.used
        return operation.spec.resources.times_that_fit(free) if free.dominates(ZERO) else 0

    def _judge_size(self, operation: OperationBook) -> None:
        """Whether a job of it could run on some node, were the node empty. Without any node nothing is said."""
        size = operation.spec.resources
        fits = not self._shapes or any(shape.dominates(size) for shape in self._shapes)
        if fits != operation.fits_somewhere:
            operation.fits_somewhere = fits
            self._books.touched.add(operation.id)

    def _wanted_elsewhere(self, node: Node, allocation: Allocation, operation: OperationBook) -> bool:
        """Its operation has more than it is owed, and another that has less could use the place."""
        if self.satisfaction(operation) <= 1 + EPS:
            return False
        room = node.free + allocation.resources
        return any(self._is_short(c.best(), operation.id) for c in self.order.fitting(room))

    @staticmethod
    def _is_short(best: tuple[float, int, OperationId] | None, but: OperationId) -> bool:
        return best is not None and best[0] < 1 - EPS and best[2] != but
