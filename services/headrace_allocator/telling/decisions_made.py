"""Decisions on their way to those who follow what happens. Nothing depends on them, and the oldest are dropped where they are too many."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.ids import TreeName
from headrace.resources import Resources, Share
from headrace.runtime.engine import Moment
from headrace.wire.happenings import MOST_DECISIONS, AllocationPreempted, AllocationStarted, Decisions
from headrace.wire.heartbeat import JobSlot, Start
from headrace.wire.preemption import ObservedPreemption, PreemptionRecord
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolTree

#: Until the next tick.
_MOST_WAITING: Final = 2_000


class _StartMade(msgspec.Struct, frozen=True, gc=False):
    """A start with all that is told of it. Shares are worked out once it is told, since most of a rush are dropped before."""

    start: Start
    allocation: Allocation
    #: By its operation, this place included.
    held: Resources
    fair_share: Share
    total: Resources
    taken: int
    at_ms: int

    def told(self, tree: TreeName) -> AllocationStarted:
        start, allocation = self.start, self.allocation
        return AllocationStarted(
            self.at_ms,
            tree,
            start.operation,
            allocation.node,
            start.allocation,
            start.slots,
            allocation.stage,
            (self.held - allocation.resources).share_of(self.total),
            self.fair_share,
            self.taken,
        )


class DecisionsMade:
    """The newest decisions that were not told yet, numbered, so that a reader sees what it missed."""

    def __init__(self, tree: TreeName) -> None:
        self._tree = tree
        self._waiting: deque[_StartMade | AllocationPreempted] = deque(maxlen=_MOST_WAITING)
        #: Of the heartbeat that is being answered. They are told behind what was taken for them.
        self._starts: list[_StartMade] = []
        self._count = 0

    def add_start(
        self, start: Start, allocation: Allocation, operation: Operation, pools: PoolTree, moment: Moment, taken: int
    ) -> None:
        """An operation was given a place, for which so many were taken from others."""
        held, fair_share, total = operation.held, operation.fair_share, pools.total
        self._starts.append(_StartMade(start, allocation, held, fair_share, total, taken, moment.wall_ms))

    def note_starts(self) -> None:
        """All starts and preemptions of a heartbeat are booked."""
        for start in self._starts:
            self._note(start)
        self._starts.clear()

    def note_preemption(self, allocation: Allocation, operation: Operation, record: PreemptionRecord) -> None:
        """A place is taken back."""
        job = None if allocation.job is None else JobSlot(allocation.job.index, allocation.job.attempt)
        pool, node = operation.spec.pool, allocation.node
        self._note(AllocationPreempted(self._tree, operation.id, pool, node, allocation.id, job, record))

    def note_observed(self, observed: Iterable[ObservedPreemption]) -> None:
        """Places would be taken back, did their pools not only observe."""
        for one in observed:
            lost = one.operation, one.pool, one.node, one.allocation
            self._note(AllocationPreempted(self._tree, *lost, None, one.record))

    def take(self, term: int) -> Decisions | None:
        """Takes the first that wait, as many as a message holds."""
        if not self._waiting:
            return None
        first = self._count - len(self._waiting)
        taken = (self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_DECISIONS)))
        some = [each.told(self._tree) if isinstance(each, _StartMade) else each for each in taken]
        return Decisions(self._tree, term, first, some)

    def _note(self, decision: _StartMade | AllocationPreempted) -> None:
        self._waiting.append(decision)
        self._count += 1
