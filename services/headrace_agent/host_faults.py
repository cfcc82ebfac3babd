"""Faults of this host at starts: no room on a disk or for a process, limits that cannot be set.

They count against no operation. The node starts nothing for a while, so that its jobs go elsewhere.
"""

from __future__ import annotations

from typing import Final

from headrace.runtime.engine import NS_PER_MS, Moment

_FIRST_PAUSE_MS: Final = 5_000
_LONGEST_PAUSE_MS: Final = 300_000


class HostFaults:
    """The pause after a fault, twice as long as the one before unless a job started in between."""

    def __init__(self) -> None:
        #: Steady clock at which the pause is over; None where there is none.
        self.until_ns: int | None = None
        self._next_ms = _FIRST_PAUSE_MS

    def note(self, moment: Moment) -> None:
        """Begins a pause. Further faults of the same burst make it no longer."""
        if self.until_ns is None:
            self.until_ns = moment.steady_ns + self._next_ms * NS_PER_MS
            self._next_ms = min(2 * self._next_ms, _LONGEST_PAUSE_MS)

    def on_started(self) -> None:
        """A job has started. One that was on its way when the pause began tells nothing."""
        if self.until_ns is None:
            self._next_ms = _FIRST_PAUSE_MS

    def end_pause(self, moment: Moment) -> bool:
        """True if the pause is over, once for each pause."""
        if self.until_ns is None or moment.steady_ns < self.until_ns:
            return False
        self.until_ns = None
        return True
