"""The account of a simulated workload: what pools were owed and had at each moment, and the waits of operations. Pure.

It is added up while the simulation runs. Of an operation that has ended, only its wait and its slowdown are kept.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.wire.simulation import SimulatedPerson, SimulatedPool, Waits
from headrace.wire.snapshots import ElementKind, ShareFrame, ShareItem, StarvationStatus
from headrace_simulator.results import Counted, PoolAccount, Stretches, hours, summed_upwards, upwards
from headrace_simulator.submissions import Submission, Submissions

#: Shortest length of a run that the bounded slowdown counts with, in milliseconds. Source: D. Feitelson and others, Theory and Practice in
#: Parallel Job Scheduling, 1997.
_SHORTEST_RUN_MS: Final = 10_000
_HOUR_MS: Final = 3_600_000
#: The cluster is saturated from this fraction of its capacity on: the demand of a saturated cluster is a sum of rounded shares.
_SATURATED: Final = 1 - 1e-9


class _Standing(msgspec.Struct):
    """The usage and the fair share of the operations directly in a pool, unchanged since `since_ms`."""

    since_ms: int
    usage: float = 0.0
    fair_share: float = 0.0
    #: Integral of what the pool was owed and did not have while the cluster was saturated, in amounts times milliseconds.
    owed: float = 0.0


class _Ended(msgspec.Struct):
    """The waits in milliseconds and the bounded slowdowns of operations that have ended."""

    waited_ms: array[int]
    slowdown: float = 0.0

    @staticmethod
    def none() -> _Ended:
        return _Ended(array("q"))


class WorkloadAccount(PoolAccount):
    """The account of one configuration."""

    def __init__(self, submissions: Submissions, capacity: float, stretches: Stretches, counted: Counted) -> None:
        """`capacity` is the amount of the counted resource that all nodes have."""
        super().__init__(stretches, counted)
        self._submissions, self._capacity = submissions, capacity
        self._standings: dict[PoolName, _Standing] = {}
        self._child_pools: defaultdict[PoolName, dict[PoolName, None]] = defaultdict(dict)
        self._first_job_ms: dict[OperationId, int] = {}
        self._pools: defaultdict[PoolName, _Ended] = defaultdict(_Ended.none)
        self._persons: defaultdict[str, _Ended] = defaultdict(_Ended.none)
        self._person_usage: Counter[str] = Counter()
        self._person_operations: Counter[str] = Counter()
        self._operations: Counter[PoolName] = Counter()
        self._starving_since_ms: dict[PoolName, int] = {}
        self._starving_ms: Counter[PoolName] = Counter()
        self._usage = 0.0
        self._is_saturated = False
        self._cluster_since_ms = stretches.since_ms
        #: Integrals over the saturated time, and its length.
        self.idle, self.saturated_ms = 0.0, 0
        self.peak = 0.0
        self.completed = self.failed = self.job_runs = 0
        self.last_end_ms = stretches.since_ms
        #: Called for each operation that has ended: its submission, the time of its first job (0: none), the time of its end.
        self.on_ended: Callable[[Submission, int, int], None] = lambda *_: None

    def on_shares(self, frame: ShareFrame, changed: Iterable[ShareItem], removed: Iterable[str], now_ms: int) -> None:
        """Record what an update of the shares changed."""
        changed = list(changed)
        super().on_shares(frame, changed, removed, now_ms)
        place = self._counted.place
        for item in changed:
            name = PoolName(item.name)
            if item.kind is not ElementKind.OPERATION:
                self._child_pools[item.parent][name] = None
            if name == ROOT_POOL:
                self._settle_all(now_ms)
                self._is_saturated = item.demand_share[place] >= _SATURATED
            for each in (name, item.parent):
                if each in self._standings:
                    self._standing(each, now_ms).fair_share = self._own_fair_share(each)
            self._note_starving(item, now_ms)

    def on_operation(self, operation: OperationId, pool: PoolName, now_ms: int) -> None:
        """Record that an operation was started."""
        one = self._submissions.of(operation)
        self._operations[one.pool] += 1
        self._person_operations[one.user] += 1
        self._standing(pool, now_ms)

    def on_job_begun(self, operation: OperationId, pool: PoolName, amount: float, now_ms: int) -> None:
        """Record that a job began. With the first job, the wait of its operation is over."""
        self._first_job_ms.setdefault(operation, now_ms)
        self._change_usage(pool, amount, now_ms)

    def on_run(
        self, operation: OperationId, pool: PoolName, span_ms: tuple[int, int], amount: float, lost: float
    ) -> None:
        """Add the usage of a run that has ended."""
        one, (begin_ms, end_ms) = self._submissions.of(operation), span_ms
        super().on_run(operation, one.pool, span_ms, amount, lost)
        self._change_usage(pool, -amount, end_ms)
        self._person_usage[one.user] += amount * (end_ms - begin_ms)  # type: ignore[assignment]
        self.job_runs += 1
        self.last_end_ms = max(self.last_end_ms, end_ms)

    def on_over(self, operation: OperationId, pool: PoolName, now_ms: int, *, completed: bool) -> None:
        """Record that an operation has ended."""
        one, first_ms = self._submissions.of(operation), self._first_job_ms.pop(operation, None)
        if completed:
            self.completed += 1
        else:
            self.failed += 1
        self.on_ended(one, first_ms or 0, now_ms)
        if first_ms is not None:
            slowdown = max(1.0, (now_ms - one.at_ms) / max(one.operation_length_ms, _SHORTEST_RUN_MS))
            for ended in (self._pools[one.pool], self._persons[one.user]):
                ended.waited_ms.append(first_ms - one.at_ms)
                ended.slowdown += slowdown

    def close(self, until_ms: int) -> None:
        """End the period."""
        self._settle_all(until_ms)
        for pool, since_ms in self._starving_since_ms.items():
            self._starving_ms[pool] += until_ms - since_ms
        self._starving_since_ms.clear()
        self.stretches.close(until_ms)
        self.settle()

    # --- results --------------------------------------------------------------------------------------------------

    @property
    def owed(self) -> float:
        """The integral of what pools were owed and did not have while the cluster was saturated, in amounts times milliseconds."""
        return sum(each.owed for each in self._standings.values())

    @property
    def started(self) -> int:
        """The number of operations that were accepted."""
        return self._operations.total()

    @property
    def waits(self) -> Waits:
        """The waits of all operations that have ended."""
        return _waits(self._pools.values())

    def persons(self) -> list[SimulatedPerson]:
        """Return the figures of all users, the largest usage first."""
        found = [
            SimulatedPerson(user, count, self._person_usage[user] / _HOUR_MS, _waits([self._persons[user]]))
            for user, count in self._person_operations.items()
        ]
        return sorted(found, key=lambda each: (-each.usage, each.user))

    def pools(self) -> list[SimulatedPool]:
        """Return the figures of all pools, parents before children. The period must be closed."""
        parents, nothing = self.parents, [0.0] * self.stretches.count
        usage = self.usage.with_all_below(parents)
        lost = self._preempted_usage.with_all_below(parents)
        operations = summed_upwards(self._operations, parents)
        refused, preemptions = (summed_upwards(each, parents) for each in (self._refused, self._preemptions))
        ended: defaultdict[PoolName, list[_Ended]] = defaultdict(list)
        owed: Counter[PoolName] = Counter()
        for pool in self._pools.keys() | self._standings.keys():
            for each in upwards(pool, parents):
                if pool in self._pools:
                    ended[each].append(self._pools[pool])
                if pool in self._standings:
                    owed[each] += self._standings[pool].owed  # type: ignore[assignment]
        return [
            SimulatedPool(
                pool=pool,
                path=self._path(pool),
                operations=operations[pool] + refused[pool],
                never_started=operations[pool] - sum(len(each.waited_ms) for each in ended[pool]),
                refused=refused[pool],
                usage=hours(usage.get(pool, nothing)),
                fair_share=hours(self._fair_share.of.get(pool, nothing)),
                demand=hours(self._demand.of.get(pool, nothing)),
                guarantee=self._guarantee(pool),
                owed=owed[pool] / _HOUR_MS,
                lost_usage=hours(lost.get(pool, nothing)),
                preemptions=preemptions[pool],
                starving_ms=self._starving_ms[pool],
                waits=_waits(ended[pool]),
                usage_series=self.stretches.means(usage.get(pool, nothing)),
                fair_share_series=self.stretches.means(self._fair_share.of.get(pool, nothing)),
                demand_series=self.stretches.means(self._demand.of.get(pool, nothing)),
            )
            for pool in sorted(parents, key=self._path)
        ]

    def _guarantee(self, pool: PoolName) -> float:
        item = self._items.get(pool)
        return 0.0 if item is None else item.strong_guarantee_share[self._counted.place] * self._total

    def _path(self, pool: PoolName) -> str:
        names = [each for each in upwards(pool, self.parents) if each != ROOT_POOL]
        return "/" + "/".join(reversed(names))

    # --- what changes ---------------------------------------------------------------------------------------------

    def _change_usage(self, pool: PoolName, amount: float, now_ms: int) -> None:
        self._settle_cluster(now_ms)
        self._usage += amount
        self.peak = max(self.peak, self._usage)
        self._standing(pool, now_ms).usage += amount

    def _note_starving(self, item: ShareItem, now_ms: int) -> None:
        """Note when a pool, or an operation in it, begins and ceases to starve. An operation counts for its pool only."""
        pool = PoolName(item.name)
        if pool not in self.parents:
            return
        if item.starvation_status is StarvationStatus.NON_STARVING:
            since_ms = self._starving_since_ms.pop(pool, now_ms)
            self._starving_ms[pool] += now_ms - since_ms
        else:
            self._starving_since_ms.setdefault(pool, now_ms)

    def _standing(self, pool: PoolName, now_ms: int) -> _Standing:
        standing = self._standings.get(pool)
        if standing is None:
            standing = self._standings[pool] = _Standing(now_ms, fair_share=self._own_fair_share(pool))
        if self._is_saturated and standing.fair_share > standing.usage:
            standing.owed += (standing.fair_share - standing.usage) * max(0, now_ms - standing.since_ms)
        standing.since_ms = max(standing.since_ms, now_ms)
        return standing

    def _own_fair_share(self, pool: PoolName) -> float:
        """Return what the operations that are directly in a pool are owed: the pool's part without those of its child pools.

        YARN's fair shares do not depend on demand, so the demand is an upper bound.
        """
        below = sum(self._part(name) for name in self._child_pools[pool])
        return max(0.0, self._part(pool) - below)

    def _part(self, pool: PoolName) -> float:
        owed = self._owed.get(pool)
        return min(owed.fair_share, owed.demand) if owed is not None else 0.0

    def _settle_cluster(self, now_ms: int) -> None:
        length_ms = max(0, now_ms - self._cluster_since_ms)
        if self._is_saturated:
            self.idle += max(0.0, self._capacity - self._usage) * length_ms
            self.saturated_ms += length_ms
        self._cluster_since_ms = max(self._cluster_since_ms, now_ms)

    def _settle_all(self, now_ms: int) -> None:
        self._settle_cluster(now_ms)
        for pool in self._standings:
            self._standing(pool, now_ms)


def _waits(ended: Iterable[_Ended]) -> Waits:
    found = [each for each in ended if each.waited_ms]
    waited = sorted(ms for each in found for ms in each.waited_ms)
    if not waited:
        return Waits()
    slowdown = sum(each.slowdown for each in found) / len(waited)
    return Waits(len(waited), waited[len(waited) // 2], waited[len(waited) * 95 // 100], waited[-1], slowdown)
