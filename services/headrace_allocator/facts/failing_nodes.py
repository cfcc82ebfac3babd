"""Nodes on which jobs fail: which operations avoid a node, which nodes are held back, and which are suspect.

* A failed job's next attempt avoids the node where the job failed, for five minutes at most, while another node could take the job.
* An operation avoids a node on which its jobs fail in a row (`FailureRun`), while another node could take its jobs.
* A node is held back from all operations while the jobs of several operations fail on it in a row. At most three failures of each operation
  count. They count in two cases: the operation has ended no job on other nodes, or it completes jobs on other nodes and at most one in ten
  of its jobs fails on those nodes. If several users have live operations, the failing operations must be of several users: otherwise one
  person could take nodes from all other users, with jobs that fail on purpose on chosen nodes.
* A node is suspect if its run of failures is too long even if only the operations that complete jobs on other nodes are counted. An
  operation that fails everywhere therefore makes no node suspect.

On a node that has completed nothing yet, each user may start two jobs at first. Then, on each heartbeat, each user may start twice as many
jobs as the node has allocations. So only few jobs fail before the first failure is known. In a tree with gangs there is no such bound.
Nothing is saved: after a restart the runs begin anew.

Cost of a heartbeat: a look at the operations whose jobs fail on the node of the heartbeat; nothing if no job fails there. Bounds:
`_MOST_OPERATIONS` for each node, `_MOST_NODES` nodes and `_MOST_RETRIES` retries a node for each operation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from itertools import compress, islice
from typing import Final

import msgspec

from headrace.ids import NodeName, OperationId
from headrace.pools.node_filter import matches
from headrace.resources import Resources
from headrace.runtime.engine import Figure, counter, gauge
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace_allocator.facts.failure_runs import Turn, least_suspect
from headrace_allocator.facts.job_outcomes import NodeFailures, Outcomes, PairFailures
from headrace_allocator.facts.node_shapes import NodeShapes
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation, sizes_of
from headrace_allocator.facts.pool_tree import PoolStates

#: Upper bound of the operations that are known to fail on one node.
_MOST_OPERATIONS: Final = 32
#: Upper bound of the nodes on which one operation is known to fail. Also upper bound of the held back nodes that are examined to find out
#: whether another node could take a job.
_MOST_NODES: Final = 64
#: Upper bound of the retries of one operation that avoid one node.
_MOST_RETRIES: Final = 16
#: Seconds for which the retry of a failed job avoids the node on which the job failed.
_RETRIES_AVOID_S: Final = 300.0
#: Upper bound of the failures of one operation that count against a node.
_MOST_COUNTED: Final = 3
#: A node is held back only if jobs of at least this number of operations failed there.
_LEAST_OPERATIONS: Final = 2
#: Failures of an operation are evidence against a node only if on other nodes at most one in `_ONE_OF` of the operation's jobs fails.
_ONE_OF: Final = 10
#: Number of jobs that each user may start at first on a node that has completed nothing yet.
_FIRST_STARTS: Final = 2


class Allowed(msgspec.Struct, frozen=True):
    """Bounds and exclusions for the jobs that may start on a node on one heartbeat."""

    #: Upper bound of the allocations that start; None: no bound.
    most_starts: int | None = None
    #: Upper bound of the allocations of one user that start; None: no bound.
    most_of_a_user: int | None = None
    #: True if the node is held back. Then the allocations on the node give back their jobs that have not begun.
    is_held: bool = False
    #: True if each allocation gets one job at a time.
    one_job: bool = False
    #: Operations that may start nothing on the node.
    avoided: Collection[OperationId] = ()
    #: Operations that may start one allocation on the node, and no more.
    once: Collection[OperationId] = ()
    #: By operation, indexes of ready jobs that may not start on the node, because their last attempt failed there.
    elsewhere: Mapping[OperationId, Collection[int]] = {}

    def one_job_of(self, operation: OperationId) -> bool:
        """True if an allocation of the operation gets one job at a time."""
        return self.one_job or operation in self.once

    def drains(self, operation: OperationId) -> bool:
        """True if the operation's allocations on the node must give back their jobs that have not begun."""
        return self.is_held or operation in self.avoided or operation in self.once


#: No bound: any job may start.
ANYTHING: Final = Allowed()


class SuspectChange(msgspec.Struct, frozen=True):
    """A node became suspect, or is suspect no more."""

    node: NodeName
    is_suspect: bool
    #: Operations whose jobs failed on the node in a row, each with its number of failures.
    failures: dict[OperationId, int]


