"""An immutable index over a tree's configuration: the paths of pools, and the values in force for each pool.

Pure. A value in force is the pool's own setting, else that of its presets, else the tree's default. The root has no
configuration; its limits are options of the tree. The index does not check whether a configuration is legal, since the fair share
service does that. It works for any tree whose pools come after their parents.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools.pool_config import PoolConfig, PoolMode
from headrace.pools.presets import with_presets
from headrace.pools.stored_tree import Pool, Tree

#: Separates hub and user in the name of an ephemeral pool below a hub.
HUB_SIGN = "$"


class PoolTree:
    """One tree's pools, indexed."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.name: TreeName = tree.tree
        self.options = tree.options
        self.pools: dict[PoolName, Pool] = {pool.name: pool for pool in tree.pools}
        self.children: dict[PoolName, list[PoolName]] = {ROOT_POOL: [], **{name: [] for name in self.pools}}
        self._in_force: dict[PoolName, PoolConfig] = {}
        for pool in tree.pools:
            self.children.setdefault(pool.parent, []).append(pool.name)

    # --- positions in the tree --------------------------------------------------------------------------------------

    def path(self, name: PoolName) -> str:
        """Return `/` for the root, `/research/vision` for a pool in another pool."""
        return "/" + "/".join(reversed([each for each in self.upwards(name) if each != ROOT_POOL]))

    def upwards(self, name: PoolName) -> Iterator[PoolName]:
        """Yield the pool, its parent, and so on up to the root.

        A pool that is not configured counts as a child of the root.
        """
        while name != ROOT_POOL:
            yield name
            name = self.pools[name].parent if name in self.pools else ROOT_POOL
        yield ROOT_POOL

    @cached_property
    def preorder(self) -> list[PoolName]:
        """All pools, parents before children, siblings in their order, without the root."""
        return self.subtree(ROOT_POOL)[1:]

    def subtree(self, name: PoolName) -> list[PoolName]:
        """Return the pool and all pools below it, parents before children, siblings in their order."""
        order: list[PoolName] = []
        waiting = [name]
        while waiting:
            name = waiting.pop()
            order.append(name)
            waiting.extend(reversed(self.children.get(name, [])))
        return order

    # --- values in force --------------------------------------------------------------------------------------------

    def settings(self, name: PoolName) -> PoolConfig:
        """Return a pool's configuration with its presets. The root and a pool that is not configured have an empty configuration."""
        found = self._in_force.get(name)
        if found is None:
            pool = self.pools.get(name)
            found = with_presets(pool.settings, self.options) if pool is not None else PoolConfig()
            self._in_force[name] = found
        return found

    def mode(self, name: PoolName) -> PoolMode:
        return self.settings(name).mode

    def max_operation_count(self, name: PoolName) -> int:
        """Return the maximum number of operations in a pool and below it."""
        return self.options.max_operation_count if name == ROOT_POOL else self.operation_limit(self.settings(name))

    def max_running_operation_count(self, name: PoolName) -> int:
        """Return the maximum number of running operations in a pool and below it."""
        if name == ROOT_POOL:
            return self.options.max_running_operation_count
        return self.running_operation_limit(self.settings(name))

    def operation_limit(self, settings: PoolConfig) -> int:
        """Return the maximum number of operations in a pool with these settings, such as an ephemeral pool."""
        explicit = settings.max_operation_count
        return explicit if explicit is not None else self.options.max_operation_count_per_pool

    def running_operation_limit(self, settings: PoolConfig) -> int:
        """Return the maximum number of running operations in a pool with these settings."""
        explicit = settings.max_running_operation_count
        return explicit if explicit is not None else self.options.max_running_operation_count_per_pool

    # --- ephemeral pools --------------------------------------------------------------------------------------------

    def is_hub(self, name: PoolName) -> bool:
        """True if each user's operations run in a pool of the user's own below this pool."""
        return self.settings(name).create_ephemeral_subpools

    def hub_of(self, name: PoolName) -> PoolName | None:
        """Return the hub below which a pool of this name is made, or None if there is none."""
        hub, sign, user = name.rpartition(HUB_SIGN)
        return PoolName(hub) if sign and user and self.is_hub(PoolName(hub)) else None
