"""The only module that reads clocks. Engines get the time as an argument, and shells get a `Clock`."""

from __future__ import annotations

import sys
import time
from typing import Final, Protocol

from headrace.runtime.engine import Moment


class Clock(Protocol):
    """The clocks that a shell reads for its engine."""

    def now(self) -> Moment:
        """Read both clocks now."""
        ...

    def wall_ms(self) -> int:
        """Return Unix time in milliseconds, for people and for records. Do not compute durations from Unix time: it may jump."""
        ...

    def steady_s(self) -> float:
        """Return the time of the steady clock in seconds, for deadlines and durations."""
        ...


#: The steady clock also runs while the machine sleeps, as leases require. On macOS, CLOCK_MONOTONIC is such a clock.
if sys.platform == "linux":
    _STEADY: Final = time.CLOCK_BOOTTIME
else:
    _STEADY: Final = time.CLOCK_MONOTONIC


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Moment:
        return Moment(time.clock_gettime_ns(_STEADY), self.wall_ms())

    def wall_ms(self) -> int:
        return self.wall_ns() // 1_000_000

    def wall_ns(self) -> int:
        """Return Unix time in nanoseconds, for spans."""
        return time.time_ns()

    def steady_s(self) -> float:
        return time.clock_gettime_ns(_STEADY) / 1_000_000_000
