"""For how long elements have been short of their fair share; pure.

Moments are of a clock that runs only while usage can be judged: it stands while usage is old or incomplete and while no service
runs. Ages are what survives a restart. An element without a clock is normal and does not starve.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from headrace.wire.snapshots import StarvationStatus
from headrace.wire.version import Counter

__all__ = ["Age", "Ages", "Clock", "Timeouts", "aged", "clocks_of", "step"]


class Clock(msgspec.Struct, frozen=True):
    """One element that is below its fair share; moments in milliseconds of the judging clock."""

    below_since: int
    starvation: StarvationStatus = StarvationStatus.NON_STARVING
    starving_since: int | None = None


class Timeouts(msgspec.Struct, frozen=True):
    """When being below becomes starving."""

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


def step(clock: Clock | None, now: int, timeouts: Timeouts) -> Clock:
    """The clock after an update that found the element below its fair share at `now`; one that is not has none."""
    if clock is None:
        return Clock(below_since=now)
    if timeouts.aggressive_enabled and now > clock.below_since + timeouts.aggressive_ms:
        starvation = StarvationStatus.AGGRESSIVELY_STARVING
    elif now > clock.below_since + timeouts.starving_ms:
        starvation = StarvationStatus.STARVING
    else:
        return clock
    if starvation is clock.starvation:
        return clock
    since = clock.starving_since if clock.starving_since is not None else now
    return Clock(below_since=clock.below_since, starvation=starvation, starving_since=since)


def aged(clocks: Mapping[str, Clock], now: int) -> list[Age]:
    """All clocks as ages."""
    return [
        Age(
            key=key,
            below_ms=max(0, now - clock.below_since),
            starvation=clock.starvation,
            starving_ms=None if clock.starving_since is None else max(0, now - clock.starving_since),
        )
        for key, clock in clocks.items()
    ]


def clocks_of(ages: Iterable[Age], now: int) -> dict[str, Clock]:
    """Clocks that have run for so long at `now`."""
    return {
        age.key: Clock(
            below_since=now - age.below_ms,
            starvation=age.starvation,
            starving_since=None if age.starving_ms is None else now - age.starving_ms,
        )
        for age in ages
    }
