"""Numbers of operations of each pool. The operations of all pools below a pool count for the pool too.

The sums are kept up to date as operations come and go, so reading a count costs nothing. They are recomputed when the tree
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.ids import PoolName


class Counts:
    """Counts of the operations of a pool and of the pools below it."""

    __slots__ = ("lightweight", "running", "total")

    def __init__(self, total: int = 0, running: int = 0, lightweight: int = 0) -> None:
        #: All live operations: running, waiting, lightweight and ending.
        self.total = total
        #: Operations that hold a running slot and are not lightweight.
        self.running = running
        #: Lightweight operations that run; they count against no running limit.
        self.lightweight = lightweight

    def as_tuple(self) -> tuple[int, int, int]:
        """Return total, running and lightweight."""
        return self.total, self.running, self.lightweight


class CountsOfTree:
    """The counts of all pools of a tree."""

    def __init__(self) -> None:
        #: Numbers of operations and of slots of each pool, without the pools below it. The bool in the key is True for vanilla
        #: operations, which are counted separately because only they can be lightweight.
        self._own: dict[tuple[PoolName, bool], list[int]] = {}
        self._sums: dict[PoolName, Counts] = {}

    def of(self, pool: PoolName) -> Counts:
        """Return the counts of a pool and all pools below it, all 0 for a pool without operations.

        The caller must not change the returned object.
        """
        return self._sums.get(pool) or Counts()

    def change(
        self, chain: Iterable[PoolName], pool: PoolName, *, vanilla: bool, total: int, slots: int, lightweight: bool
    ) -> None:
        """Add operations to a pool. `chain` is the pool and all pools above it. Negative numbers remove operations."""
        own = self._own.setdefault((pool, vanilla), [0, 0])
        own[0] += total
        own[1] += slots
        self._add(chain, total, slots, lightweight=lightweight)
        if own[0] == 0:
            del self._own[pool, vanilla]

    def recount(
        self, chain_of: Callable[[PoolName], Iterable[PoolName]], is_lightweight: Callable[[PoolName, bool], bool]
    ) -> None:
        """Recompute the sums after the tree changed.

        `is_lightweight` says whether operations of a pool are lightweight; its second argument is True for vanilla operations.
        """
        self._sums = {}
        for (pool, vanilla), (total, slots) in self._own.items():
            self._add(chain_of(pool), total, slots, lightweight=is_lightweight(pool, vanilla))

    def _add(self, chain: Iterable[PoolName], total: int, slots: int, *, lightweight: bool) -> None:
        sums = self._sums
        for pool in chain:
            counts = sums.get(pool)
            if counts is None:
                counts = sums[pool] = Counts()
            counts.total += total
            if lightweight:
                counts.lightweight += slots
            else:
                counts.running += slots
