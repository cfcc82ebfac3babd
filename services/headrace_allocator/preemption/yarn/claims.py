"""Claims of operations under the newer YARN policy: the smallest claim is processed first. After that its operation is paused for a while.

Source: section 5 of the specification of YARN's FairScheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from itertools import groupby
from typing import Final

from headrace.ids import NodeName, OperationId
from headrace.pools.node_filter import matches
from headrace.resources import Resources
from headrace.runtime.engine import Moment
from headrace.wire.snapshots import ShareItem
from headrace.yarn_comparison import QueuePolicy
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.operations import Operation, waiting_tasks
from headrace_allocator.preemption.yarn.candidates import containers_on, policy_of
from headrace_allocator.preemption.yarn.plans import Plan, Plans
from headrace_allocator.preemption.yarn.search import FewestMasters, missing_containers, smallest_first

#: Upper bound of the claims that one pass processes.
_MOST: Final = 1_000


class Claims:
    """The operations that claim resources they are owed and do not have."""

    def __init__(self, facts: Facts, plans: Plans) -> None:
        self._facts = facts
        self._plans = plans
        self._due: dict[OperationId, Resources] = {}
        #: Steady-clock seconds until which each operation is paused after its claim was processed.
        self._paused_until_s: dict[OperationId, float] = {}
        self.seen_to = 0

    def forget(self) -> None:
        """Drop all claims."""
        self._due.clear()

    def on_shares(self, items: Mapping[str, ShareItem], keys: Iterable[str]) -> None:
        """Record which of these operations claim something according to the newest shares."""
        for key in keys:
            item, name = items.get(key), OperationId(key)
            self._due.pop(name, None)
            if item is not None and item.claims and not key.startswith("/"):
                amounts = (each for each in (item.due_to_fair_share, item.due_to_min_share) if each is not None)
                self._due[name] = Resources.sum(amounts)

    def some_may_be_seen_to(self, now: Moment) -> bool:
        """True if at least one claim may be processed, since it is not paused."""
        return any(self._paused_until_s.get(name, 0.0) <= now.steady_s for name in self._due)

    def handle_all(self, now: Moment) -> Iterator[NodeName | None]:
        """Process the claims. Each step examines one node, and yields the node for which a plan was made, or None."""
        now_s = now.steady_s
        self._paused_until_s = {name: until_s for name, until_s in self._paused_until_s.items() if until_s > now_s}
        waiting = [(smallest_first(due), name) for name, due in self._due.items() if name not in self._paused_until_s]
        for _, name in nsmallest(_MOST, waiting):
            operation, due = self._facts.operations.get(name), self._due.get(name)
            if operation is None or due is None or not operation.schedulable:
                continue
            yarn = self._facts.pools.options.yarn
            pause_ms = yarn.wait_before_kill + yarn.heartbeat_allowance + yarn.wait_before_next_check
            self._paused_until_s[name] = now_s + pause_ms / 1000
            operation.times_seen_to += 1
            self.seen_to += 1
            self._facts.touch(name)
            yield from self._see_to(operation, due)

    def _see_to(self, operation: Operation, due: Resources) -> Iterator[NodeName | None]:
        slots = operation.slots
        requests = [(task.resources, slots.pending_of(n)) for n, task in waiting_tasks(operation)]
        if not operation.kinds:
            requests = [(operation.spec.resources, slots.pending_count)]
        by_memory = policy_of(operation, self._facts.pools) is not QueuePolicy.DRF
        missing = missing_containers(requests, due, by_memory=by_memory)
        for size, same in groupby(missing):
            names = list(self._facts.nodes)
            for _ in same:
                search = FewestMasters[Allocation](size, self._facts.pools.total)
                for looked_at in range(1, len(names) + 1):
                    if self._is_settled(search, operation, names[looked_at - 1]):
                        break
                    yield None
                if search.best is None or not search.best.containers:
                    # A search for the next container of this size would find no victims either.
                    break
                victims = tuple(one.id for one in search.best.containers)
                node, until_s = NodeName(search.best.node), self._paused_until_s[operation.id]
                self._plans.add(Plan(node, victims, until_s, operation.id, size))
                # The search for the next container begins at the node that had enough victims for the last container.
                names = names[looked_at - 1 :] + names[: looked_at - 1]
                yield node

    def _is_settled(self, search: FewestMasters[Allocation], operation: Operation, name: NodeName) -> bool:
        """Examine a node. Return True if no other node could be a better choice."""
        node = self._facts.nodes.get(name)
        if node is None or not node.accepts_jobs or not node.total.dominates(search.size):
            return False
        if not all(matches(formula, node.record.tags) for formula in self._facts.pools.filters_of(operation.spec)):
            return False
        return search.look_at(containers_on(self._facts, self._plans, node))
