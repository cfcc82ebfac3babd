"""Does an element have what it is owed: satisfaction ratios and the momentary scheduling status; pure."""

from __future__ import annotations

from typing import Final

from headrace.resources import EPS, Share
from headrace.wire.snapshots import SchedulingStatus

__all__ = ["INFINITE", "NEARLY", "is_short", "local_satisfaction", "owed_everything", "status_of"]

#: Stands for an infinite ratio; only its being larger than everything matters.
INFINITE: Final = 1e9
#: An operation whose fair share comes this near to its demand is owed its whole demand.
NEARLY: Final = 1e-4


def local_satisfaction(usage: Share, fair: Share, demand: Share) -> float:
    """Usage over fair share, by the resources that count."""
    if all(part <= EPS for part in fair):
        return INFINITE
    if any(used > owed for used, owed in zip(usage, fair, strict=True)):
        return max(_ratio(used, owed, when_both_zero=0.0) for used, owed in zip(usage, fair, strict=True))
    blocked = [owed >= want for owed, want in zip(fair, demand, strict=True)]
    if all(blocked):
        return min(used / owed if owed > 0 else 1.0 for used, owed in zip(usage, fair, strict=True))
    ratios = [used / owed for used, owed, out in zip(usage, fair, blocked, strict=True) if not out and owed > 0]
    return max(ratios, default=0.0)


def _ratio(used: float, owed: float, *, when_both_zero: float) -> float:
    if owed > 0:
        return min(used / owed, INFINITE)
    return INFINITE if used > 0 else when_both_zero


def is_short(bound: Share, usage: Share, fair: Share, demand: Share) -> bool:
    """True when `bound` is strictly above usage in every resource in which more fair share would help; in any, if none would."""
    above = [most > used for most, used in zip(bound, usage, strict=True)]
    counting = [is_above for is_above, owed, want in zip(above, fair, demand, strict=True) if owed < want]
    return all(counting) if counting else any(above)


def owed_everything(fair: Share, demand: Share) -> bool:
    """True where the fair share covers the demand in every resource."""
    return all(owed + NEARLY >= want for owed, want in zip(fair, demand, strict=True))


def status_of(usage: Share, fair: Share, demand: Share, tolerance: float, *, operation: bool) -> SchedulingStatus:
    """Below its fair share, with some tolerance; an operation that is owed its whole demand has none."""
    if operation and owed_everything(fair, demand):
        tolerance = 1.0
    u, c, g, m, n = (min(tolerance * owed, want) for owed, want in zip(fair, demand, strict=True))
    if is_short((u, c, g, m, n), usage, fair, demand):
        return SchedulingStatus.BELOW_FAIR_SHARE
    return SchedulingStatus.NORMAL
