"""The clock of a simulated process."""

from __future__ import annotations

from headrace.runtime.engine import Moment
from tests.simulation.loop import VirtualLoop

__all__ = ["LoopClock"]


class LoopClock:
    """Shows virtual time; Unix time begins with the world, `ahead_ms` off for one that is set wrong."""

    def __init__(self, loop: VirtualLoop, ahead_ms: int = 0) -> None:
        self._loop = loop
        self.ahead_ms = ahead_ms

    def now(self) -> Moment:
        return Moment(round(self._loop.time() * 1e9), self.wall_ms())

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self._loop.time() * 1000) + self.ahead_ms

    def steady_s(self) -> float:
        return self._loop.time()
