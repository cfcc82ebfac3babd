"""Recovering: what an allocator does not know yet after its start, because nodes have not spoken.

Two things end at different times. Usage is complete once every node that was enrolled at the start has reported or is silent for the
heartbeat timeout: a dead node has no room, so that nothing need wait for it. Doubt is over only once every one of them has reported or
lost its lease: until then it may still run jobs that a former allocator gave out. Drained nodes count like all others. A node that runs
nothing by the record of the former allocator (`empty_nodes`) is not waited for.
A node has reported once a heartbeat shows that it obeyed this allocator's term: only that is surely no late word of before.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

from headrace.ids import NodeName
from headrace.runtime.engine import Moment
from headrace.wire.heartbeat import JobKey


class Recovery:
    """The nodes whose word is missing."""

    def __init__(self) -> None:
        self.operations_known = False
        self.nodes_known = False
        #: When doubt was over (steady clock); None before.
        self.over_s: float | None = None
        #: Nodes that lost their lease without a word and have not spoken since, so that nobody knows what they ran.
        #: True of those that may come back, false of those that were removed.
        self.lost_nodes: dict[NodeName, bool] = {}
        #: Jobs of such nodes that are lost, and of which the ledger does not have the end yet.
        self.unrecorded_losses: set[JobKey] = set()
        self._enrolled = 0
        #: Nodes that may run what nobody knows of; and those of them for which usage is not complete.
        self._unheard: set[NodeName] = set()
        self._missing: set[NodeName] = set()

    def begin(self, enrolled: Iterable[NodeName]) -> None:
        """Starts to wait for the nodes that are enrolled. Only the first call counts."""
        if not self.nodes_known:
            self._unheard = set(enrolled)
            self._missing = set(self._unheard)
            self._enrolled = len(self._unheard)
            self.nodes_known = True

    @property
    def complete(self) -> bool:
        """True if what is known of usage is all that there is, but for nodes that are offline."""
        return self.operations_known and self.nodes_known and not self._missing

    def awaits(self, node: NodeName) -> bool:
        """True if this node's word is missing."""
        return node in self._unheard

    def miss_no_more(self, node: NodeName) -> None:
        """A node is silent for the heartbeat timeout. What it may run stays in doubt."""
        self._missing.discard(node)

    def settle(self, node: NodeName, *, lost: bool) -> None:
        """A node reported in full, or lost its lease."""
        self._missing.discard(node)
        if node in self._unheard:
            self._unheard.discard(node)
            if lost:
                self.lost_nodes[node] = True
        elif not lost:
            self.lost_nodes.pop(node, None)

    def give_up(self, node: NodeName) -> None:
        """A lost node never comes back."""
        if node in self.lost_nodes:
            self.lost_nodes[node] = False

    def awaited(self, most: int) -> list[NodeName]:
        """The names of up to `most` nodes that may run jobs nobody knows of, in their order."""
        return nsmallest(most, self._unheard)

    @property
    def some_may_return(self) -> bool:
        """True if a lost node may come back with jobs that it ran."""
        return any(self.lost_nodes.values())

    @property
    def doubt_over(self) -> bool:
        """True if no job is in doubt any more: every node obeys this term, or lost its lease."""
        return self.over_s is not None

    def end_doubt(self, moment: Moment) -> bool:
        """True if doubt is over at this moment, and was not before."""
        if self.doubt_over or not (self.operations_known and self.nodes_known) or self._unheard:
            return False
        self.over_s = moment.steady_s
        return True

    def progress(self) -> tuple[int, int]:
        """Counts the awaited nodes that have reported, and all that are enrolled."""
        return self._enrolled - len(self._unheard), self._enrolled
