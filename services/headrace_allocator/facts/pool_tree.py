"""The tree of pools with their shares, as one snapshot of fair_share says.

A snapshot is taken as one cut: all that it changed since the one before, or none of it. Invariant (`check`): the path of a pool is
what the parents say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.resources import RESOURCE_NAMES, ZERO, Resources
from headrace.wire.snapshots import ElementKind, ShareItem

__all__ = ["PoolTree", "ShareCut", "limit_of"]


class ShareCut(msgspec.Struct, frozen=True):
    """A snapshot of shares, and what is new in it."""

    #: All items, by `ShareItem.key`.
    items: Mapping[str, ShareItem]
    changed: Collection[str]
    removed: Collection[str] = ()
    #: The cluster that the shares are parts of.
    total: Resources = ZERO


class PoolTree:
    """All pools of one tree, the root included."""

    def __init__(self) -> None:
        self._pools: dict[PoolName, ShareItem] = {}
        self._paths: dict[PoolName, tuple[PoolName, ...]] = {}
        self.total = ZERO
        #: True once a snapshot told how large the cluster is: before, no limit is known as an amount.
        self.limits_known = False

    def take(self, cut: ShareCut) -> bool:
        """Takes over a snapshot. True if a pool is new, stands elsewhere, is gone, or has another limit."""
        moved = limited = False
        for key in cut.removed:
            moved |= self._pools.pop(PoolName(key[1:]), None) is not None if key.startswith("/") else False
        for key in cut.changed:
            item = cut.items.get(key) if key.startswith("/") else None
            if item is None:
                continue
            name = PoolName(item.name)
            before = self._pools.get(name)
            moved |= before is None or before.parent != item.parent
            limited |= before is None or limit_of(before, self.total) != limit_of(item, cut.total)
            self._pools[name] = item
        self.total = cut.total
        self.limits_known |= cut.total != ZERO
        if moved:
            self._paths = {}
        return moved or limited

    def get(self, pool: PoolName) -> ShareItem | None:
        """The shares of a pool, or None for a pool that no snapshot has told of."""
        return self._pools.get(pool)

    def path(self, pool: PoolName) -> tuple[PoolName, ...]:
        """The pool and all pools above it, the lowest first, without the root."""
        path = self._paths.get(pool)
        if path is None:
            path = self._paths[pool] = tuple(self._upwards(pool))
        return path

    def limits(self) -> dict[PoolName, dict[str, int]]:
        """The limits of those pools that have any."""
        limits = ((name, limit_of(item, self.total)) for name, item in self._pools.items())
        return {name: most for name, most in limits if most}

    def check(self) -> list[str]:
        """Broken invariants in words, none if all hold."""
        stale = [pool for pool, path in self._paths.items() if path != tuple(self._upwards(pool))]
        return [f"pool {pool}: its path differs from the tree" for pool in stale]

    def __len__(self) -> int:
        return len(self._pools)

    def _upwards(self, pool: PoolName) -> Iterator[PoolName]:
        # A circle would be a defect of the sender: the walk ends after as many steps as there are pools.
        for _ in range(len(self._pools) + 1):
            if not pool or pool == ROOT_POOL:
                return
            yield pool
            item = self._pools.get(pool)
            pool = ROOT_POOL if item is None else item.parent


def limit_of(item: ShareItem, total: Resources) -> dict[str, int]:
    """The limits of a pool as amounts, by resource. A resource that is not there is not limited.

    Example: a share of 0.3 of a cluster of 10 cores is a limit of 3 cores.
    """
    if item.kind is ElementKind.ROOT:
        return {}
    figures = zip(RESOURCE_NAMES, item.limits_share, total.as_tuple(), strict=True)
    # A limit as large as the cluster is told as a share of 1, as none at all.
    return {resource: int(share * there + 0.5) for resource, share, there in figures if share < 1.0 and there}
