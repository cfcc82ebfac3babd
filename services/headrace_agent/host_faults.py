"""Host faults at the start of jobs: a full disk, no resources for a process, limits that cannot be set.

Such a fault does not count as a failure of the operation. After it the node starts no job for a while, so that the jobs run on other nodes.
"""

from __future__ import annotations

from typing import Final

from headrace.runtime.engine import NS_PER_MS, Moment

_FIRST_PAUSE_MS: Final = 5_000
_LONGEST_PAUSE_MS: Final = 300_000


class HostFaults:
    """The pause after a host fault. Each pause is twice as long as the pause before it, up to a bound, unless a job started in between."""

    def __init__(self) -> None:
        #: CLOCK_BOOTTIME in nanoseconds at which the pause ends; None: no pause.
        self.until_ns: int | None = None
        self._next_ms = _FIRST_PAUSE_MS

    def note(self, now: Moment) -> None:
        """Begin a pause. Further faults during a pause do not prolong it."""
        if self.until_ns is None:
            self.until_ns = now.steady_ns + self._next_ms * NS_PER_MS
            self._next_ms = min(2 * self._next_ms, _LONGEST_PAUSE_MS)

    def on_started(self) -> None:
        """Reset the length of the next pause, since a job has started.

        A start during a pause is ignored: the job was sent to the runner before the pause began.
        """
        if self.until_ns is None:
            self._next_ms = _FIRST_PAUSE_MS

    def end_pause(self, now: Moment) -> bool:
        """End the pause if its time is over. Return True at the call that ends it, else False."""
        if self.until_ns is None or now.steady_ns < self.until_ns:
            return False
        self.until_ns = None
        return True
