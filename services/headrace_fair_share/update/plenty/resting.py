"""Operations that hold nothing and ask for nothing, which updates in plenty pass over. Pure.

There may be thousands of them: suspended, or with jobs that no node can run. Until one changes its share item stays what it is, and
to the pools above it adds nothing but a count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from operator import attrgetter, is_not
from typing import Any, Final, NamedTuple

from headrace.ids import OperationId, PoolName
from headrace.resources import ZERO
from headrace.wire.snapshots import UsageItem
from headrace_fair_share.facts.operations import KnownOperation
from headrace_fair_share.starvation.clocks import Clocks
from headrace_fair_share.update.cut import Cut
from headrace_fair_share.update.input import OperationsOfCut, UpdateInput
from headrace_fair_share.update.plenty.shares import is_plain_operation

#: With more news all operations are looked at.
_FEW: Final = 64


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
    """The operations of a cut that do not rest. Those that `left` rest no more, and some of them are over."""

    part: OperationsOfCut
    left: Sequence[OperationId]


class RestingOperations:
    """The operations that rest since some update. They are void once anything else changes that their items follow from."""

    def __init__(self, cut: Cut) -> None:
        self._of: dict[OperationId, _Resting] = {}
        self._since = cut.pools, cut.rooms, cut.ephemeral_pools
        self._total, self._term = cut.total, cut.usage_version.term
        #: Of each pool itself, by its name.
        self.counts: dict[PoolName, PoolCounts] = {}
        #: All that was known at the last look, and who was awake.
        self._known: list[KnownOperation] = []
        self._used: list[UsageItem] = []
        self._awake: dict[OperationId, KnownOperation] = {}
        self._pools: dict[PoolName, None] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[OperationId]:
        return iter(self._of)

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
        known, used = list(cut.operations.values()), list(cut.usage.values())
        left: Sequence[OperationId] = ()
        if not self._take_news(cut, _news(known, self._known), _news(used, self._used)):
            left = self._look_at_all(cut)
        self._known, self._used = known, used
        return Awake(OperationsOfCut(self._awake.copy(), list(self._pools)), left)

    def _take_news(
        self, cut: Cut, operations: Sequence[KnownOperation] | None, usage: Sequence[UsageItem] | None
    ) -> bool:
        """Takes the few that are new or different. False where that is not all: one that rests is concerned, or one is gone."""
        if operations is None or usage is None:
            return False
        names = {each.operation for each in operations} | {each.operation for each in usage}
        if not names.isdisjoint(self._of) or any(self._moved(each) for each in operations):
            return False
        self._awake.update((each.operation, each) for each in operations)
        self._pools.update((each.pool, None) for each in operations)
        return len(self._of) + len(self._awake) == len(cut.operations)

    def _moved(self, known: KnownOperation) -> bool:
        before = self._awake.get(known.operation, known)
        return before.pool != known.pool

    def _look_at_all(self, cut: Cut) -> Sequence[OperationId]:
        """Finds out who is awake. Returns who rests no more."""
        of, usage = self._of, cut.usage
        self._awake = {}
        for name, known in cut.operations.items():
            one = of.get(name)
            if one is None or one.known is not known or usage.get(name) is not one.usage:
                self._awake[name] = known
        self._pools = dict.fromkeys(map(attrgetter("pool"), cut.operations.values()))
        if len(of) == len(cut.operations) - len(self._awake):
            return ()
        left = [name for name in of if name in self._awake or name not in cut.operations]
        for name in left:
            one = of.pop(name)
            self._count(one.known.pool, PoolCounts(*(-count for count in one.counts)))
        return left

    def _are_same(self, cut: Cut) -> bool:
        """True if all but operations and usage, as far as items of such operations follow from it, is as it was."""
        now = cut.pools, cut.rooms, cut.ephemeral_pools
        # The operations that were named are those of a term.
        is_same_cluster = cut.total == self._total and cut.usage_version.term == self._term
        return is_same_cluster and all(one is other for one, other in zip(now, self._since, strict=True))

    def _count(self, pool: PoolName, counts: PoolCounts) -> None:
        self.counts[pool] = self.counts.get(pool, PoolCounts()).plus(counts)


def _news(now: list[Any], before: list[Any]) -> list[Any] | None:
    """Returns the entries that are other objects than before, and those added behind. None if they are many, or one has moved.

    Of thousands of operations nothing is looked into: each that is not in the caches of the processor costs as much as ten that are.
    """
    changed = list(compress(zip(now, before, strict=False), map(is_not, now, before)))
    behind = now[len(before) :]
    if len(now) < len(before) or len(changed) + len(behind) > _FEW:
        return None
    if any(one.operation != other.operation for one, other in changed):
        return None
    return [*(one for one, _ in changed), *behind]
