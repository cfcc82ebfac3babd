"""Does an element have what it is owed: the momentary scheduling status, and the satisfaction ratio that all services share; pure."""

from __future__ import annotations

from typing import Final

from headrace.resources import Share
from headrace.satisfaction import INFINITE_SATISFACTION as INFINITE
from headrace.satisfaction import local_satisfaction
from headrace.wire.snapshots import SchedulingStatus

__all__ = ["INFINITE", "NEARLY", "is_short", "local_satisfaction", "owed_everything", "status_of"]

#: An operation whose fair share comes this near to its demand is owed its whole demand.
NEARLY: Final = 1e-4


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
