"""The schedule of updates: when the next update is due. Pure.

An update starts as soon as something changes, but not before a pause has passed since the end of the previous update. The cost of an update
is the time that it took. The pause is the configured spacing, or twice the cost of the previous update if that is longer. After a cost of 4
ms or more, the pause is at least four times the cost or 100 ms, whichever is shorter. A cost never makes the pause longer than a second.
Without a change, the next update starts after a period.

Every few seconds an update is computed from scratch, which takes much longer. It runs at a time without changes where possible, and its
cost does not lengthen the pause after it. So it hardly delays the start of an operation.
"""

from __future__ import annotations

from typing import Final

from headrace.runtime.engine import Moment

#: Number of operations at which the default period changes from 200 ms to 1 s.
_MANY_OPERATIONS: Final = 1_000
_SHORT_PERIOD_US: Final = 200_000
_LONG_PERIOD_US: Final = 1_000_000
#: Microseconds between snapshots that only confirm that nothing changed.
_REST_PERIOD_US: Final = 1_000_000
#: Longest time in microseconds for which an update may block the event loop. Handing the update to a thread takes as long, and much longer
#: on a busy machine.
_BRIEF_US: Final = 4_000
#: Upper bound in microseconds of a pause of four times the cost of an update. The pause is that long because jobs run on the same
#: processors.
_LONGER_PAUSE_US: Final = 100_000
#: Upper bound in microseconds of every pause. When other processes use the processor, an update takes long. If the pause grew in
#: proportion, many changes would collect, and the next update would take even longer.
_LONGEST_PAUSE_US: Final = 1_000_000
#: Number of elements, or of additional elements, that cost hardly anything to update. If an update of so few elements takes long, the
#: reason is that other processes use the processor.
_FEW_ELEMENTS: Final = 32
#: Microseconds without a change, after which an update from scratch may run early, by up to a fifth of its period.
_PAUSE_US: Final = 20_000
_EARLY: Final = 5


def _pause_us(cost_us: int) -> int:
    """Return the pause after an update of this cost, in microseconds."""
    if cost_us < _BRIEF_US:
        return 2 * cost_us
    return min(max(2 * cost_us, min(4 * cost_us, _LONGER_PAUSE_US)), _LONGEST_PAUSE_US)


class UpdateSchedule:
    """The schedule of all updates in one run of the service."""

    def __init__(self, spacing_us: int, period_us: int, afresh_period_us: int) -> None:
        """Create the schedule. A period of 0 means the default: 200 ms with fewer than 1,000 operations, else 1 s."""
        self._spacing_us = spacing_us
        self._period_us = period_us
        self._afresh_period_us = afresh_period_us
        #: True if something changed since the last update started.
        self.is_wanted = True
        self._began_us = 0
        self._computed_since_us = 0
        self._not_before_us = 0
        #: Microseconds between the end of an update and the start of the next.
        self._pause_us = spacing_us
        self._ended_us = self._afresh_us = 0
        #: True if no change led to the update in progress.
        self._is_quiet = False
        #: Number of elements of the computation in progress. 0 if nothing is computed because nothing can have changed.
        self._elements = 0
        self._afresh = False
        #: Largest number of elements whose computation is expected to be brief, judged by the last computation.
        self._brief_elements = _FEW_ELEMENTS

    def on_change(self) -> None:
        """Record that an input of updates changed."""
        self.is_wanted = True

    def on_begin(self, now: Moment) -> None:
        """Record that an update starts; its first step is to advance the volumes."""
        self._is_quiet, self.is_wanted, self._elements = not self.is_wanted, False, 0
        self._began_us = self._computed_since_us = now.steady_us

    def begins_afresh(self, now: Moment) -> bool:
        """Return True if the update in progress must be computed from scratch, and record that it is."""
        is_due = self._is_afresh_due(now, early=self._is_quiet)
        if is_due:
            self._afresh_us = now.steady_us
        return is_due

    def on_compute(self, now: Moment, elements: int, *, afresh: bool) -> bool:
        """Record that the computation starts. Return True if it is expected to be brief.

        The cost of the update counts from here. A computation is expected to be brief if it has at most `_FEW_ELEMENTS` elements, or if the
        last computation was brief and had at most `_FEW_ELEMENTS` fewer elements. A computation from scratch (`afresh`) is never expected
        to be brief.
        """
        self._computed_since_us, self._elements, self._afresh = now.steady_us, elements, afresh
        return not afresh and elements <= self._brief_elements

    def on_end(self, now: Moment) -> None:
        """Record that the update was published, or that it failed."""
        self._ended_us = now.steady_us
        cost_us = now.steady_us - self._computed_since_us
        if not self._afresh:
            self._pause_us = max(self._spacing_us, _pause_us(cost_us))
        self._not_before_us = now.steady_us + self._pause_us
        is_brief = cost_us < _BRIEF_US
        # A long update from scratch is ignored here: it says nothing about incremental updates, which take less time.
        if self._elements and (is_brief or not self._afresh):
            self._brief_elements = _FEW_ELEMENTS + (self._elements if is_brief else 0)

    def seconds_until_due(self, now: Moment, operations: int, *, at_rest: bool, period_ms: int | None = None) -> float:
        """Return the seconds until the next update must start, 0 if it is due.

        `at_rest` means that no result changes merely because time passes. `period_ms` is the tree's own period; it overrides the setting.
        """
        due_us = self._not_before_us
        if not self.is_wanted:
            own_us = self._period_us if period_ms is None else 1_000 * period_ms
            period_us = own_us or (_SHORT_PERIOD_US if operations < _MANY_OPERATIONS else _LONG_PERIOD_US)
            next_us = self._began_us + (max(period_us, _REST_PERIOD_US) if at_rest else period_us)
            if not at_rest and self._is_afresh_due(now, early=True):
                next_us = min(next_us, self._ended_us + _PAUSE_US)
            due_us = max(due_us, next_us)
        return max(0, due_us - now.steady_us) / 1_000_000

    def _is_afresh_due(self, now: Moment, *, early: bool) -> bool:
        period_us = self._afresh_period_us
        return now.steady_us - self._afresh_us >= period_us - (period_us // _EARLY if early else 0)
