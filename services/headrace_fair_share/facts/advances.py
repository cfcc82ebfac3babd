"""The advances that integral has not confirmed yet, each following the one before. Pure.

Each update adds one. They are sent in order, each until it is confirmed, and never put together: figures would differ. Where integral
lost the thread, or too many wait, time is given up, neither credited nor charged, and counted.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headrace.ids import TreeName
from headrace.resources import Resources
from headrace.wire.integral import Advance, Advanced, AdvanceGap, PoolFlow
from headrace.wire.version import NEVER, Term, Version

#: Of all waiting advances together, some 100 MB: flows of many pools are given up before the number of advances is reached.
_MOST_FLOWS: Final = 1_000_000


class AdvanceChain:
    """Advances of one term of fair_share."""

    def __init__(self, tree: TreeName, term: Term, most_waiting: int) -> None:
        self._tree = tree
        self._most = most_waiting
        self._waiting: deque[Advance] = deque()
        self._newest = Version(term, 0)
        self._previous = NEVER
        #: True if the newest advance names pools, whose volumes move with time.
        self.has_pools = False
        #: A chain that begins later than its term finds volumes of pools that have lost theirs meanwhile.
        self._were_none = False
        #: Advances that were given up, and the time that they stood for.
        self.given_up = 0
        self.given_up_us = 0
        #: How often integral had another version than this chain knows.
        self.broken = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, dt_us: int, total: Resources, pools: list[PoolFlow], saturation_period_s: float, at_ms: int = 0
    ) -> None:
        """An update happens at `at_ms`, Unix time: `dt_us` have passed.

        Nothing is added while there are no pools whose volumes could change.
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
        """The advance to send next, None if all are confirmed."""
        return self._waiting[0] if self._waiting else None

    def on_confirmed(self, advanced: Advanced) -> bool:
        """True if this confirms the head, which is then over."""
        if not self._waiting or advanced.version != self._waiting[0].version:
            return False
        self._waiting.popleft()
        return True

    def on_gap(self, gap: AdvanceGap) -> None:
        """Integral has another version than the head follows. Goes on behind it, or begins a new chain where it is not ours."""
        if any(advance.version == gap.have for advance in self._waiting):
            while self._waiting and self._waiting[0].version <= gap.have:
                self._waiting.popleft()
            return
        self.give_up()

    def give_up(self) -> None:
        """Integral cannot apply the waiting advances. Their time is lost, and the next advance begins a new chain."""
        self.broken += 1
        self.given_up += len(self._waiting)
        self.given_up_us += sum(advance.dt_us for advance in self._waiting)
        self._waiting.clear()
        self._previous = NEVER

    def check(self) -> list[str]:
        """Each advance follows the one before it, and no time runs backwards."""
        broken: list[str] = []
        before: Advance | None = None
        for advance in self._waiting:
            if before is not None and advance.previous != before.version:
                broken.append(f"advance {advance.version} follows {advance.previous}, not {before.version}")
            if advance.version <= advance.previous or advance.dt_us < 0:
                broken.append(f"advance {advance.version} after {advance.previous} by {advance.dt_us} us")
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
