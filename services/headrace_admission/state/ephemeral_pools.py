"""The ephemeral pools of one tree, by name, by parent and by user."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.wire.placements import EphemeralPool

K = TypeVar("K")


class TreePools(msgspec.Struct, frozen=True):
    """The ephemeral pools of a tree, as a checkpoint stores them."""

    tree: TreeName
    pools: list[EphemeralPool]


class EphemeralPools:
    """Ephemeral pools by name, by parent and by user. Changed only by the tree's book."""

    def __init__(self) -> None:
        self.by_name: dict[PoolName, EphemeralPool] = {}
        #: Names of the ephemeral pools directly below each pool.
        self.below: dict[PoolName, set[PoolName]] = {}
        #: By user, the names of the pools that count against the user's limit.
        self.of_user: dict[str, set[PoolName]] = {}

    def put(self, pool: EphemeralPool) -> None:
        """Add a pool, or replace the pool with the same name."""
        self.drop(pool.name)
        self.by_name[pool.name] = pool
        self.below.setdefault(pool.parent, set()).add(pool.name)
        if pool.user:
            self.of_user.setdefault(pool.user, set()).add(pool.name)

    def drop(self, name: PoolName) -> None:
        """Remove a pool if it exists."""
        pool = self.by_name.pop(name, None)
        if pool is not None:
            _take_out(self.below, pool.parent, name)
            if pool.user:
                _take_out(self.of_user, pool.user, name)


def _take_out(index: dict[K, set[PoolName]], key: K, name: PoolName) -> None:
    names = index[key]
    names.discard(name)
    if not names:
        del index[key]
