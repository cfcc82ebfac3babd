"""Recovery: what an allocator does not know yet after its start, because nodes have not reported.

Two things become known at different times. Usage is complete once every node that was enrolled at the start has reported or was silent for
the heartbeat timeout: a dead node has no resources, so nothing need wait for it. No job is unconfirmed any more once every such node has
reported or lost its lease: until then a node may still run jobs that an earlier allocator gave out. Drained nodes count like all others. A
node that runs nothing according to the record of the earlier allocator (`empty_nodes`) is not waited for.

A node has reported once a heartbeat shows that it obeyed this allocator's term: such a heartbeat was certainly not sent before this
allocator started.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

from headrace.ids import NodeName
from headrace.runtime.engine import Moment
from headrace.wire.heartbeat import JobKey


class Recovery:
    """The nodes that have not reported since this allocator started. Facts that depend on their reports are not known yet."""

    def __init__(self) -> None:
        self.operations_known = False
        self.nodes_known = False
        #: Time at which the last unconfirmed job was settled (steady clock, seconds); None before.
        self.over_s: float | None = None
        #: Nodes that lost their lease before they reported, and have not reported since, so that their jobs are unknown. True for a node
        #: that may come back, False for a node that was removed.
        self.lost_nodes: dict[NodeName, bool] = {}
        #: Lost jobs of the nodes in `lost_nodes` whose end the ledger has not recorded yet.
        self.unrecorded_losses: set[JobKey] = set()
        self._enrolled = 0
        #: Nodes that may run unknown jobs.
        self._unheard: set[NodeName] = set()
        #: Nodes in `_unheard` whose usage is still awaited. Usage is complete once no such node is left.
        self._missing: set[NodeName] = set()

    def begin(self, enrolled: Iterable[NodeName]) -> None:
        """Start to wait for the enrolled nodes. Only the first call counts."""
        if not self.nodes_known:
            self._unheard = set(enrolled)
            self._missing = set(self._unheard)
            self._enrolled = len(self._unheard)
            self.nodes_known = True

    @property
    def complete(self) -> bool:
        """True if the usage of all nodes is known, apart from offline nodes."""
        return self.operations_known and self.nodes_known and not self._missing

    def awaits(self, node: NodeName) -> bool:
        """True if the node has not reported yet."""
        return node in self._unheard

    def miss_no_more(self, node: NodeName) -> None:
        """Stop waiting for the usage of a node that was silent for the heartbeat timeout. Jobs that it may run stay unconfirmed."""
        self._missing.discard(node)

    def settle(self, node: NodeName, *, lost: bool) -> None:
        """Record that a node reported in full, or lost its lease."""
        self._missing.discard(node)
        if node in self._unheard:
            self._unheard.discard(node)
            if lost:
                self.lost_nodes[node] = True
        elif not lost:
            self.lost_nodes.pop(node, None)

    def give_up(self, node: NodeName) -> None:
        """Record that a lost node never comes back."""
        if node in self.lost_nodes:
            self.lost_nodes[node] = False

    def awaited(self, most: int) -> list[NodeName]:
        """Return the names of up to `most` nodes that may run unknown jobs, in the order of their names."""
        return nsmallest(most, self._unheard)

    @property
    def some_may_return(self) -> bool:
        """True if a lost node may come back with jobs that it ran."""
        return any(self.lost_nodes.values())

    @property
    def doubt_over(self) -> bool:
        """True if no job is unconfirmed any more: every node has reported in this term or lost its lease."""
        return self.over_s is not None

    def end_doubt(self, now: Moment) -> bool:
        """Record that no job is unconfirmed any more, once every node has reported or lost its lease. Returns True only the first time."""
        if self.doubt_over or not (self.operations_known and self.nodes_known) or self._unheard:
            return False
        self.over_s = now.steady_s
        return True

    def progress(self) -> tuple[int, int]:
        """Return the number of awaited nodes that have reported, and the number of nodes that were enrolled at the start."""
        return self._enrolled - len(self._unheard), self._enrolled
