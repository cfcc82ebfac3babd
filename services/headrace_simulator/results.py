"""The account of a simulation: usage and shares of pools over time, and preemptions; of a replay, the waits of operations too. Pure.

The period is divided into stretches of equal length. Each stretch has a sum of amounts times milliseconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from headrace.ids import OperationId, PoolName
from headrace.resources import RESOURCE_NAMES, Resources
from headrace.wire.replay import ReplayedPool
from headrace.wire.snapshots import ElementKind, ShareFrame, ShareItem

#: Largest number of stretches into which a period is divided.
_MOST_STRETCHES: Final = 144
_SHORTEST_MS: Final = 250
_HOUR_MS: Final = 3_600_000


class Counted(msgspec.Struct, frozen=True):
    """The resource that is counted: its index among the resources, and the divisor that converts amounts to the unit that users see."""

    place: int
    unit: int

    @staticmethod
    def of(resource: str) -> Counted:
        """Return the resource of this name."""
        return Counted(RESOURCE_NAMES.index(resource), 100 if resource == "cpu" else 1)

    def amount(self, resources: Resources) -> float:
        """Return the amount of the resource, in the unit that users see."""
        return resources.as_tuple()[self.place] / self.unit


class Stretches:
    """The stretches of equal length that a period is divided into. The end of the period may be unknown until `close`."""

    def __init__(self, since_ms: int, until_ms: int | None = None) -> None:
        """Divide a period into at most as many stretches as a chart shows."""
        self.since_ms = since_ms
        self.length_ms = _SHORTEST_MS
        self._until_ms = until_ms
        #: All series of these stretches. Their values are merged when the stretches become longer.
        self._series: list[list[float]] = []
        if until_ms is not None:
            self.length_ms = max(_SHORTEST_MS, -(-(until_ms - since_ms) // _MOST_STRETCHES))

    @property
    def until_ms(self) -> int:
        """The end of the period. The period must be closed."""
        assert self._until_ms is not None
        return self._until_ms

    @property
    def count(self) -> int:
        """The number of stretches; in a period that is not closed, the number of stretches that a series can have."""
        if self._until_ms is None:
            return 2 * _MOST_STRETCHES
        return max(1, -(-(self._until_ms - self.since_ms) // self.length_ms))

    def zeros(self) -> list[float]:
        """Return a new series without amounts."""
        series = [0.0] * self.count
        if self._until_ms is None:
            self._series.append(series)
        return series

    def close(self, until_ms: int) -> None:
        """End a period whose end was not known."""
        self._until_ms = max(until_ms, self.since_ms + 1)
        for series in self._series:
            del series[self.count :]
        self._series.clear()

    def add(self, series: list[float], begin_ms: int, end_ms: int, amount: float) -> None:
        """Add an amount that was used from `begin_ms` to `end_ms`. Parts outside the period are ignored."""
        begin_ms = max(begin_ms, self.since_ms)
        if self._until_ms is not None:
            end_ms = min(end_ms, self._until_ms)
        while end_ms > self.since_ms + len(series) * self.length_ms:
            self._double()
        while begin_ms < end_ms:
            place = (begin_ms - self.since_ms) // self.length_ms
            over_ms = min(end_ms, self.since_ms + (place + 1) * self.length_ms)
            series[place] += amount * (over_ms - begin_ms)
            begin_ms = over_ms

    def means(self, series: list[float]) -> list[float]:
        """Return the mean amount in each stretch of a closed period."""
        lengths = (
            min(self.length_ms, self.until_ms - self.since_ms - place * self.length_ms) for place in range(self.count)
        )
        return [each / length_ms for each, length_ms in zip(series, lengths, strict=True)]

    def _double(self) -> None:
        """Make each two stretches one."""
        self.length_ms *= 2
        for series in self._series:
            merged = [one + other for one, other in zip(series[::2], series[1::2], strict=True)]
            series[:] = merged + [0.0] * (len(series) - len(merged))


def hours(series: Iterable[float]) -> float:
    """Return the sum of a series in units of the resource times hours."""
    return sum(series) / _HOUR_MS


class UsageSeries:
    """Amounts of pools over time. The amounts of a pool do not include the pools below it."""

    def __init__(self, stretches: Stretches) -> None:
        self._stretches = stretches
        self.of: defaultdict[PoolName, list[float]] = defaultdict(stretches.zeros)

    def add(self, pool: PoolName, begin_ms: int, end_ms: int, amount: float) -> None:
        """Add an amount that a pool had from `begin_ms` to `end_ms`."""
        self._stretches.add(self.of[pool], begin_ms, end_ms, amount)

    def with_all_below(self, parents: Mapping[PoolName, PoolName]) -> dict[PoolName, list[float]]:
        """Return the series of each pool together with all pools below it."""
        found: defaultdict[PoolName, list[float]] = defaultdict(lambda: [0.0] * self._stretches.count)
        for pool, series in self.of.items():
            for each in upwards(pool, parents):
                found[each] = [one + other for one, other in zip(found[each], series, strict=True)]
        return dict(found)


def upwards(pool: PoolName, parents: Mapping[PoolName, PoolName]) -> Iterator[PoolName]:
    """Yield a pool and all pools above it, the root last."""
    while pool:
        yield pool
        pool = parents.get(pool, PoolName(""))


class _Owed(msgspec.Struct):
    """The fair share and demand of a pool, unchanged since `since_ms`."""

    since_ms: int
    fair_share: float
    demand: float


class _Wait(msgspec.Struct):
    pool: PoolName
    since_ms: int
    first_job_ms: int | None = None


class PoolAccount:
    """Usage, shares and preemptions of all pools."""

    def __init__(self, stretches: Stretches, counted: Counted) -> None:
        self.stretches = stretches
        #: The parent of each pool that existed during the simulation.
        self.parents: dict[PoolName, PoolName] = {}
        self.usage = UsageSeries(stretches)
        self._counted = counted
        self._preempted_usage = UsageSeries(stretches)
        self._fair_share = UsageSeries(stretches)
        self._demand = UsageSeries(stretches)
        self._owed: dict[PoolName, _Owed] = {}
        self._items: dict[PoolName, ShareItem] = {}
        self._total = 0.0
        self._refused: Counter[PoolName] = Counter()
        #: The first operation that was refused and the reason; empty if there is none.
        self.first_refusal = ""
        self._preemptions: Counter[PoolName] = Counter()

    def on_shares(self, frame: ShareFrame, changed: Iterable[ShareItem], removed: Iterable[str], now_ms: int) -> None:
        """Record what an update of the shares changed."""
        total = self._counted.amount(frame.total)
        pools = {PoolName(item.name): item for item in changed if item.kind is not ElementKind.OPERATION}
        for name, item in pools.items():
            self.parents[name] = item.parent
        self._items |= pools
        for key in removed:
            if key.startswith("/"):
                self._settle(PoolName(key[1:]), now_ms)
                self._owed.pop(PoolName(key[1:]), None)
                self._items.pop(PoolName(key[1:]), None)
        for name, item in (self._items if total != self._total else pools).items():
            self._settle(name, now_ms)
            place = self._counted.place
            fair, demand = item.fair_share.total[place], item.demand_share[place]
            self._owed[name] = _Owed(now_ms, fair * total, demand * total)
        self._total = total

    def on_operation(self, operation: OperationId, pool: PoolName, now_ms: int) -> None:
        """Record that an operation was started."""

    def on_job_begun(self, operation: OperationId, pool: PoolName, amount: float, now_ms: int) -> None:
        """Record that a job began, which uses `amount` of the resource."""

    def on_over(self, operation: OperationId, pool: PoolName, now_ms: int, *, completed: bool) -> None:
        """Record that an operation has ended."""

    def on_refused(self, pool: PoolName, why: str) -> None:
        """Record that an operation was refused."""
        self._refused[pool] += 1
        self.first_refusal = self.first_refusal or why

    @property
    def refused(self) -> int:
        """The number of operations that were refused."""
        return self._refused.total()

    def on_run(
        self, operation: OperationId, pool: PoolName, span_ms: tuple[int, int], amount: float, lost: float
    ) -> None:
        """Add the usage of a run that has ended. `lost` is the fraction of the run that preemption made useless."""
        self.usage.add(pool, *span_ms, amount)
        if lost:
            self._preempted_usage.add(pool, *span_ms, lost * amount)

    def on_preempted(self, pool: PoolName) -> None:
        """Count an allocation that was preempted."""
        self._preemptions[pool] += 1

    def settle(self) -> None:
        """Add fair shares and demand up to the end of the period."""
        for name in list(self._owed):
            self._settle(name, self.stretches.until_ms)

    def _settle(self, pool: PoolName, now_ms: int) -> None:
        owed = self._owed.get(pool)
        if owed is not None:
            self._fair_share.add(pool, owed.since_ms, now_ms, owed.fair_share)
            self._demand.add(pool, owed.since_ms, now_ms, owed.demand)
            owed.since_ms = now_ms


class ReplayAccount(PoolAccount):
    """The account of one replay."""

    def __init__(self, stretches: Stretches, counted: Counted) -> None:
        super().__init__(stretches, counted)
        self._waits: dict[OperationId, _Wait] = {}
        #: Operations that ended during the replay, each with its pool and the time of its end in milliseconds.
        self.over: dict[OperationId, tuple[PoolName, int]] = {}

    def on_operation(self, operation: OperationId, pool: PoolName, now_ms: int) -> None:
        """Record that an operation was started."""
        self._waits[operation] = _Wait(pool, now_ms)

    def on_job_begun(self, operation: OperationId, pool: PoolName, amount: float, now_ms: int) -> None:
        """Record that a job began. With the first job, the wait of its operation is over."""
        wait = self._waits.get(operation)
        if wait is not None and wait.first_job_ms is None:
            wait.first_job_ms = now_ms

    def on_over(self, operation: OperationId, pool: PoolName, now_ms: int, *, completed: bool) -> None:
        """Record that an operation has ended."""
        self.over[operation] = (pool, now_ms)

    def pools(self) -> dict[PoolName, ReplayedPool]:
        """Return the account of each pool together with all pools below it. It is complete once the replay is over."""
        self.settle()
        usage = self.usage.with_all_below(self.parents)
        preempted = self._preempted_usage.with_all_below(self.parents)
        preemptions, refused = (summed_upwards(each, self.parents) for each in (self._preemptions, self._refused))
        waits: defaultdict[PoolName, list[_Wait]] = defaultdict(list)
        for wait in self._waits.values():
            for pool in upwards(wait.pool, self.parents):
                waits[pool].append(wait)
        nothing = [0.0] * self.stretches.count
        return {
            pool: self._pool(
                waits[pool],
                usage=usage.get(pool, nothing),
                fair_share=self._fair_share.of.get(pool, nothing),
                demand=self._demand.of.get(pool, nothing),
                preempted_usage=hours(preempted.get(pool, nothing)),
                preemptions=preemptions[pool],
                refused=refused[pool],
            )
            for pool in self.parents
        }

    def _pool(
        self,
        waits: list[_Wait],
        *,
        usage: list[float],
        fair_share: list[float],
        demand: list[float],
        preempted_usage: float,
        preemptions: int,
        refused: int,
    ) -> ReplayedPool:
        until_ms, means = self.stretches.until_ms, self.stretches.means
        never_started = sum(wait.first_job_ms is None for wait in waits)
        waited_ms = sorted(
            (until_ms if wait.first_job_ms is None else wait.first_job_ms) - wait.since_ms for wait in waits
        )
        return ReplayedPool(
            usage=hours(usage),
            fair_share=hours(fair_share),
            demand=hours(demand),
            preempted_usage=preempted_usage,
            preemptions=preemptions,
            operations=len(waits) + refused,
            never_started=never_started,
            refused=refused,
            median_wait_ms=waited_ms[len(waited_ms) // 2] if waited_ms else 0,
            longest_wait_ms=waited_ms[-1] if waited_ms else 0,
            usage_series=means(usage),
            fair_share_series=means(fair_share),
            demand_series=means(demand),
        )


def summed_upwards(counted: Mapping[PoolName, int], parents: Mapping[PoolName, PoolName]) -> Counter[PoolName]:
    """Return the count of each pool together with all pools below it."""
    found: Counter[PoolName] = Counter()
    for pool, count in counted.items():
        for each in upwards(pool, parents):
            found[each] += count
    return found
