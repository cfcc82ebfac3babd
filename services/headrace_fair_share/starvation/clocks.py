"""The clocks of starvation: for how long elements have been below their fair share. Pure.

Moments are of a clock that runs only while time counts (`time_that_counts`). Ages survive a restart. An element without a clock has its
fair share and does not starve.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import numpy as np

from headrace.wire.snapshots import StarvationReason, StarvationStatus
from headrace.wire.version import Counter, Term
from headrace_fair_share.hdrf.arrays import Ints

__all__ = [
    "NO_MOMENT",
    "STARVATION",
    "STARVATION_REASON",
    "Age",
    "Ages",
    "Clock",
    "Timeouts",
    "ages_of",
    "clocks_of",
    "moments_of",
    "step",
]

#: Codes of statuses are places here.
STARVATION: Final = tuple(StarvationStatus)
STARVATION_REASON: Final = tuple(StarvationReason)
#: Stands where there is no moment.
NO_MOMENT: Final = -1


class Clock(msgspec.Struct, frozen=True):
    """The clock of one element that is below its fair share, in milliseconds of the time that counts."""

    below_since: int
    starvation: StarvationStatus = StarvationStatus.NON_STARVING
    starving_since: int | None = None


class Timeouts(msgspec.Struct, frozen=True):
    """The lengths of time after which an element below its fair share starves."""

    starving_ms: int = 30_000
    aggressive_ms: int = 120_000
    aggressive_enabled: bool = False


class Age(msgspec.Struct, frozen=True, array_like=True):
    """A clock as it is saved: lengths of time instead of moments."""

    key: str
    below_ms: Counter
    starvation: StarvationStatus
    starving_ms: Counter | None = None


class Ages(msgspec.Struct, frozen=True):
    """One value of the bucket of clocks."""

    ages: list[Age] = []
    #: Of the process that wrote it.
    term: Term = 0


def step(clock: Clock | None, now_ms: int, timeouts: Timeouts) -> Clock:
    """Returns the clock after an update that found the element below its fair share. Other elements have none.

    It starves when it has been below for longer than `starving_ms`, aggressively when longer than `aggressive_ms` where that is enabled.
    """
    if clock is None:
        return Clock(below_since=now_ms)
    if timeouts.aggressive_enabled and now_ms > clock.below_since + timeouts.aggressive_ms:
        starvation = StarvationStatus.AGGRESSIVELY_STARVING
    elif now_ms > clock.below_since + timeouts.starving_ms:
        starvation = StarvationStatus.STARVING
    else:
        return clock
    if starvation is clock.starvation:
        return clock
    since = clock.starving_since if clock.starving_since is not None else now_ms
    return Clock(below_since=clock.below_since, starvation=starvation, starving_since=since)


def moments_of(clocks: Mapping[str, Clock], places: Mapping[str, int], offset_ms: int) -> tuple[Ints, Ints, Ints]:
    """Arrays of all elements: below since, starving since (Unix ms or `NO_MOMENT`), and the code of the starvation status.

    `offset_ms` turns moments of the time that counts into Unix time.
    """
    below, starving = np.full((2, len(places)), NO_MOMENT)
    starvation = np.zeros(len(places), np.int64)
    for key, clock in clocks.items():
        place = places[key]
        below[place] = max(0, clock.below_since + offset_ms)
        if clock.starving_since is not None:
            starving[place] = max(0, clock.starving_since + offset_ms)
        starvation[place] = STARVATION.index(clock.starvation)
    return below, starving, starvation


def ages_of(clocks: Mapping[str, Clock], now_ms: int) -> list[Age]:
    """Ages of all clocks at a moment of the time that counts."""
    return [
        Age(
            key=key,
            below_ms=max(0, now_ms - clock.below_since),
            starvation=clock.starvation,
            starving_ms=None if clock.starving_since is None else max(0, now_ms - clock.starving_since),
        )
        for key, clock in clocks.items()
    ]


def clocks_of(ages: Iterable[Age], now_ms: int) -> dict[str, Clock]:
    """Clocks that have run for so long at a moment of the time that counts."""
    return {
        age.key: Clock(
            below_since=now_ms - age.below_ms,
            starvation=age.starvation,
            starving_since=None if age.starving_ms is None else now_ms - age.starving_ms,
        )
        for age in ages
    }
