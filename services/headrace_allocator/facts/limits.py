"""Limits of pools: the most that all jobs below a pool may take together.

Sums are kept for limited pools alone, so that a start asks only those above it. Which pools have limits, and which stand above
which, comes with the tree of pools.
Invariant (`check`): what a limited pool has in use is the sum over the operations below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.ids import PoolName
from headrace.resources import ZERO, Resources
from headrace_allocator.facts.pool_tree import PoolTree

__all__ = ["Limit", "Limits"]

_NOTHING: Mapping[PoolName, Resources] = {}


class Limit:
    """The limit of one pool and what is in use under it."""

    def __init__(self, pool: PoolName, most: dict[str, int]) -> None:
        self.pool = pool
        #: By resource; a resource that is not there is not limited.
        self.most = most
        self.used = ZERO

    def leaves_no_room(self, size: Resources, used: Resources) -> bool:
        """True if a job of this size, beside what is used, would be too much."""
        return any(getattr(used, name) + getattr(size, name) > most for name, most in self.most.items())


class Limits:
    """All limits of one tree."""

    def __init__(self, pools: PoolTree) -> None:
        self._pools = pools
        self._limits: dict[PoolName, Limit] = {}
        self._paths: dict[PoolName, tuple[Limit, ...]] = {}
        #: Limited pools that have more room than when they were last looked at; whoever looks discards them.
        self.freed: set[PoolName] = set()

    def rebuild(self, held: Iterable[tuple[PoolName, Resources]]) -> None:
        """Reads the limits from the tree anew and sums up what operations hold, each by its pool."""
        self._limits = {name: Limit(name, most) for name, most in self._pools.limits().items()}
        self._paths = {}
        for pool, amount in held:
            self.use(pool, amount)

    def above(self, pool: PoolName) -> tuple[Limit, ...]:
        """Limits at the pool and above it, the lowest first."""
        if not self._limits:
            return ()
        limits = self._paths.get(pool)
        if limits is None:
            path = self._pools.path(pool)
            limits = self._paths[pool] = tuple(self._limits[name] for name in path if name in self._limits)
        return limits

    def use(self, pool: PoolName, amount: Resources) -> None:
        """Jobs in the pool take so much more than before."""
        for limit in self.above(pool):
            limit.used = limit.used + amount

    def free(self, pool: PoolName, amount: Resources) -> None:
        """Jobs in the pool take so much less than before."""
        for limit in self.above(pool):
            limit.used = limit.used - amount
            self.freed.add(limit.pool)

    def reached(self, pool: PoolName, size: Resources, added: Mapping[PoolName, Resources] = _NOTHING) -> Limit | None:
        """The lowest limit that leaves no room for a job of this size, with `added` in use as well."""
        for limit in self.above(pool):
            used = limit.used + added[limit.pool] if limit.pool in added else limit.used
            if limit.leaves_no_room(size, used):
                return limit
        return None

    def check(self, held: Iterable[tuple[PoolName, Resources]]) -> list[str]:
        """Broken invariants in words, none if all hold."""
        sums: dict[PoolName, Resources] = dict.fromkeys(self._limits, ZERO)
        for pool, amount in held:
            for limit in self.above(pool):
                sums[limit.pool] = sums[limit.pool] + amount
        return [
            f"pool {name}: use under its limit differs from its operations"
            for name, limit in self._limits.items()
            if limit.used != sums[name]
        ]
