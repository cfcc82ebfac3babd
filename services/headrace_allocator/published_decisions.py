"""Decisions that wait to be published to subscribers. Nothing depends on them, so the oldest are dropped if there are too many."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from headrace.ids import TreeName
from headrace.runtime.engine import Moment
from headrace.wire.happenings import (
    LONGEST_FAILURE_WORDS,
    MOST_BLAMING,
    MOST_DECISIONS,
    MOST_SUSPECTS,
    AllocationPreempted,
    AllocationStarted,
    Decisions,
    NodeSuspected,
)
from headrace.wire.heartbeat import JobSlot, Start
from headrace.wire.preemption import ObservedPreemption, PreemptionRecord
from headrace_allocator.effects import SuspectNode
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation

#: Upper bound of the decisions that wait for the next tick.
_MOST_WAITING: Final = 2_000


class DecisionsMade:
    """The newest decisions that are not published yet. They are numbered, so that a reader notices missing ones."""

    def __init__(self, tree: TreeName) -> None:
        self._tree = tree
        self._waiting: deque[AllocationStarted | AllocationPreempted] = deque(maxlen=_MOST_WAITING)
        #: Starts of the heartbeat that is being answered. They are published after the preemptions that made them possible.
        self._starts: list[AllocationStarted] = []
        self._count = 0
        self._suspects: deque[NodeSuspected] = deque(maxlen=_MOST_WAITING)

    def add_start(self, start: Start, allocation: Allocation, now: Moment) -> None:
        """Record that an operation got an allocation."""
        where = now.wall_ms, self._tree, start.operation, allocation.node, start.allocation, start.slots
        record = start.record
        how = () if record is None else (record.stage, record.share_before, record.fair_share, record.places_taken)
        self._starts.append(AllocationStarted(*where, *how))

    def note_starts(self) -> None:
        """Queue the starts of a heartbeat, after all its preemptions are queued."""
        for start in self._starts:
            self._note(start)
        self._starts.clear()

    def note_preemption(self, allocation: Allocation, operation: Operation, record: PreemptionRecord) -> None:
        """Queue the preemption of an allocation."""
        job = None if allocation.job is None else JobSlot(allocation.job.index, allocation.job.attempt)
        pool, node = operation.spec.pool, allocation.node
        self._note(AllocationPreempted(self._tree, operation.id, pool, node, allocation.id, job, record))

    def note_suspect(self, one: SuspectNode, now: Moment) -> None:
        """Queue the message that a node became suspect, or that it is no longer suspect."""
        what = one.is_suspect, one.words[:LONGEST_FAILURE_WORDS], one.operations[:MOST_BLAMING]
        self._suspects.append(NodeSuspected(now.wall_ms, self._tree, one.node, *what))

    def note_observed(self, observed: Iterable[ObservedPreemption]) -> None:
        """Queue preemptions that did not happen, because their pools only observe preemption (`preemption=observe`)."""
        for one in observed:
            lost = one.operation, one.pool, one.node, one.allocation
            self._note(AllocationPreempted(self._tree, *lost, None, one.record))

    def take(self, term: int) -> Decisions | None:
        """Remove and return the oldest waiting decisions, as many as a message holds. Return None if there are none."""
        if not (self._waiting or self._suspects):
            return None
        first = self._count - len(self._waiting)
        some = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_DECISIONS))]
        suspects = [self._suspects.popleft() for _ in range(min(len(self._suspects), MOST_SUSPECTS))]
        return Decisions(self._tree, term, first, some, suspects)

    def _note(self, decision: AllocationStarted | AllocationPreempted) -> None:
        self._waiting.append(decision)
        self._count += 1
