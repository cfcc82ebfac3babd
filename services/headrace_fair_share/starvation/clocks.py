"""Starvation clocks: for how long elements have been below what they are owed. Pure.

Every element has two clocks. The first runs while the element is below its fair share. The second is used for pools only, and runs while
the pool is below its strong guarantee. All times are in counted time (`CountedTime`). The clocks are saved as ages, so they survive a
restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from headrace.runtime.engine import Moment
from headrace.wire.snapshots import StarvationReason, StarvationStatus
from headrace.wire.version import Counter, Term
from headrace_fair_share.hdrf.arrays import Bools, Floats, Ints
from headrace_fair_share.starvation.rules import Timeouts

#: Statuses and reasons by code: a code is an index into these tuples.
STARVATION: Final = tuple(StarvationStatus)
STARVATION_REASON: Final = tuple(StarvationReason)
_STARVING: Final = STARVATION.index(StarvationStatus.STARVING)
_AGGRESSIVE: Final = STARVATION.index(StarvationStatus.AGGRESSIVELY_STARVING)
#: Marks a missing time. It is not -1, because times before the start of the service are negative.
NO_TIME: Final = np.iinfo(np.int64).min


class Age(msgspec.Struct, frozen=True, array_like=True):
    """The clocks of an element as they are saved: durations in milliseconds instead of times; None if a clock does not run."""

    key: str
    below_ms: Counter | None = None
    starvation: StarvationStatus = StarvationStatus.NON_STARVING
    starving_ms: Counter | None = None
    #: Time below the strong guarantee.
    short_ms: Counter | None = None
    #: Time for which the element has starved for its strong guarantee.
    short_starving_ms: Counter | None = None
    #: Under a YARN policy: time since the element last reached its starvation threshold.
    had_share_ms: Counter | None = None
    #: Under a YARN policy: time since the pool last had its minimum.
    had_minimum_ms: Counter | None = None


class Ages(msgspec.Struct, frozen=True):
    """The ages of some starvation clocks, which are stored as one value in the bucket of starvation clocks."""

    ages: list[Age] = []
    #: Term of the process that wrote the value.
    term: Term = 0


@dataclass(frozen=True, eq=False)
class Clocks:
    """The starvation clocks of all elements, in milliseconds of counted time."""

    keys: Sequence[str]
    #: Start of the time below the fair share; `NO_TIME` if the element is not below its fair share.
    below_since: Ints
    #: Code of the `StarvationStatus` with regard to the fair share; 0: not starving.
    starving: Ints
    #: Start of the starvation with regard to the fair share; undefined while `starving` is 0.
    starving_since: Ints
    #: Start of the time below the strong guarantee.
    short_since: Ints
    #: Start of the starvation for the strong guarantee; `NO_TIME` if the element does not starve for it.
    short_starving_since: Ints

    @staticmethod
    def none(keys: Sequence[str] = ()) -> Clocks:
        """Return clocks that do not run."""
        never = np.full(len(keys), NO_TIME)
        return Clocks(keys, never, np.zeros(len(keys), np.int64), never, never, never)

    @cached_property
    def running(self) -> Ints:
        """Positions of elements with a running clock."""
        return np.flatnonzero((self.below_since != NO_TIME) | (self.short_since != NO_TIME))

    @property
    def starvation(self) -> Ints:
        """Status codes of all elements, whether they starve for their fair share or for their strong guarantee."""
        return np.maximum(self.starving, np.where(self.short_starving_since != NO_TIME, _STARVING, 0))

    @property
    def reason(self) -> Ints:
        """Codes of the reasons: the strong guarantee if the element starves for it, else the fair share."""
        fair = STARVATION_REASON.index(StarvationReason.FAIR_SHARE)
        min_share = STARVATION_REASON.index(StarvationReason.MIN_SHARE)
        return np.where(self.short_starving_since != NO_TIME, min_share, np.where(self.starving > 0, fair, 0))

    @property
    def since(self) -> Ints:
        """Times at which elements began to starve, for their fair share or for their strong guarantee."""
        fair, short = self.starving_since, self.short_starving_since
        return np.where(fair == NO_TIME, short, np.where(short == NO_TIME, fair, np.minimum(fair, short)))

    def of(self, keys: Sequence[str], places: dict[str, int]) -> Clocks:
        """Return the clocks for another list of elements, given by keys and positions. New elements have no running clock."""
        if keys is self.keys:
            return self
        there = [place for place in self.running.tolist() if self.keys[place] in places]
        target = [places[self.keys[place]] for place in there]
        moved = Clocks.none(keys)
        return Clocks(
            keys, *(_moved(to, target, of, there) for to, of in zip(moved._columns(), self._columns(), strict=True))
        )

    def in_place_of(self, others: Clocks, where: Bools) -> Clocks:
        """Return clocks with the times of this object where `where` is True, and with the times of `others` elsewhere."""
        pairs = zip(self._columns(), others._columns(), strict=True)
        return Clocks(self.keys, *(np.where(where, one, other) for one, other in pairs))

    def ages(self, now_ms: int) -> list[Age]:
        """Return the ages of all running clocks at the counted time `now_ms`."""
        places = self.running
        ages = (
            [None if now == NO_TIME else max(0, now_ms - now) for now in column[places].tolist()]
            for column in (self.below_since, self.starving_since, self.short_since, self.short_starving_since)
        )
        codes = self.starving[places].tolist()
        rows = zip((self.keys[place] for place in places.tolist()), codes, *ages, strict=True)
        return [Age(key, below, STARVATION[code], *others) for key, code, below, *others in rows]

    def check(self, elements: Set[str]) -> list[str]:
        """Return an error for each clock that runs for an element that does not exist."""
        strangers = {self.keys[place] for place in self.running.tolist()} - elements
        return [f"a clock runs for {key}, which is not in the last update" for key in sorted(strangers)[:10]]

    def _columns(self) -> tuple[Ints, ...]:
        return self.below_since, self.starving, self.starving_since, self.short_since, self.short_starving_since


def _moved(into: Ints, target: list[int], column: Ints, there: list[int]) -> Ints:
    moved = into.copy()
    moved[target] = column[there]
    return moved


def step(clocks: Clocks, now_ms: int, below: Bools, short: Bools, timeouts: Timeouts) -> Clocks:
    """Return the clocks after an update. `below` marks elements below their fair share, `short` pools below their strong guarantee.

    An element starves when it has been below its fair share for longer than `starving_ms`. It starves aggressively after `aggressive_ms`,
    if aggressive starvation is enabled. The first update that finds an element below its fair share only starts the clock. A starving
    element keeps its status until it is no longer below its fair share.
    """
    passed = np.where(below & (clocks.below_since != NO_TIME), now_ms - clocks.below_since.astype(np.float64), -np.inf)
    aggressive = timeouts.aggressive_enabled & (passed > timeouts.aggressive_ms)
    starving = np.where(aggressive, _AGGRESSIVE, np.where(passed > timeouts.starving_ms, _STARVING, clocks.starving))
    starving = np.where(below, starving, 0)
    owed = np.where(short & (clocks.short_since != NO_TIME), now_ms - clocks.short_since.astype(np.float64), -np.inf)
    is_owed = short & ((owed > timeouts.short_ms) | (clocks.short_starving_since != NO_TIME))
    return Clocks(
        clocks.keys,
        below_since=_since(clocks.below_since, below, now_ms),
        starving=starving,
        starving_since=_since(clocks.starving_since, starving > 0, now_ms),
        short_since=_since(clocks.short_since, short, now_ms),
        short_starving_since=_since(clocks.short_starving_since, is_owed, now_ms),
    )


def _since(since_ms: Ints, holds: Bools, now_ms: int) -> Ints:
    """Return the time since which the condition holds: the previous time if it held before, else now."""
    return np.where(holds, np.where(since_ms == NO_TIME, now_ms, since_ms), NO_TIME)


@dataclass(frozen=True, slots=True, eq=False)
class Coming:
    """Times at which `step` will first find elements starving, in milliseconds of counted time, by position.

    The prediction assumes that an element that is below its share or guarantee stays below it. `NO_TIME` if an element starves already or
    will not starve.
    """

    #: Time at which the element starves for its fair share.
    starving: Ints
    aggressive: Ints
    #: Time at which the element starves for its strong guarantee.
    short: Ints


def coming(clocks: Clocks, timeouts: Timeouts) -> Coming:
    """Predict when `step` will find elements starving if the timeouts stay the same.

    If the timeout of aggressive starvation passes before the other timeout, `starving` is the time at which the aggressive timeout passes.
    """
    aggressive_ms = np.where(timeouts.aggressive_enabled, timeouts.aggressive_ms, np.inf)
    starving = _passes(clocks.below_since, np.minimum(timeouts.starving_ms, aggressive_ms))
    aggressive = _passes(clocks.below_since, aggressive_ms)
    short = _passes(clocks.short_since, timeouts.short_ms)
    return Coming(
        starving=np.where(clocks.starving > 0, NO_TIME, starving),
        aggressive=np.where(clocks.starving == _AGGRESSIVE, NO_TIME, aggressive),
        short=np.where(clocks.short_starving_since != NO_TIME, NO_TIME, short),
    )


def _passes(since: Ints, timeout_ms: Floats) -> Ints:
    """Return the first millisecond at which more than the timeout has passed; `NO_TIME` if there is none."""
    comes = (since != NO_TIME) & np.isfinite(timeout_ms)
    passed = np.floor(np.where(comes, timeout_ms, 0.0)).astype(np.int64) + 1
    return np.where(comes, np.where(comes, since, 0) + passed, NO_TIME)


def clocks_of(ages: Iterable[Age], now_ms: int) -> Clocks:
    """Return clocks that have these ages at the counted time `now_ms`."""
    listed = list(ages)

    def starts_ms(lengths: Iterable[int | None]) -> Ints:
        return np.array([NO_TIME if length is None else now_ms - length for length in lengths], np.int64)

    return Clocks(
        [age.key for age in listed],
        below_since=starts_ms(age.below_ms for age in listed),
        starving=np.array([STARVATION.index(age.starvation) for age in listed], np.int64),
        starving_since=starts_ms(age.starving_ms for age in listed),
        short_since=starts_ms(age.short_ms for age in listed),
        short_starving_since=starts_ms(age.short_starving_ms for age in listed),
    )


class CountedTime:
    """Adds up the time since the service started that counts for starvation, and the time that counts for volumes.

    The time between two updates counts for starvation if the usage was fresh and complete at both updates. It counts for volumes if the
    usage was complete at both updates, even if it was not fresh. No time counts before the first update after a start of the service.
    """

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

    def on_update(self, now: Moment, *, usage_counts: bool, complete: bool) -> int:
        """Record that an update starts. Return the microseconds that count for volumes."""
        if self._last_us is None:
            self._offset_us = now.wall_ms * 1000
        passed_us = 0 if self._last_us is None else max(0, now.steady_us - self._last_us)
        if usage_counts and self._last_usage_counts:
            self._counted_us += passed_us
        else:
            self._offset_us += passed_us
        counted_us = passed_us if complete and self._last_complete else 0
        self._last_us, self._last_usage_counts, self._last_complete = now.steady_us, usage_counts, complete
        return counted_us
