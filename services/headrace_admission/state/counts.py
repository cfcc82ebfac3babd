"""Operations counted by pool, each pool with all that is below it.

The sums are kept as operations come and go, so asking costs nothing. They are made anew when the tree changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.ids import PoolName


class Counts:
    """The operations of a pool and of the pools below it."""

    __slots__ = ("lightweight", "running", "total")

    def __init__(self, total: int = 0, running: int = 0, lightweight: int = 0) -> None:
        #: All that are registered: running, waiting, lightweight, ending.
        self.total = total
        #: Hold a running slot and are not lightweight.
        self.running = running
        #: Run and count against no running limit.
        self.lightweight = lightweight

    def as_tuple(self) -> tuple[int, int, int]:
        """Total, running, lightweight."""
        return self.total, self.running, self.lightweight


class CountsOfTree:
    """The counts of all pools of a tree."""

    def __init__(self) -> None:
        #: Operations and slots of each pool alone, vanilla operations apart: only they may be lightweight.
        self._own: dict[tuple[PoolName, bool], list[int]] = {}
        self._sums: dict[PoolName, Counts] = {}

    def of(self, pool: PoolName) -> Counts:
        """The counts of a pool with all below it, not to be changed. Zeros for a pool without operations."""
        return self._sums.get(pool) or Counts()

    def change(
        self, chain: Iterable[PoolName], pool: PoolName, *, vanilla: bool, total: int, slots: int, lightweight: bool
    ) -> None:
        """Adds operations to a pool and to all above it (`chain`), or takes them away with negative numbers."""
        own = self._own.setdefault((pool, vanilla), [0, 0])
        own[0] += total
        own[1] += slots
        self._add(chain, total, slots, lightweight=lightweight)
        if own[0] == 0:
            del self._own[pool, vanilla]

    def recount(
        self, chain_of: Callable[[PoolName], Iterable[PoolName]], is_lightweight: Callable[[PoolName, bool], bool]
    ) -> None:
        """Makes the sums anew, for a tree that changed. `is_lightweight` is asked with a pool and «vanilla»."""
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
