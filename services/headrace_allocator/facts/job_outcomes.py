"""The ended jobs of an operation, by result and node, and the failures on each node."""

from __future__ import annotations

from headrace.ids import NodeName, OperationId
from headrace_allocator.facts.failure_runs import FailureRun, Turn


class PairFailures(FailureRun):
    """The failures of one operation on one node."""

    __slots__ = ("failed_s", "retries")

    def __init__(self) -> None:
        super().__init__()
        #: Time of the last failure (steady-clock seconds).
        self.failed_s = 0.0
        #: Indexes of the jobs whose newest attempt failed on the node.
        self.retries: dict[int, None] = {}


class Outcomes:
    """The ended jobs of one operation, as this allocator knows them."""

    __slots__ = ("_failed_on", "completed", "completed_on", "failed", "failing_on")

    def __init__(self) -> None:
        self.completed = 0
        self.failed = 0
        #: The last two nodes on which a job was completed.
        self.completed_on: tuple[NodeName, ...] = ()
        #: Nodes on which jobs failed, in the order of the first failure.
        self.failing_on: dict[NodeName, PairFailures] = {}
        #: The node on which the last attempt of a job failed, for all jobs in `PairFailures.retries`.
        self._failed_on: dict[int, NodeName] = {}

    def complete(self, node: NodeName) -> None:
        """Add a completed job."""
        self.completed += 1
        if node not in self.completed_on:
            self.completed_on = (node, *self.completed_on[:1])

    def completes_beside(self, node: NodeName) -> bool:
        """True if a job was completed on another node than this one."""
        return any(other != node for other in self.completed_on)

    def note_retry(self, index: int, node: NodeName, most: int) -> None:
        """Record the node on which the last attempt of a job failed. For each node only the newest `most` jobs are remembered."""
        retries = self.failing_on[node].retries
        if len(retries) >= most:
            self.forget_retry(next(iter(retries)))
        retries[index] = None
        self._failed_on[index] = node

    def forget_retry(self, index: int) -> None:
        """Forget where the last attempt of a job failed."""
        node = self._failed_on.pop(index, None)
        if node is not None:
            del self.failing_on[node].retries[index]

    def forget_node(self, node: NodeName) -> None:
        """Forget the failures on a node."""
        pair = self.failing_on.pop(node, None)
        for index in pair.retries if pair is not None else ():
            del self._failed_on[index]


class NodeFailures:
    """The failures on one node since the last completed job."""

    __slots__ = ("counted", "is_suspect", "of", "over", "pairs", "run")

    def __init__(self) -> None:
        self.run = FailureRun()
        #: Number of failures of each operation since the last completed job.
        self.of: dict[OperationId, int] = {}
        #: Number of failures that count against the node.
        self.counted = 0
        #: Operations in `of` that are over and completed their jobs on other nodes, each with its user.
        self.over: dict[OperationId, str] = {}
        #: For each operation of which jobs failed on the node: the operation's own run of failures there.
        self.pairs: dict[OperationId, PairFailures] = {}
        self.is_suspect = False

    def turn(self, now_s: float) -> Turn:
        """Return how many jobs may start on the node now."""
        return self.run.turn(now_s) if self.counted else Turn.ANY