class FailingNodes:
    """The nodes of a tree on which jobs fail."""

    def __init__(
        self,
        nodes: Mapping[NodeName, Node],
        operations: Mapping[OperationId, Operation],
        pools: PoolStates,
        shapes: NodeShapes,
        gangs: Mapping[OperationId, Operation],
    ) -> None:
        self._nodes = nodes
        self._operations = operations
        self._pools = pools
        self._shapes = shapes
        self._gangs = gangs
        #: Time of the last heartbeat or tick (steady-clock seconds).
        self.now_s = 0.0
        #: Number of live operations by user.
        self._live_of_user: Counter[str] = Counter()
        #: Nodes that are held back.
        self.held: dict[NodeName, None] = {}
        #: Nodes that are suspect.
        self.suspect: dict[NodeName, None] = {}
        #: Nodes that became suspect or are suspect no more, not reported yet.
        self.changes: list[SuspectChange] = []
        self._found = self._tried = 0

    @property
    def is_on(self) -> bool:
        """True if the tree holds back nodes on which jobs fail."""
        return self._pools.options.hold_back_failing_nodes

    # --- what happens ---------------------------------------------------------------------------------------------

    def note_end(self, node: Node, operation: Operation, end: JobEnd) -> None:
        """Count the end of a job. A job that was aborted or lost says nothing about the node, so it does not count."""
        if not self.is_on or end.result not in (JobResult.COMPLETED, JobResult.FAILED):
            return
        if node.failures is None:
            node.failures = NodeFailures()
        if operation.outcomes is None:
            operation.outcomes = Outcomes()
        failures, outcomes, name = node.failures, operation.outcomes, node.record.node
        outcomes.forget_retry(end.index)
        pair = outcomes.failing_on.get(name)
        if end.result is JobResult.COMPLETED:
            outcomes.complete(name)
            failures.run.complete()
            failures.of.clear()
            if pair is not None:
                pair.complete()
            self._settle(node)
            return
        outcomes.failed += 1
        failures.run.fail(self.now_s)
        if operation.id in failures.of or len(failures.of) < _MOST_OPERATIONS:
            failures.of[operation.id] = failures.of.get(operation.id, 0) + 1
        self._note_pair(node, operation, pair, end.index)

    def note_start(self, node: Node, operation: Operation) -> None:
        """Record that an allocation of the operation starts on a node."""
        failures = node.failures
        if failures is None:
            return
        pair = failures.pairs.get(operation.id)
        self._tried += failures.run.is_held
        failures.run.note_start(self.now_s)
        if pair is not None:
            pair.note_start(self.now_s)

    def note_operation(self, operation: Operation) -> None:
        """Add a live operation."""
        self._live_of_user[operation.user] += 1

    def forget_operation(self, operation: Operation) -> None:
        """Remove an operation that is over. The failures of its jobs remain as evidence against nodes if the operation completed jobs on
        other nodes.
        """
        self._live_of_user[operation.user] -= 1
        if not self._live_of_user[operation.user]:
            del self._live_of_user[operation.user]
        for node in self._blamed(operation):
            failures = node.failures
            assert failures is not None
            failures.pairs.pop(operation.id, None)
            if operation.id in failures.of:
                if self._is_proof(operation, node.record.node, failures.of[operation.id]):
                    failures.over[operation.id] = operation.user
                else:
                    del failures.of[operation.id]

    def clear(self, node: Node) -> None:
        """Forget all failures on a node, because a person undrained the node or the node was enrolled anew."""
        if node.failures is None:
            return
        for name in node.failures.pairs:
            operation = self._operations.get(name)
            if operation is not None and operation.outcomes is not None:
                operation.outcomes.forget_node(node.record.node)
        node.failures = None
        self._settle(node)

    def tick(self, now_s: float) -> None:
        """Note the time. If the option to hold back nodes has been switched off in the tree, forget the failures on all nodes that are held
        back.
        """
        self.now_s = now_s
        if not self.is_on:
            for name in list(self.held):
                self.clear(self._nodes[name])

    # --- what may start -------------------------------------------------------------------------------------------

    def allowed(self, node: Node) -> Allowed:
        """Return what may start on a node now."""
        if not self.is_on:
            return ANYTHING
        failures = node.failures
        if failures is None:
            return Allowed(most_of_a_user=self._first_starts(node), one_job=True)
        if failures.of or failures.run.is_held:
            self._judge(node, failures)
        turn = failures.turn(self.now_s)
        if turn is not Turn.ANY and self._others_are_held(node):
            turn = Turn.ANY
        if turn is Turn.NONE:
            return Allowed(0, is_held=True)
        is_new, is_single = not failures.run.ended_before, turn is Turn.SINGLE
        if not (is_new or is_single or failures.counted or failures.pairs):
            return ANYTHING
        most_of_a_user = None
        if is_new:
            most_of_a_user = 1 if failures.counted else self._first_starts(node)
        is_one_job = is_new or failures.counted > 0
        allowed = Allowed(1 if is_single else None, most_of_a_user, is_held=is_single, one_job=is_one_job)
        return self._with_operations(node, failures, allowed) if failures.pairs else allowed

    def _first_starts(self, node: Node) -> int | None:
        """Return how many jobs each user may start on a node that has completed nothing yet; None if there is no bound.

        Each user has a bound of their own: otherwise a user whose jobs fail immediately would use up all the starts. A tree with gangs has
        no bound, because all jobs of a gang start together.
        """
        return None if self._gangs else max(_FIRST_STARTS, 2 * len(node.allocations))

    def turns_away(self, node: Node, operation: Operation) -> bool:
        """True if no job of the operation may start on the node now, because jobs fail there."""
        failures = node.failures
        if failures is None or not self.is_on:
            return False
        if failures.turn(self.now_s) is Turn.NONE and not self._others_are_held(node):
            return True
        pair = None if operation.gang is not None else failures.pairs.get(operation.id)
        return pair is not None and pair.turn(self.now_s) is Turn.NONE and self._may_go_elsewhere(node, operation)

    def kept_from(self, node: Node, operation: Operation) -> Collection[int]:
        """Return the indexes of an operation's ready jobs that may not start on a node, because their last attempt failed there."""
        pair = None if node.failures is None else node.failures.pairs.get(operation.id)
        if pair is None or not pair.retries or not self._may_go_elsewhere(node, operation):
            return ()
        return self._retries(pair, operation)

    def _with_operations(self, node: Node, failures: NodeFailures, allowed: Allowed) -> Allowed:
        """Return `allowed` with three things added: the operations that avoid the node, the operations that may try one allocation there,
        and the jobs whose retry avoids the node.
        """
        avoided, once, elsewhere = set(), set(), {}
        for name, pair in failures.pairs.items():
            operation = self._operations.get(name)
            if operation is None or operation.gang is not None or not (pair.failures or pair.retries):
                continue
            turn, retries = pair.turn(self.now_s), self._retries(pair, operation)
            if turn is Turn.ANY and not retries:
                continue
            if not self._may_go_elsewhere(node, operation):
                if (
                    pair.is_held
                    and operation.outcomes is not None
                    and operation.outcomes.completes_beside(node.record.node)
                ):
                    once.add(name)
                continue
            if turn is Turn.NONE or len(retries) >= operation.slots.ready_count:
                avoided.add(name)
                continue
            if turn is Turn.SINGLE:
                once.add(name)
            if retries:
                elsewhere[name] = retries
        if not (avoided or once or elsewhere):
            return allowed
        return msgspec.structs.replace(allowed, avoided=avoided, once=once, elsewhere=elsewhere)

    def _retries(self, pair: PairFailures, operation: Operation) -> list[int]:
        if not pair.retries or self.now_s > pair.failed_s + _RETRIES_AVOID_S:
            return []
        return [index for index in pair.retries if operation.slots.is_ready(index)]

    def _others_are_held(self, node: Node) -> bool:
        """True if all other nodes of the tree that accept jobs are held back."""
        held = (self._nodes[name] for name in islice(self.held, _MOST_NODES) if name != node.record.node)
        return len(self._shapes) <= 1 + sum(other.accepts_jobs for other in held)

    def _may_go_elsewhere(self, node: Node, operation: Operation) -> bool:
        """True if there is another node that is not held back and could run a job of the operation if nothing else ran there."""
        # The other node must be large enough for a retry of the largest job.
        sizes = list(compress(sizes_of(operation), operation.fitting)) or sizes_of(operation)
        size, filters = reduce(Resources.or_more, sizes), self._pools.filters_of(operation.spec)
        others = self._shapes.count(filters, size)
        pairs = operation.outcomes.failing_on if operation.outcomes is not None else {}
        kept = (name for name, pair in pairs.items() if pair.is_held)
        for name in {node.record.node, *kept, *islice(self.held, _MOST_NODES)}:
            other = self._nodes.get(name)
            if other is not None and other.accepts_jobs and other.total.dominates(size):
                others -= all(matches(formula, other.record.tags) for formula in filters)
        return others > 0

    # --- which nodes are to blame ---------------------------------------------------------------------------------

    def _note_pair(self, node: Node, operation: Operation, pair: PairFailures | None, index: int) -> None:
        assert node.failures is not None
        assert operation.outcomes is not None
        pairs, nodes = node.failures.pairs, operation.outcomes.failing_on
        if pair is None:
            if len(pairs) >= _MOST_OPERATIONS:
                self._drop_pair(node, next(iter(pairs)))
            if len(nodes) >= _MOST_NODES:
                oldest = self._nodes.get(next(iter(nodes)))
                if oldest is not None:
                    self._drop_pair(oldest, operation.id)
            pair = pairs[operation.id] = nodes[node.record.node] = PairFailures()
        pair.fail(self.now_s)
        pair.failed_s = self.now_s
        # All jobs of a gang start again together, so none of them can avoid a node.
        if operation.gang is None:
            pair.judge(pair.failures, self.now_s)
            operation.outcomes.note_retry(index, node.record.node, _MOST_RETRIES)

    def _drop_pair(self, node: Node, name: OperationId) -> None:
        if node.failures is not None:
            node.failures.pairs.pop(name, None)
        operation = self._operations.get(name)
        if operation is not None and operation.outcomes is not None:
            operation.outcomes.forget_node(node.record.node)

    def _judge(self, node: Node, failures: NodeFailures) -> None:
        """Decide whether a node is held back, and whether it is suspect."""
        counted = proved = 0
        users: Counter[str] = Counter()
        for name, here in failures.of.items():
            operation, most = self._operations.get(name), min(here, _MOST_COUNTED)
            is_proof = name in failures.over if operation is None else self._is_proof(operation, node.record.node, here)
            if is_proof or (operation is not None and _is_open(operation, here)):
                counted += most
                users[failures.over[name] if operation is None else operation.user] += 1
                proved += most if is_proof else 0
        if len(users) == 1 and not self._live_of_user.keys() <= users.keys():
            counted = 0
        failures.counted = counted
        failures.run.judge(counted if users.total() >= _LEAST_OPERATIONS else 0, self.now_s)
        failures.is_suspect = failures.run.is_held and proved >= least_suspect(failures.run.ended_before)
        self._settle(node)

    def _settle(self, node: Node) -> None:
        """Add the node to the lists of held back and suspect nodes, or remove it from them. If the node became suspect or is suspect no
        more, note this change, so that it is reported.
        """
        name, failures = node.record.node, node.failures
        if failures is not None and not failures.of:
            failures.is_suspect, failures.counted = False, 0
            failures.over.clear()
        is_held = failures is not None and failures.run.is_held
        is_suspect = failures is not None and failures.is_suspect
        (self.held.setdefault if is_held else self.held.pop)(name, None)
        if is_suspect != (name in self.suspect):
            (self.suspect.setdefault if is_suspect else self.suspect.pop)(name, None)
            self._found += is_suspect
            self.changes.append(SuspectChange(name, is_suspect, dict(failures.of) if failures is not None else {}))

    def _is_proof(self, operation: Operation, name: NodeName, here: int) -> bool:
        """True if an operation completes its jobs on other nodes, so that its failures on this node are the fault of the node."""
        outcomes = operation.outcomes
        if outcomes is None or not outcomes.completes_beside(name):
            return False
        # Failures on other nodes that the operation avoids do not count against the operation: those nodes may be at fault, too.
        blamed = sum(pair.failures for other, pair in outcomes.failing_on.items() if pair.is_held and other != name)
        failed = max(0, outcomes.failed - here - blamed)
        return failed * _ONE_OF <= outcomes.completed + failed

    def _blamed(self, operation: Operation) -> Iterable[Node]:
        names = () if operation.outcomes is None else operation.outcomes.failing_on
        found = [self._nodes.get(name) for name in names]
        return [node for node in found if node is not None and node.failures is not None]

    def check(self, node: Node) -> list[str]:
        """Return a text for each broken invariant; empty if all hold."""
        name, failures = node.record.node, node.failures
        listed = (name in self.held, name in self.suspect)
        if listed != ((False, False) if failures is None else (failures.run.is_held, failures.is_suspect)):
            return [f"node {name}: it is not listed as held back or suspect as its failures say"]
        broken = []
        for operation, pair in failures.pairs.items() if failures is not None else ():
            known = self._operations.get(operation)
            if known is None or known.outcomes is None or known.outcomes.failing_on.get(name) is not pair:
                broken.append(f"node {name}: operation {operation} has no record of its failures there")
        return broken

    def figures(self) -> list[Figure]:
        """Return the metrics of nodes that are held back or suspect."""
        return [
            gauge(
                "held_back_nodes",
                "nodes",
                len(self.held),
                "Nodes that get single jobs, because jobs fail on them in a row.",
            ),
            gauge(
                "suspect_nodes", "nodes", len(self.suspect), "Nodes on which jobs fail that complete on other nodes."
            ),
            counter("suspect_nodes_found", "nodes", self._found, "Nodes that became suspect."),
            counter(
                "tried_nodes", "allocations", self._tried, "Allocations that were tried on nodes that are held back."
            ),
        ]


def _is_open(operation: Operation, here: int) -> bool:
    """True if the operation has ended no job on any other node, so that it is open whether the operation or this node is to blame for the
    failures.
    """
    outcomes = operation.outcomes
    return outcomes is not None and not outcomes.completed_on and outcomes.failed <= here
