"""Limits of pools and operations: the most that all jobs below may take together, kept so that a start asks only its own pools.

Which pools have limits, and which stand above which, comes with the shares. A start asks as many pools as stand above it and have a
limit. An operation that a limit holds back is parked at it and leaves the order, so that it costs a heartbeat nothing. When something
below that limit ended, some of the parked come back at once and all others with the next snapshot of the shares.

Invariant (`check`): what a limited pool has in use is the sum over the operations below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.resources import RESOURCE_NAMES, ZERO, Resources, format_amount
from headrace.wire.snapshots import ElementKind, ShareItem

if TYPE_CHECKING:
    from headrace_allocator.facts.facts import OperationBook

__all__ = ["Level", "Limits", "amounts_of_limits", "limit_in_words", "limit_of"]

#: Parked operations that come back when something ended; all others wait for the next snapshot.
_MOST_WOKEN: Final = 64


class Level:
    """One limit: a pool's."""

    def __init__(self, pool: PoolName, most: dict[str, int]) -> None:
        self.pool = pool
        #: By resource; what is not there is not limited.
        self.most = most
        self.used = ZERO
        self.parked: dict[OperationId, None] = {}
        #: Something below it ended, and not all that was parked then came back.
        self.freed = False

    def holds(self, size: Resources) -> bool:
        """True where one more job of this size would be too much."""
        return any(getattr(self.used, name) + getattr(size, name) > most for name, most in self.most.items())


class Limits:
    """All limits of one tree."""

    def __init__(self) -> None:
        self._levels: dict[PoolName, Level] = {}
        self._parents: dict[PoolName, PoolName] = {}
        self._chains: dict[PoolName, tuple[Level, ...]] = {}
        #: Operations that may have room again.
        self.woken: dict[OperationId, None] = {}

    def knows(self, item: ShareItem, total: Resources) -> bool:
        """Whether a pool stands where it stood, with the limits that it had."""
        level = self._levels.get(PoolName(item.name))
        known = {} if level is None else level.most
        return self._parents.get(PoolName(item.name)) == item.parent and known == limit_of(item, total)

    def set_tree(
        self,
        parents: Mapping[PoolName, PoolName],
        limits: Mapping[PoolName, dict[str, int]],
        operations: Iterable[OperationBook],
    ) -> bool:
        """Takes pools and their limits; false if all is as it was. Else everything is summed up anew, and whoever was parked is woken."""
        same = parents == self._parents and limits == {name: level.most for name, level in self._levels.items()}
        if same:
            return False
        self.wake_all()
        self._parents = dict(parents)
        self._levels = {name: Level(name, most) for name, most in limits.items()}
        self._chains = {}
        for operation in operations:
            self.use(operation, operation.usage + operation.precommit)
        return True

    def use(self, operation: OperationBook, amount: Resources) -> None:
        """Jobs of the operation take so much more than before."""
        for level in self._chain(operation.spec.pool) if self._levels else ():
            level.used = level.used + amount

    def free(self, operation: OperationBook, amount: Resources) -> None:
        """Jobs of the operation take so much less than before; some that were held back may have room now."""
        for level in self._chain(operation.spec.pool) if self._levels else ():
            level.used = level.used - amount
            self._wake(level)

    def move(self, operation: OperationBook, pool: PoolName) -> None:
        """The operation is about to stand in another pool."""
        held = operation.usage + operation.precommit
        self.free(operation, held)
        for level in self._chain(pool):
            level.used = level.used + held

    def full_level(self, operation: OperationBook) -> Level | None:
        """The lowest pool whose limit leaves no room for one more job of the operation."""
        if not self._levels:
            return None
        size = operation.spec.resources
        return next((level for level in self._chain(operation.spec.pool) if level.holds(size)), None)

    @staticmethod
    def is_full(operation: OperationBook) -> bool:
        """True where the operation's own limits leave no room for one more job of it."""
        limits = operation.spec.resource_limits.as_tuple()
        taken = (operation.usage + operation.precommit + operation.spec.resources).as_tuple()
        return any(most is not None and part > most for part, most in zip(taken, limits, strict=True))

    def wake_all(self) -> None:
        """Whoever is parked may come back."""
        for level in self._levels.values():
            level.freed = True
        self.wake_freed()

    def wake_freed(self) -> None:
        """Whoever is parked where something ended may come back."""
        for level in self._levels.values():
            if level.freed:
                self.woken.update(level.parked)
                level.parked.clear()
                level.freed = False

    def check(self, operations: Iterable[OperationBook]) -> list[str]:
        """Broken invariants, in words; empty when all hold."""
        sums: dict[PoolName, Resources] = dict.fromkeys(self._levels, ZERO)
        for operation in operations:
            for level in self._chain(operation.spec.pool):
                sums[level.pool] = sums[level.pool] + operation.usage + operation.precommit
        return [
            f"pool {name}: use under its limit differs from its operations"
            for name, level in self._levels.items()
            if level.used != sums[name]
        ]

    def _wake(self, level: Level) -> None:
        for _ in range(min(_MOST_WOKEN - len(self.woken), len(level.parked))):
            name = next(iter(level.parked))
            del level.parked[name]
            self.woken[name] = None
        level.freed = bool(level.parked)

    def _chain(self, pool: PoolName) -> tuple[Level, ...]:
        """Limits at the pool and above it, the lowest first."""
        chain = self._chains.get(pool)
        if chain is None:
            levels: list[Level] = []
            above = pool
            while above and above != ROOT_POOL:
                if above in self._levels:
                    levels.append(self._levels[above])
                above = self._parents.get(above, ROOT_POOL)
            chain = self._chains[pool] = tuple(levels)
        return chain


def amounts_of_limits(
    items: Mapping[str, ShareItem], total: Resources
) -> tuple[dict[PoolName, PoolName], dict[PoolName, dict[str, int]]]:
    """Of the pools in a snapshot of shares: their parents, and the limits of those that have any, by resource."""
    parents: dict[PoolName, PoolName] = {}
    limits: dict[PoolName, dict[str, int]] = {}
    for item in items.values():
        if item.kind is not ElementKind.POOL:
            continue
        name = PoolName(item.name)
        parents[name] = item.parent
        most = limit_of(item, total)
        if most:
            limits[name] = most
    return parents, limits


def limit_of(item: ShareItem, total: Resources) -> dict[str, int]:
    """The limits of a pool as amounts, by resource; what is not there is not limited."""
    figures = zip(RESOURCE_NAMES, item.limits_share, total.as_tuple(), strict=True)
    # A limit as large as the cluster is told as a share of 1, as none at all.
    return {resource: int(share * there + 0.5) for resource, share, there in figures if share < 1.0 and there}


def limit_in_words(level: Level, size: Resources) -> str:
    """Which limit of the pool leaves no room for a job of this size, with the figures."""
    held = [
        f"{format_amount(name, getattr(level.used, name))} of {format_amount(name, most)} {name} in use"
        for name, most in level.most.items()
        if getattr(level.used, name) + getattr(size, name) > most
    ]
    return f"resource_limits of pool {level.pool} leave no room for another job: {', '.join(held)}"
