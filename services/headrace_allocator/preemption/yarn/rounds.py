"""Rounds of the older YARN policy: the shortages of all pools are added up and taken from the pools that would be served last.

Source: section 6 of the specification of YARN's FairScheduler.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping

from headrace.ids import ROOT_POOL, NodeName, OperationId, PoolName
from headrace.pools.pool_config import PreemptionSwitch
from headrace.resources import ZERO, Resources
from headrace.runtime.engine import Moment
from headrace.wire.snapshots import ShareItem
from headrace.yarn_comparison import QueuePolicy, larger
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.operations import Operation
from headrace_allocator.preemption.yarn.candidates import is_master, is_there, may_lose, policy_of
from headrace_allocator.preemption.yarn.plans import Plan, Plans
from headrace_allocator.preemption.yarn.queue_victims import Branch, Round, Size, WarnedContainers


class Rounds:
    """The pools that are short of resources, and the allocations that were warned for them."""

    def __init__(self, facts: Facts, plans: Plans) -> None:
        self._facts = facts
        self._plans = plans
        self._short: dict[PoolName, ShareItem] = {}
        self._warned: WarnedContainers[Allocation] = WarnedContainers()
        self._began_s: float | None = None

    def on_shares(self, items: Mapping[str, ShareItem], keys: Iterable[str]) -> None:
        """Record which of these pools are short of resources according to the newest shares."""
        for key in keys:
            if key.startswith("/"):
                item, name = items.get(key), PoolName(key[1:])
                self._short.pop(name, None)
                if item is not None and item.claims:
                    self._short[name] = item

    @property
    def warned(self) -> int:
        """The number of warned allocations."""
        return len(self._warned.listed)

    def is_due(self, now: Moment) -> bool:
        """True if the interval since the last round is over and there is something to do."""
        if not (self._short or self._warned.listed):
            return False
        interval_s = self._facts.pools.options.yarn.legacy_interval / 1000
        return self._began_s is None or now.steady_s - self._began_s >= interval_s

    def run(self, now: Moment) -> Iterator[NodeName | None]:
        """Run one round. Each step examines one pool, operation or allocation, and yields the node for which it made a plan, or None."""
        self._began_s = now.steady_s
        options = self._facts.pools.options
        amount = ZERO
        for name, item in self._short.items():
            to_fair, to_min = item.due_to_fair_share or ZERO, item.due_to_min_share or ZERO
            policy = QueuePolicy.FAIR if options.yarn.older_release else self._policy(name)
            amount = amount + larger(to_fair, to_min, self._facts.pools.total, policy)
        branches: dict[OperationId, Branch[Allocation]] = {}
        root = yield from self._tree(branches)

        def find(one: Allocation) -> tuple[Branch[Allocation], Resources] | None:
            branch = branches.get(one.operation)
            return (branch, one.usage) if branch is not None and is_there(one) else None

        part = Round(
            *(amount, root, self._facts.pools.total),
            needy_quirk=options.yarn.drf_needy_quirk,
            skips_content=not options.yarn.older_release,
        )
        until_s = now.steady_s + options.yarn.legacy_interval / 1000
        now_ms = now.steady_us // 1000
        for over in self._warned.take(part, find, now_ms, options.yarn.wait_before_kill):
            if over is not None and not self._plans.is_marked(over):
                self._plans.add(Plan(over.node, (over,), until_s))
                yield over.node
            else:
                yield None

    def _tree(self, branches: dict[OperationId, Branch[Allocation]]) -> Generator[None, None, Branch[Allocation]]:
        """Build the branches of all pools and of all operations that hold something, and return the root.

        Each step examines one pool or operation, and yields None.
        """
        pools, facts = self._facts.pools, self._facts
        of_pool = {
            name: self._branch_of_pool(name, item, pools.pool(name).used) for name, item in list(pools.pools.items())
        }
        root = of_pool.setdefault(ROOT_POOL, Branch(ROOT_POOL, ZERO))
        for name, branch in of_pool.items():
            if branch is not root:
                _join(branch, of_pool.get(pools.pools[name].parent, root))
            yield None
        for operation in list(facts.operations.values()):
            if operation.held != ZERO and operation.share is not None:
                made = branches[operation.id] = Branch(
                    operation.id,
                    operation.held,
                    weight=operation.spec.weight,
                    began=operation.rank,
                    policy=policy_of(operation, pools),
                    containers=self._to_go(operation),
                )
                above = of_pool.get(operation.spec.pool, root)
                above.policy = made.policy
                _join(made, above)
            yield None
        return root

    def _branch_of_pool(self, name: PoolName, item: ShareItem, used: Resources) -> Branch[Allocation]:
        total, options = self._facts.pools.total, item.options
        return Branch(
            name,
            used if name != ROOT_POOL else self._facts.used,
            total.part(item.fair_share.total),
            total.part(item.strong_guarantee_share),
            item.weight,
            policy=QueuePolicy.FAIR if options is not None and options.yarn_memory_only else QueuePolicy.DRF,
            may_lose=options is None or (options.preemption is PreemptionSwitch.ON and options.allow_preemption_from),
        )

    def _to_go(self, operation: Operation) -> Iterator[Size[Allocation]]:
        """Yield each allocation of an operation that is not warned yet: the newest first, the master last."""
        if not may_lose(operation, operation.options(self._facts.pools)):
            return
        there = [one for one in reversed(operation.allocations.values()) if is_there(one)]
        for one in sorted(there, key=lambda each: is_master(operation, each)):
            if one not in self._warned.listed and not self._plans.is_marked(one):
                yield Size(one, one.usage)

    def _policy(self, pool: PoolName) -> QueuePolicy:
        own = next(iter(self._facts.in_pool.get(pool, {}).values()), None)
        return QueuePolicy.DRF if own is None else policy_of(own, self._facts.pools)


def _join(branch: Branch[Allocation], above: Branch[Allocation]) -> None:
    branch.above = above
    above.below.append(branch)
