"""Counted time: the time that counts for starvation and for volumes. Pure.

For starvation, time counts between two updates if both had fresh and complete usage. For volumes, it counts if the allocator's usage was
complete at both updates. No time counts before the first update after a start of the service.
"""

from __future__ import annotations

from headrace.runtime.engine import Moment


class CountedTime:
    """Sums the counted time between updates since the service started."""

    def __init__(self) -> None:
        self._last_us: int | None = None
        self._last_usage_counts = False
        self._last_complete = False
        self._counted_us = 0
        self._offset_us = 0

    @property
    def now_ms(self) -> int:
        """Milliseconds counted for starvation since the service started."""
        return self._counted_us // 1000

    @property
    def offset_ms(self) -> int:
        """Unix time minus counted time, in milliseconds. It grows while no time counts."""
        return self._offset_us // 1000

    @property
    def goes_on(self) -> bool:
        """True if time counted for starvation at the last update."""
        return self._last_usage_counts

    def on_update(self, moment: Moment, *, usage_counts: bool, complete: bool) -> int:
        """Record that an update starts. Return the microseconds that count for volumes."""
        if self._last_us is None:
            self._offset_us = moment.wall_ms * 1000
        passed_us = 0 if self._last_us is None else max(0, moment.steady_us - self._last_us)
        if usage_counts and self._last_usage_counts:
            self._counted_us += passed_us
        else:
            self._offset_us += passed_us
        counted_us = passed_us if complete and self._last_complete else 0
        self._last_us, self._last_usage_counts, self._last_complete = moment.steady_us, usage_counts, complete
        return counted_us
