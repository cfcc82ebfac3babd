"""Nodes that fell silent or were removed: their resources leave the total at once, and their jobs are requeued when the lease is over.

Very many nodes may be cut off at the same time. So a tick lists the silent nodes, and they are processed a few at a time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.runtime.engine import Figure, Moment, by_label, counter
from headrace.wire.refusals import WrongState
from headrace_allocator.decision.ranking import Ranking
from headrace_allocator.effects import Effect, LowerLease, report_of
from headrace_allocator.explain.words import ends_of_lost
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.lost_jobs import lose_node
from headrace_allocator.facts.nodes import Node

#: Number of nodes that are processed at once: the jobs of one node, some twenty, take half a millisecond.
_AT_ONCE: Final = 5
#: Upper bound of the pools with counts, because ephemeral pools come and go. At this bound, a new pool replaces the pool that was counted
#: first.
_MOST_POOLS: Final = 10_000


def runs_nothing(facts: Facts, node: Node) -> bool:
    """True if a node runs nothing and can start nothing without a new order, so that it may be recorded as empty.

    The conditions: the node has reported in this term or its lease is over, it has no allocations, and the ledger has recorded all ends of
    its jobs. Earlier orders need not be checked: for each order that the node may still obey, an allocation is booked (`Node.check`).
    """
    recovery, name = facts.recovery, node.record.node
    if recovery.awaits(name) or node.allocations or node.holds or node.reporting:
        return False
    if name in recovery.lost_nodes:
        # While a job is unconfirmed, it may have run on this lost node, and then the ledger lacks the end of the job.
        return not (facts.doubtful or recovery.unrecorded_losses)
    return node.enrolled and node.incarnation is not None


class LostNodes:
    """Takes silent and removed nodes and their jobs out of the facts."""

    def __init__(self, facts: Facts, ranking: Ranking) -> None:
        self._facts = facts
        self._ranking = ranking
        #: Nodes that were silent at a tick and are not processed yet, the longest silence first.
        self._due: deque[Node] = deque()
        #: Lost jobs by the pool of their operation. The root is included from the start, so that the metric always exists.
        self._lost: Counter[PoolName] = Counter({ROOT_POOL: 0})

    @property
    def some_due(self) -> bool:
        """True if silent nodes are still to be processed."""
        return bool(self._due)

    def tick(self, now: Moment) -> None:
        """Queue the silent nodes for `settle`, without the nodes that were processed before and hold nothing."""
        facts = self._facts
        if not self._due:
            silent = facts.last_heard.silent(facts.timing, facts.longest_lease_s, now)
            self._due.extend(node for node in silent if self._is_due(node))

    def _is_due(self, node: Node) -> bool:
        if node.online or node.allocations or self._facts.recovery.awaits(node.record.node):
            return True
        return not self._facts.empty_nodes.holds(node.record.node) and runs_nothing(self._facts, node)

    def settle(self, now: Moment) -> list[Effect]:
        """Process a few of the queued nodes, if they are still silent."""
        effects: list[Effect] = []
        for _ in range(min(_AT_ONCE, len(self._due))):
            node = self._due.popleft()
            if self._facts.nodes.get(node.record.node) is not node:
                continue
            if node.is_silent(self._facts.timing, now):
                self.mark_offline(node)
            if node.lease_is_over(self._facts.longest_lease_s, now):
                effects += self.requeue_jobs_of(node, now)
            if not node.online and runs_nothing(self._facts, node):
                self._facts.empty_nodes.add(node.record.node)
        self.remove_gone()
        return effects

    def mark_offline(self, node: Node) -> None:
        """Take a node offline because it was silent for too long: its resources leave the total."""
        self._facts.recovery.miss_no_more(node.record.node)
        if self._facts.set_offline(node):
            self._ranking.mark_all()

    def requeue_jobs_of(self, node: Node, now: Moment, *, for_good: bool = False) -> list[Effect]:
        """Requeue the jobs of a node on which nothing runs any more.

        With `for_good`, jobs that would wait for the node to return are requeued, too.
        """
        self._facts.recovery.settle(node.record.node, lost=True)
        holding = {one.operation for one in node.allocations.values()}
        lost = lose_node(self._facts, node, int(now.steady_s - node.heard_s), for_good=for_good)
        if for_good:
            self._facts.recovery.give_up(node.record.node)
        for one in lost:
            self._count(one.operation)
        self._ranking.refresh_all(holding)
        return report_of(ends_of_lost(lost, now))

    def of_pools(self) -> Callable[[], list[Figure]]:
        """Copy the counts of jobs lost with their nodes, by pool. Return a function that makes metrics of the copy."""
        words = "Jobs of this pool's operations that were lost with their node. Child pools have their own counts."
        family = counter("jobs_lost_with_nodes", "jobs", 0, words)
        by_pool: dict[str, float] = {str(pool): count for pool, count in self._lost.items()}
        return lambda: by_label(family, "jobs_lost_with_nodes_of", "pool", by_pool)

    def _count(self, operation: OperationId) -> None:
        known = self._facts.operations.get(operation)
        if known is None:
            return
        pool = known.spec.pool
        if pool not in self._lost and len(self._lost) >= _MOST_POOLS:
            del self._lost[next(name for name in self._lost if name != ROOT_POOL)]
        self._lost[pool] += 1

    def kept_from(self, node: Node, machine: str, now: Moment) -> WrongState | None:
        """Return a refusal if another machine may not take the node's name yet, else None.

        The refusal lasts while jobs may still run on the machine that has the name now.
        """
        name, facts = node.record.node, self._facts
        if node.may_change_machine(facts.timing, now) and not facts.recovery.awaits(name):
            return None
        state = f"on {node.record.machine}, heard {now.steady_s - node.heard_s:.0f} s ago, and may run jobs there"
        return WrongState(
            "node", name, state, f"another name for the node on {machine}, or no agent and no jobs on the old machine"
        )

    def shorten_lease(self, now: Moment) -> list[Effect]:
        """Return to the configured lease once no runner can still have a longer lease.

        That is the case when the longer lease has passed since all nodes obeyed this term.
        """
        facts, ours_s = self._facts, self._facts.timing.node_lease_s
        since_s = facts.recovery.over_s
        if facts.longest_lease_s <= ours_s or since_s is None or now.steady_s - since_s <= facts.longest_lease_s:
            return []
        facts.longest_lease_s = ours_s
        return [LowerLease(int(ours_s * 1000))]

    def remove_gone(self) -> None:
        """Forget nodes that are no longer enrolled. A node that may hold jobs stays until its lease is over."""
        facts = self._facts
        leaving = [facts.nodes[name] for name in facts.leaving if not facts.recovery.awaits(name)]
        gone = [node for node in leaving if not (node.allocations or node.holds)]
        for node in gone:
            facts.remove_node(node)
        if gone:
            self._ranking.mark_all()
