"""Moments and clocks for tests: they stand until they are moved."""

from __future__ import annotations

from typing import Final

from headrace.runtime.engine import Moment

__all__ = ["NOW", "HandClock", "at"]


def at(steady_s: float = 0.0, wall_ms: int | None = None) -> Moment:
    """A moment so many seconds after the start of the steady clock; Unix time goes along if it is not given."""
    return Moment(round(steady_s * 1e9), round(steady_s * 1000) if wall_ms is None else wall_ms)


#: Where the time does not matter.
NOW: Final = at(1.0)


class HandClock:
    """A clock that moves when told, and by `tick_s` with every look at the steady one."""

    def __init__(self, wall_ms: int = 0, *, tick_s: float = 0.0) -> None:
        self.now_s = 0.0
        self._wall_ms = wall_ms
        self._tick_s = tick_s

    def now(self) -> Moment:
        return at(self.steady_s(), self.wall_ms())

    def wall_ms(self) -> int:
        return self._wall_ms + int(self.now_s * 1000)

    def steady_s(self) -> float:
        self.now_s += self._tick_s
        return self.now_s
