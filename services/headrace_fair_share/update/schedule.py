"""The rule when the next update is due. Pure.

An update follows a change at once, but not before a pause since the end of the one before: its spacing, and twice what that one cost, or
four times where it cost much, up to a second. Without a change it follows after a period. Every few seconds one is made afresh, which
takes much longer: where it can be between changes, and without such a pause behind it, so that hardly a start waits for it.
"""

from __future__ import annotations

from typing import Final

from headrace.runtime.engine import Moment

#: The period where none is set: below and from this many operations on.
_MANY_OPERATIONS: Final = 1_000
_SHORT_PERIOD_US: Final = 200_000
_LONG_PERIOD_US: Final = 1_000_000
#: How often readers hear that nothing changed.
_REST_PERIOD_US: Final = 1_000_000
#: An update that costs less may hold the loop up: a hop to a thread and back takes as long, and much longer on a busy machine.
_BRIEF_US: Final = 4_000
#: The pause behind one that costs more is four times its cost, if not longer than this: jobs run on the same processors.
_LONGER_PAUSE_US: Final = 100_000
#: No pause is longer: where others take the processor an update takes long, and the more changes wait for it the longer the next.
_LONGEST_PAUSE_US: Final = 1_000_000
#: So many elements, or so many more than before, cost hardly anything. Where they took long, others had the processor.
_FEW_ELEMENTS: Final = 32
#: So long without a change is a pause, in which an update is made afresh that would be due within a fifth of its period.
_PAUSE_US: Final = 20_000
_EARLY: Final = 5


def _pause_us(cost_us: int) -> int:
    """The pause behind an update, as far as its cost tells."""
    if cost_us < _BRIEF_US:
        return 2 * cost_us
    return min(max(2 * cost_us, min(4 * cost_us, _LONGER_PAUSE_US)), _LONGEST_PAUSE_US)


class UpdateSchedule:
    """Updates of one life of the service, one after another."""

    def __init__(self, spacing_us: int, period_us: int, afresh_period_us: int) -> None:
        """A period of 0 stands for the usual one: 200 ms below 1,000 operations, 1 s from there on."""
        self._spacing_us = spacing_us
        self._period_us = period_us
        self._afresh_period_us = afresh_period_us
        #: True if something changed since the last update began.
        self.is_wanted = True
        self._began_us = 0
        self._computed_since_us = 0
        self._not_before_us = 0
        #: Between the end of an update and the next one.
        self._pause_us = spacing_us
        self._ended_us = self._afresh_us = 0
        #: True if the update under way follows no change.
        self._is_quiet = False
        #: Elements of the computation under way. 0: there is none, as nothing can have changed.
        self._elements = 0
        self._afresh = False
        #: With so many elements or fewer a computation is brief, going by the last one.
        self._brief_elements = _FEW_ELEMENTS

    def on_change(self) -> None:
        """Something that an update is made from has changed."""
        self.is_wanted = True

    def on_begin(self, moment: Moment) -> None:
        """An update begins: volumes are advanced."""
        self._is_quiet, self.is_wanted, self._elements = not self.is_wanted, False, 0
        self._began_us = self._computed_since_us = moment.steady_us

    def begins_afresh(self, moment: Moment) -> bool:
        """True if the update under way is to be made afresh. It counts as made then."""
        is_due = self._is_afresh_due(moment, early=self._is_quiet)
        if is_due:
            self._afresh_us = moment.steady_us
        return is_due

    def on_compute(self, moment: Moment, elements: int, *, afresh: bool) -> bool:
        """The computation of so many elements begins, perhaps without anything that was kept. Only from here on the update costs.

        True if it is brief: it is of few elements, or the last one that used what was kept was brief and hardly of fewer.
        """
        self._computed_since_us, self._elements, self._afresh = moment.steady_us, elements, afresh
        return not afresh and elements <= self._brief_elements

    def on_end(self, moment: Moment) -> None:
        """The update is published, or failed."""
        self._ended_us = moment.steady_us
        cost_us = moment.steady_us - self._computed_since_us
        if not self._afresh:
            self._pause_us = max(self._spacing_us, _pause_us(cost_us))
        self._not_before_us = moment.steady_us + self._pause_us
        is_brief = cost_us < _BRIEF_US
        # Without what is kept it takes longer, which says nothing of those that use it.
        if self._elements and (is_brief or not self._afresh):
            self._brief_elements = _FEW_ELEMENTS + (self._elements if is_brief else 0)

    def seconds_until_due(
        self, moment: Moment, operations: int, *, at_rest: bool, period_ms: int | None = None
    ) -> float:
        """Seconds until the next update is to begin, 0 if it is due.

        `at_rest`: time alone changes no figure. `period_ms` is the tree's, which goes before the setting.
        """
        due_us = self._not_before_us
        if not self.is_wanted:
            own_us = self._period_us if period_ms is None else 1_000 * period_ms
            period_us = own_us or (_SHORT_PERIOD_US if operations < _MANY_OPERATIONS else _LONG_PERIOD_US)
            next_us = self._began_us + (max(period_us, _REST_PERIOD_US) if at_rest else period_us)
            if not at_rest and self._is_afresh_due(moment, early=True):
                next_us = min(next_us, self._ended_us + _PAUSE_US)
            due_us = max(due_us, next_us)
        return max(0, due_us - moment.steady_us) / 1_000_000

    def _is_afresh_due(self, moment: Moment, *, early: bool) -> bool:
        period_us = self._afresh_period_us
        return moment.steady_us - self._afresh_us >= period_us - (period_us // _EARLY if early else 0)
