"""The only place that reads clocks. Engines get moments as arguments; shells get a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Moments for a shell to hand to its engine."""

    def wall_ms(self) -> int:
        """Milliseconds of Unix time: for people and for records, never for measuring."""
        ...

    def steady_s(self) -> float:
        """Seconds of a clock that never jumps and is the process's own: for deadlines and lengths of time."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_s(self) -> float:
        return time.monotonic()
