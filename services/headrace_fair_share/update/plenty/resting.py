"""Operations that hold nothing and ask for nothing, which updates in plenty pass over. Pure.

There may be thousands of them: suspended, or with jobs that no node can run. Until one changes its share item stays what it is, and
to the pools above it adds nothing but a count.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headrace.ids import OperationId, PoolName
from headrace.resources import ZERO
from headrace.wire.snapshots import UsageItem
from headrace_fair_share.facts.operations import KnownOperation
from headrace_fair_share.starvation.clocks import Clocks
from headrace_fair_share.update.cut import Cut
from headrace_fair_share.update.input import OperationsOfCut, UpdateInput
from headrace_fair_share.update.plenty.idle_pools import IdlePools
from headrace_fair_share.update.plenty.shares import is_plain_operation


class PoolCounts(NamedTuple):
    """Operations of one pool itself."""

    operations: int = 0
    running: int = 0
    schedulable: int = 0

    def plus(self, other: PoolCounts) -> PoolCounts:
        """Both together."""
        return PoolCounts(
            self.operations + other.operations,
            self.running + other.running,
            self.schedulable + other.schedulable,
        )


class _Resting(NamedTuple):
    """An operation as it was when it came to rest."""

    known: KnownOperation
    usage: UsageItem | None
    counts: PoolCounts


class Awake(NamedTuple):
    """The operations of a cut that do not rest. Those that `left` rest no more in their pool, and some of them are over."""

    part: OperationsOfCut
    left: Mapping[OperationId, PoolName]


class RestingOperations:
    """The operations that rest since some update. They are void once anything else changes that their items follow from."""

    def __init__(self, cut: Cut) -> None:
        self._of: dict[OperationId, _Resting] = {}
        self._since = cut.pools, cut.rooms, cut.ephemeral_pools
        self._total, self._term = cut.total, cut.usage_version.term
        #: Of each pool itself, by its name.
        self.counts: dict[PoolName, PoolCounts] = {}
        #: Those that do not rest, in the order of the cut before.
        self._awake: dict[OperationId, KnownOperation] = {}
        #: The place of every operation in that order, and all that stand in each pool, the first one first.
        self._places: dict[OperationId, int] = {}
        self._members: dict[PoolName, OrderedDict[OperationId, None]] = {}
        self._next_place = 0
        self._look_at_all(cut)
        self.idle_pools = IdlePools()

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[OperationId]:
        return iter(self._of)

    def __contains__(self, key: str) -> bool:
        return key in self._of

    def rest(self, cut: Cut, given: UpdateInput, clocks: Clocks) -> None:
        """Takes the operations of an update that hold nothing, ask for nothing, and of which no clock runs."""
        running = {clocks.keys[place] for place in clocks.running.tolist()}
        for each, demand, runs in zip(given.tree.operations, given.demands, given.runs, strict=True):
            if each.demand == ZERO == each.usage and each.name not in running and is_plain_operation(each):
                name = OperationId(each.name)
                counts = PoolCounts(1, int(runs), int(demand.is_pending))
                known = cut.operations[name]
                self._of[name] = _Resting(known, cut.usage.get(name), counts)
                self._awake.pop(name, None)
                self._count(known.pool, counts)

    def wake(self, cut: Cut) -> Awake | None:
        """Lets go of all that has changed. None if more has changed than operations and their usage."""
        if not self._are_same(cut):
            return None
        news = cut.news
        if news is None or any(self._moved(cut, name) for name, came in news.items() if not came):
            left = self._look_at_all(cut)
        else:
            left = self._take(cut, news)
        pools = sorted(self._members, key=lambda pool: self._places[next(iter(self._members[pool]))])
        return Awake(OperationsOfCut(self._awake.copy(), pools), left)

    def _moved(self, cut: Cut, name: OperationId) -> bool:
        """True if an operation stands in another pool than before."""
        known = cut.operations.get(name)
        return known is not None and name not in self._members.get(known.pool, ())

    def _take(self, cut: Cut, news: Mapping[OperationId, bool]) -> Mapping[OperationId, PoolName]:
        """Wakes the few that are new or different. Returns who rests no more."""
        left = {}
        for name, came in news.items():
            if name in self._of:
                self._awake[name] = one = self._let_go(name)
                left[name] = one.pool
            known = cut.operations.get(name)
            if known is None or came:
                self._leave(name)
            if known is not None:
                if came:
                    self._enter(known)
                self._awake[name] = known
        if left:
            self._awake = dict(sorted(self._awake.items(), key=lambda each: self._places[each[0]]))
        return left

    def _let_go(self, name: OperationId) -> KnownOperation:
        one = self._of.pop(name)
        self._count(one.known.pool, PoolCounts(*(-count for count in one.counts)))
        return one.known

    def _look_at_all(self, cut: Cut) -> Mapping[OperationId, PoolName]:
        """Finds out who is awake. Returns who rests no more."""
        of, usage = self._of, cut.usage
        self._awake, self._places, self._members = {}, {}, {}
        for name, known in cut.operations.items():
            self._enter(known)
            one = of.get(name)
            if one is None or one.known is not known or usage.get(name) is not one.usage:
                self._awake[name] = known
        if len(of) == len(cut.operations) - len(self._awake):
            return {}
        left = [name for name in of if name in self._awake or name not in cut.operations]
        return {name: self._let_go(name).pool for name in left}

    def _enter(self, known: KnownOperation) -> None:
        self._places[known.operation] = self._next_place
        self._next_place += 1
        self._members.setdefault(known.pool, OrderedDict())[known.operation] = None

    def _leave(self, name: OperationId) -> None:
        known = self._awake.pop(name, None)
        if known is None:
            return
        del self._places[name]
        members = self._members[known.pool]
        del members[name]
        if not members:
            del self._members[known.pool]

    def _are_same(self, cut: Cut) -> bool:
        """True if all but operations and usage, as far as items of such operations follow from it, is as it was."""
        now = cut.pools, cut.rooms, cut.ephemeral_pools
        # The operations that were named are those of a term.
        is_same_cluster = cut.total == self._total and cut.usage_version.term == self._term
        return is_same_cluster and all(one is other for one, other in zip(now, self._since, strict=True))

    def _count(self, pool: PoolName, counts: PoolCounts) -> None:
        self.counts[pool] = self.counts.get(pool, PoolCounts()).plus(counts)
