"""Ephemeral pools, which exist while operations use them: their parents and settings, as admission reports them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import Pool, PoolConfig, PoolTree
from headrace.pools.amounts import PartialResources
from headrace.pools.pool_config import PoolMode
from headrace.wire.log import EphemeralPoolAdopted, EphemeralPoolSet
from headrace.wire.placements import EphemeralPool

#: Number of known ephemeral pools up to which pools without operations are kept.
_KEPT_AT_LEAST = 1_000


class ReportedEphemeralPools:
    """The ephemeral pools that admission reported. Pools without operations stay until there are too many."""

    def __init__(self, tree: TreeName) -> None:
        self._tree = tree
        self._pools: dict[PoolName, EphemeralPool] = {}
        #: True if `_pools` was handed out, so that another thread may read it. Before the next change it is then copied.
        self._is_read = False
        #: Number of pools above which pools without operations are removed.
        self._most = _KEPT_AT_LEAST

    @property
    def pools(self) -> Mapping[PoolName, EphemeralPool]:
        """All pools by name. The returned mapping never changes."""
        self._is_read = True
        return self._pools

    def clear(self) -> None:
        """Forget all pools, because admission reports everything again."""
        self._pools, self._is_read = {}, False

    def apply(self, event: EphemeralPoolSet | EphemeralPoolAdopted, in_use: Callable[[], Iterable[PoolName]]) -> bool:
        """Apply an event of the log. Return True if it changed anything. `in_use` returns the pools of all operations."""
        if event.tree != self._tree:
            return False
        pool = event.pool if isinstance(event, EphemeralPoolSet) else None
        name = event.pool.name if isinstance(event, EphemeralPoolSet) else event.pool
        if self._pools.get(name) == pool:
            return False
        if pool is not None and len(self._pools) > self._most:
            self._forget_those_over(in_use)
        elif self._is_read:
            self._pools, self._is_read = dict(self._pools), False
        if pool is None:
            del self._pools[name]
        else:
            self._pools[name] = pool
        return True

    def _forget_those_over(self, in_use: Callable[[], Iterable[PoolName]]) -> None:
        """Remove pools without operations, which no longer exist: an ephemeral pool ends with its last operation, but no event reports this
        end.
        """
        kept: dict[PoolName, EphemeralPool] = {}
        for name in in_use():
            while name in self._pools and name not in kept:
                kept[name] = self._pools[name]
                name = kept[name].parent
        self._most = _KEPT_AT_LEAST + 2 * len(kept)
        self._pools, self._is_read = kept, False


def ephemeral_pools_of(
    used: Iterable[PoolName], told: Mapping[PoolName, EphemeralPool], configured: PoolTree
) -> list[Pool]:
    """Return the ephemeral pools among the used pools, and the ephemeral pools above them, parents first.

    A pool is placed below the root if admission has not reported it yet, or if its reported parent cannot contain it.
    """
    pools: dict[PoolName, Pool] = {}
    for name in used:
        way: list[PoolName] = []
        while name not in pools and name not in configured.pools and name != ROOT_POOL and name not in way:
            way.append(name)
            name = told[name].parent if name in told else ROOT_POOL
        for each in reversed(way):
            pools[each] = _pool(each, told.get(each), pools, configured)
    return list(pools.values())


def config_of_ephemeral_pool(told: EphemeralPool) -> PoolConfig:
    """Return the configuration that an ephemeral pool got when admission created it."""
    return PoolConfig(
        mode=PoolMode(told.mode),
        max_operation_count=told.max_operation_count,
        max_running_operation_count=told.max_running_operation_count,
        resource_limits=PartialResources(**told.resource_limits),
    )


def _pool(name: PoolName, told: EphemeralPool | None, pools: Mapping[PoolName, Pool], configured: PoolTree) -> Pool:
    if told is None:
        return Pool(name=name, parent=ROOT_POOL)
    parent = told.parent
    if parent in pools:
        fits = pools[parent].settings.mode is not PoolMode.FIFO
    else:
        fits = parent in configured.pools and configured.mode(parent) is not PoolMode.FIFO
    return Pool(name=name, parent=parent if fits else ROOT_POOL, settings=config_of_ephemeral_pool(told))


def misplaced(ephemeral: Iterable[Pool], configured: PoolTree) -> list[str]:
    """Return an error for each ephemeral pool that does not come after its parent."""
    seen: set[PoolName] = {ROOT_POOL}
    broken: list[str] = []
    for pool in ephemeral:
        if pool.parent not in seen and pool.parent not in configured.pools:
            broken.append(f"ephemeral pool {pool.name} is in {pool.parent}, which does not exist")
        seen.add(pool.name)
    return broken
