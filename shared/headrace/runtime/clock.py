"""The only place that reads clocks. Engines get moments as arguments, and shells get a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol

from headrace.runtime.engine import Moment


class Clock(Protocol):
    """Moments for a shell to hand to its engine."""

    def moment(self) -> Moment:
        """Both clocks, read now."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds of Unix time: for people and for records, never for measuring."""
        ...

    def steady_s(self) -> float:
        """Seconds of the steady clock: for deadlines and lengths of time."""
        ...


class SystemClock:
    """The machine's clocks. The steady one is CLOCK_BOOTTIME, which goes on while the machine sleeps, as leases need."""

    def moment(self) -> Moment:
        return Moment(time.clock_gettime_ns(time.CLOCK_BOOTTIME), self.wall_ms())

    def wall_ms(self) -> int:
        return self.wall_ns() // 1_000_000

    def wall_ns(self) -> int:
        """Nanoseconds of Unix time, for spans."""
        return time.time_ns()

    def steady_s(self) -> float:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1_000_000_000
