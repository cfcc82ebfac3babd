"""The tree of pools with their shares, as one snapshot of fair_share says, and what limited pools have in use.

A snapshot is taken as one cut: all that it changed since the one before, or none of it. A limit is the most that all jobs below a pool
may take together. Sums are kept for limited pools alone, so that a start asks only those above it.
Invariant (`check`): what a limited pool has in use is the sum over the operations below it, with what their jobs in doubt may hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.resources import ZERO, Resources
from headrace.wire.snapshots import ShareItem

__all__ = ["Limit", "PoolTree", "ShareCut"]


class ShareCut(msgspec.Struct, frozen=True):
    """A snapshot of shares, and what is new in it."""

    #: All items, by `ShareItem.key`.
    items: Mapping[str, ShareItem]
    changed: Collection[str]
    removed: Collection[str] = ()
    #: The cluster that the shares are parts of.
    total: Resources = ZERO


class Limit(msgspec.Struct):
    """The limit of one pool and what is in use under it."""

    pool: PoolName
    most: PartialResources
    used: Resources = ZERO


class PoolTree:
    """All pools of one tree, the root included."""

    def __init__(self) -> None:
        #: Each pool with its shares.
        self.pools: dict[PoolName, ShareItem] = {}
        self.total = ZERO
        #: True once a snapshot came that knows the cluster: before, limits are not known.
        self.limits_known = False
        self._limits: dict[PoolName, Limit] = {}
        #: Limits at a pool and above it, of those pools that were asked for.
        self._above: dict[PoolName, list[Limit]] = {}
        #: Limited pools that have more room than when they were last looked at; whoever looks discards them.
        self.freed: set[PoolName] = set()

    def take(self, cut: ShareCut, held: Iterable[tuple[PoolName, Resources]]) -> bool:
        """Takes over a snapshot. True if a pool is new, stands elsewhere, is gone, or has another limit.

        What is in use is then summed up anew from what operations hold, each by its pool.
        """
        changed = False
        for key in cut.removed:
            changed |= key.startswith("/") and self.pools.pop(PoolName(key[1:]), None) is not None
        for item in (cut.items[key] for key in cut.changed if key.startswith("/") and key in cut.items):
            name = PoolName(item.name)
            before = self.pools.get(name)
            changed |= before is None or before.parent != item.parent
            changed |= before is None or before.limits != item.limits
            self.pools[name] = item
        self.total = cut.total
        self.limits_known |= cut.total != ZERO
        if changed:
            limited = (item for item in self.pools.values() if item.limits != NOTHING)
            self._limits = {PoolName(item.name): Limit(PoolName(item.name), item.limits) for item in limited}
            self._above = {}
            for pool, amount in held:
                self.use(pool, amount)
        return changed

    def path(self, pool: PoolName) -> Iterator[PoolName]:
        """The pool and all pools above it, the lowest first, without the root."""
        # A circle would be a defect of the sender: the walk ends after as many steps as there are pools.
        for _ in range(len(self.pools) + 1):
            if not pool or pool == ROOT_POOL:
                return
            yield pool
            pool = self.pools[pool].parent if pool in self.pools else ROOT_POOL

    def above(self, pool: PoolName) -> list[Limit]:
        """Limits at the pool and above it, the lowest first."""
        limits = self._above.get(pool)
        if limits is None:
            limits = self._above[pool] = [self._limits[name] for name in self.path(pool) if name in self._limits]
        return limits

    def use(self, pool: PoolName, amount: Resources) -> None:
        """Jobs in the pool take so much more than before, or less by a negative amount."""
        frees = not amount.dominates(ZERO)
        for limit in self.above(pool):
            limit.used = limit.used + amount
            if frees:
                self.freed.add(limit.pool)

    def check(self, held: Iterable[tuple[PoolName, Resources]]) -> list[str]:
        """Broken invariants in words, none if all hold."""
        sums = dict.fromkeys(self._limits, ZERO)
        for pool, amount in held:
            for name in sums.keys() & set(self.path(pool)):
                sums[name] = sums[name] + amount
        return [
            f"pool {name}: use under its limit differs from its operations"
            for name, limit in self._limits.items()
            if limit.used != sums[name]
        ]
