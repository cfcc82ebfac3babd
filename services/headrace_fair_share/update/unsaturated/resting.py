"""Resting operations: operations without usage or demand, which updates of unsaturated trees skip. Pure.

There may be thousands of resting operations, such as suspended operations or operations whose jobs fit on no node. Until such an
operation changes, its share item stays the same, and only the counts of the pools above include it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

from headrace.ids import OperationId, PoolName
from headrace.resources import ZERO
from headrace.wire.snapshots import UsageItem
from headrace_fair_share.facts.operations import KnownOperation
from headrace_fair_share.starvation.clocks import Clocks
from headrace_fair_share.update.algorithm_input import OperationsOfCut, UpdateInput
from headrace_fair_share.update.unsaturated.idle_pools import IdlePools
from headrace_fair_share.update.unsaturated.shares import is_plain_operation
from headrace_fair_share.update.update_facts import UpdateFacts


class DirectCounts(NamedTuple):
    """Counts of operations directly in one pool."""

    operations: int = 0
    running: int = 0
    schedulable: int = 0

    def plus(self, other: DirectCounts) -> DirectCounts:
        """Return the sum of both."""
        return DirectCounts(
            self.operations + other.operations,
            self.running + other.running,
            self.schedulable + other.schedulable,
        )


class _Resting(NamedTuple):
    """An operation as it was when it started to rest."""

    known: KnownOperation
    usage: UsageItem | None
    counts: DirectCounts


class Awake(NamedTuple):
    """The operations of an input that do not rest. `left` maps operations that stopped resting, or finished, to the pool they rested in."""

    part: OperationsOfCut
    left: Mapping[OperationId, PoolName]


class RestingOperations:
    """The operations that rest. `wake` handles changes of operations and of their usage.

    The share items of resting operations also depend on facts such as the pools and the nodes. When such a fact changes, `wake` returns
    None, and the object is of no further use.
    """

    def __init__(self, cut: UpdateFacts) -> None:
        self._of: dict[OperationId, _Resting] = {}
        self._since = cut.pools, cut.rooms, cut.ephemeral_pools
        self._total, self._term = cut.total, cut.usage_version.term
        #: Counts of the resting operations directly in each pool.
        self.counts: dict[PoolName, DirectCounts] = {}
        #: The operations that do not rest, in the order of the previous input. None before the first call of `wake`.
        self._awake: dict[OperationId, KnownOperation] | None = None
        #: Number of operations in each pool, ordered by the pool's first operation.
        self._members: Counter[PoolName] = Counter()
        self._first: dict[PoolName, OperationId] = {}
        self.idle_pools = IdlePools()

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[OperationId]:
        return iter(self._of)

    def __contains__(self, key: str) -> bool:
        return key in self._of

    def rest(self, cut: UpdateFacts, given: UpdateInput, clocks: Clocks) -> None:
        """Add the operations of an update that have no usage, no demand and no running clock."""
        running = {clocks.keys[place] for place in clocks.running.tolist()}
        for each, demand, runs in zip(given.tree.operations, given.demands, given.runs, strict=True):
            if each.demand == ZERO == each.usage and each.name not in running and is_plain_operation(each):
                name = OperationId(each.name)
                counts = DirectCounts(1, int(runs), int(demand.is_pending))
                known = cut.operations[name]
                self._of[name] = _Resting(known, cut.usage.get(name), counts)
                self._count(known.pool, counts)
                if self._awake is not None:
                    self._awake.pop(name, None)

    def wake(self, cut: UpdateFacts) -> Awake | None:
        """Wake the operations that changed. Return None if anything else changed; the caller then recomputes everything."""
        if not self._are_same(cut):
            return None
        awake, news = self._awake, cut.news
        if awake is None or news is None or any(self._disorders(cut, awake, *each) for each in news.items()):
            awake, left = self._look_at_all(cut)
        else:
            left = self._take(cut, awake, news)
        return Awake(OperationsOfCut(awake.copy(), list(self._members)), left)

    def _disorders(
        self, cut: UpdateFacts, awake: Mapping[OperationId, KnownOperation], name: OperationId, came: bool
    ) -> bool:
        """Return True if this operation may change the order of the awake operations or of the pools."""
        known, before = cut.operations.get(name), awake.get(name)
        if known is not None and not came:
            # The order changes if the operation was not awake before, or moved to another pool.
            return before is None or before.pool != known.pool
        before = self._of[name].known if name in self._of else before
        if before is None or before.pool in cut.pools.pools:
            return False
        return self._first[before.pool] == name and self._members[before.pool] > 1

    def _take(
        self, cut: UpdateFacts, awake: dict[OperationId, KnownOperation], news: Mapping[OperationId, bool]
    ) -> Mapping[OperationId, PoolName]:
        """Apply the few operations that are new or changed. Return the operations that stopped resting, with their pools."""
        left = {}
        for name, came in news.items():
            known = cut.operations.get(name)
            if known is None or came:
                if name in self._of:
                    left[name] = self._let_go(name).pool
                    self._leave(left[name])
                elif name in awake:
                    self._leave(awake.pop(name).pool)
            if known is not None:
                awake[name] = known
                if came:
                    self._members[known.pool] += 1
                    self._first.setdefault(known.pool, name)
        return left

    def _leave(self, pool: PoolName) -> None:
        self._members[pool] -= 1
        if not self._members[pool]:
            del self._members[pool], self._first[pool]

    def _let_go(self, name: OperationId) -> KnownOperation:
        one = self._of.pop(name)
        self._count(one.known.pool, DirectCounts(*(-count for count in one.counts)))
        return one.known

    def _look_at_all(
        self, cut: UpdateFacts
    ) -> tuple[dict[OperationId, KnownOperation], Mapping[OperationId, PoolName]]:
        """Compare all operations. Return the awake operations, and the operations that stopped resting, each with its pool."""
        of, usage, names = self._of, cut.usage, list(cut.operations)
        awake = self._awake = {}
        for name, known in cut.operations.items():
            one = of.get(name)
            if one is None or one.known is not known or usage.get(name) is not one.usage:
                awake[name] = known
        pools = list(map(attrgetter("pool"), cut.operations.values()))
        self._members, self._first = Counter(pools), dict(zip(reversed(pools), reversed(names), strict=True))
        if len(of) == len(names) - len(awake):
            return awake, {}
        left = [name for name in of if name in awake or name not in cut.operations]
        return awake, {name: self._let_go(name).pool for name in left}

    def _are_same(self, cut: UpdateFacts) -> bool:
        """Return True if nothing that resting operations depend on changed, apart from operations and their usage."""
        now = cut.pools, cut.rooms, cut.ephemeral_pools
        # The term is compared as well: the set of named operations belongs to one term of the allocator.
        is_same_cluster = cut.total == self._total and cut.usage_version.term == self._term
        return is_same_cluster and all(one is other for one, other in zip(now, self._since, strict=True))

    def _count(self, pool: PoolName, counts: DirectCounts) -> None:
        self.counts[pool] = self.counts.get(pool, DirectCounts()).plus(counts)
