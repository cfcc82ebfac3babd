"""How much time has passed, for volumes and for starvation; pure.

For starvation the clock runs only between two updates that could both be judged; for volumes time counts only between two updates of
which the allocator's picture was complete. The first update of a life has seen no time pass.
"""

from __future__ import annotations

import msgspec

__all__ = ["JudgingClock", "Moment"]


class Moment(msgspec.Struct, frozen=True):
    """One moment: milliseconds of Unix time for people, microseconds of a clock that never jumps for measuring."""

    wall_ms: int
    steady_us: int


class JudgingClock:
    """Time as the engine counts it."""

    def __init__(self) -> None:
        self._last_us: int | None = None
        self._last_judged = False
        self._last_complete = False
        self._judged_us = 0
        self._offset_us = 0

    @property
    def now_ms(self) -> int:
        """Milliseconds that the clock of starvation has run in this life."""
        return self._judged_us // 1000

    @property
    def offset_ms(self) -> int:
        """What makes moments of Unix time of it; grows while it stands."""
        return self._offset_us // 1000

    def on_update(self, now: Moment, *, judged: bool, complete: bool) -> int:
        """An update begins; returns the microseconds that count for volumes."""
        if self._last_us is None:
            self._offset_us = now.wall_ms * 1000
        passed = 0 if self._last_us is None else max(0, now.steady_us - self._last_us)
        if judged and self._last_judged:
            self._judged_us += passed
        else:
            self._offset_us += passed
        counted = passed if complete and self._last_complete else 0
        self._last_us, self._last_judged, self._last_complete = now.steady_us, judged, complete
        return counted
