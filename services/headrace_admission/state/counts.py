"""Operations counted by pool, each pool with all that is below it."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.ids import PoolName

__all__ = ["Counts", "Direct", "PoolCounts"]


class Counts:
    """A pool's operations, those of the pools below it included."""

    __slots__ = ("lightweight", "running", "total")

    def __init__(self, total: int = 0, running: int = 0, lightweight: int = 0) -> None:
        #: Registered: running, waiting, lightweight, ending.
        self.total = total
        #: Hold a running slot and are not lightweight.
        self.running = running
        #: Hold a running slot that no limit counts.
        self.lightweight = lightweight

    def as_tuple(self) -> tuple[int, int, int]:
        """Total, running, lightweight."""
        return self.total, self.running, self.lightweight


class Direct:
    """A pool's own operations, by what may change how they are counted."""

    __slots__ = ("other_slots", "total", "vanilla_slots")

    def __init__(self) -> None:
        self.total = 0
        self.vanilla_slots = 0
        self.other_slots = 0

    def counted(self, *, lightweight: bool) -> tuple[int, int, int]:
        """Total, running and lightweight, by whether the pool is for lightweight operations now."""
        if lightweight:
            return self.total, self.other_slots, self.vanilla_slots
        return self.total, self.other_slots + self.vanilla_slots, 0


class PoolCounts:
    """Direct counts, and their sums up the tree; the sums must be made anew when the tree changes."""

    def __init__(self) -> None:
        self.direct: dict[PoolName, Direct] = {}
        self._sums: dict[PoolName, Counts] = {}

    def of(self, pool: PoolName) -> Counts:
        """Of a pool with all below it; zeros where there is nothing. Not to be changed."""
        return self._sums.get(pool) or Counts()

    def change(
        self, chain: Iterable[PoolName], pool: PoolName, *, total: int, slots: int, vanilla: bool, lightweight: bool
    ) -> None:
        """Adds (or with negative figures takes away) operations of `pool`; `chain` is the pool and all above it."""
        direct = self.direct.get(pool)
        if direct is None:
            direct = self.direct[pool] = Direct()
        direct.total += total
        if vanilla:
            direct.vanilla_slots += slots
        else:
            direct.other_slots += slots
        light = vanilla and lightweight
        self._spread(chain, total, 0 if light else slots, slots if light else 0)
        if direct.total == 0:
            del self.direct[pool]

    def recount(self, pools: Iterable[tuple[PoolName, Iterable[PoolName], bool]]) -> None:
        """Makes the sums anew; `pools` are those that have operations, each with its chain and whether it is lightweight."""
        self._sums = {}
        for pool, chain, lightweight in pools:
            self._spread(chain, *self.direct[pool].counted(lightweight=lightweight))

    def _spread(self, chain: Iterable[PoolName], total: int, running: int, lightweight: int) -> None:
        sums = self._sums
        for pool in chain:
            counts = sums.get(pool)
            if counts is None:
                counts = sums[pool] = Counts()
            counts.total += total
            counts.running += running
            counts.lightweight += lightweight
