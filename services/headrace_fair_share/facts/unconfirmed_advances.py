"""The chain of advances that the integral service has not confirmed yet. Pure.

Each update adds an advance that follows the previous one. Advances are sent in order; each is sent again until it is confirmed. They are
never merged, because merged advances would give other volumes. All advances are dropped if integral does not know the version that the
first of them follows, or if too many advances are unconfirmed. For the time of dropped advances, volumes are neither credited nor charged;
a metric counts this time.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headrace.ids import TreeName
from headrace.resources import Resources
from headrace.wire.integral import Advance, Advanced, AdvanceGap, PoolFlow
from headrace.wire.version import NEVER, Term, Version

#: Largest number of flows in all unconfirmed advances, some 100 MB. If the tree has many pools, this bound is reached before the bound on
#: the number of advances.
_MOST_FLOWS: Final = 1_000_000


class AdvanceChain:
    """The unconfirmed advances of one term of fair_share."""

    def __init__(self, tree: TreeName, term: Term, most_waiting: int) -> None:
        self._tree = tree
        self._most = most_waiting
        self._waiting: deque[Advance] = deque()
        self._newest = Version(term, 0)
        self._previous = NEVER
        #: True if the newest advance contains pools, whose volumes change with time.
        self.has_pools = False
        #: True if updates without pools preceded the first advance. In that case integral may hold volumes of pools that no longer have an
        #: integral guarantee.
        self._were_none = False
        #: Number of dropped advances.
        self.given_up = 0
        #: Time of the dropped advances, in microseconds.
        self.given_up_us = 0
        #: Number of times that all advances of the chain were dropped, because integral could not apply them.
        self.broken = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, dt_us: int, total: Resources, pools: list[PoolFlow], saturation_period_s: float, at_ms: int = 0
    ) -> None:
        """Add the advance of an update. The update is made at `at_ms` (Unix time), `dt_us` after the previous update.

        No advance is added while there are no pools whose volumes could change.
        """
        if not pools and not self.has_pools:
            self._were_none = True
            return
        if self._were_none and self._previous == NEVER:
            self._append(0, total, [], saturation_period_s, at_ms)
        if self._waiting and (len(self._waiting) >= self._most or self._flows() + len(pools) > _MOST_FLOWS):
            self.given_up += 1
            self.given_up_us += dt_us
            return
        self._append(dt_us if self._previous != NEVER else 0, total, pools, saturation_period_s, at_ms)

    def head(self) -> Advance | None:
        """Return the advance to send next, None if all are confirmed."""
        return self._waiting[0] if self._waiting else None

    def on_confirmed(self, advanced: Advanced) -> bool:
        """Remove the oldest advance if the answer `advanced` confirms it. Return True if the answer does."""
        if not self._waiting or advanced.version != self._waiting[0].version:
            return False
        self._waiting.popleft()
        return True

    def on_gap(self, gap: AdvanceGap) -> None:
        """Handle an answer of integral that refuses the oldest advance, because integral's version is not the version that this advance
        follows.

        If integral's version is in this chain, the chain continues after it. Otherwise a new chain starts.
        """
        if any(advance.version == gap.have for advance in self._waiting):
            while self._waiting and self._waiting[0].version <= gap.have:
                self._waiting.popleft()
            return
        self.give_up()

    def give_up(self) -> None:
        """Drop all unconfirmed advances, which integral cannot apply. Their time is lost, and the next advance starts a new chain."""
        self.broken += 1
        self.given_up += len(self._waiting)
        self.given_up_us += sum(advance.dt_us for advance in self._waiting)
        self._waiting.clear()
        self._previous = NEVER

    def check(self) -> list[str]:
        """Return an error for each advance that does not follow the previous one, or in which time runs backwards."""
        broken: list[str] = []
        before: Advance | None = None
        for advance in self._waiting:
            if before is not None and advance.previous != before.version:
                broken.append(f"advance {advance.version} follows {advance.previous}, not {before.version}")
            if advance.version <= advance.previous or advance.dt_us < 0:
                broken.append(
                    f"advance {advance.version} does not go forward from {advance.previous}, or takes {advance.dt_us} us"
                )
            before = advance
        return broken

    def _flows(self) -> int:
        return sum(len(advance.pools) for advance in self._waiting)

    def _append(
        self, dt_us: int, total: Resources, pools: list[PoolFlow], saturation_period_s: float, at_ms: int
    ) -> None:
        self._newest = self._newest.next()
        self._waiting.append(
            Advance(
                tree=self._tree,
                version=self._newest,
                previous=self._previous,
                dt_us=dt_us,
                total=total,
                pools=pools,
                saturation_period_s=saturation_period_s,
                at_ms=at_ms,
            )
        )
        self._previous = self._newest
        self.has_pools, self._were_none = bool(pools), False
