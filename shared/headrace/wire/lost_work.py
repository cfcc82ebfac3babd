"""Work lost to preemption: runs that were ended before they were done, by pool, reason and hour."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.wire.history import UnixMs
from headrace.wire.integral import Volume
from headrace.wire.preemption import PreemptionReason
from headrace.wire.version import Counter

#: Milliseconds of an hour. Lost work is summed by the hour.
HOUR_MS: Final = 3_600_000
#: Number of hours for which the hourly sums of lost work are kept.
KEPT_HOURS: Final = 7 * 24


class GetLostWork(msgspec.Struct, frozen=True):
    """person → admission: ask for the work lost in a pool and all pools below it.

    An hour that lies only partly in the period counts as a whole.
    """

    pool: Annotated[PoolName, msgspec.Meta(max_length=200)]
    since_ms: UnixMs
    until_ms: UnixMs
    tree: TreeName = TreeName("default")


class LostWork(msgspec.Struct, frozen=True, array_like=True):
    """Work lost for one reason in one hour. A job that saved its state (exit status 75) lost no work."""

    #: Unix time in milliseconds at which the hour begins.
    hour_ms: Counter
    reason: PreemptionReason
    runs: Counter
    #: Resources of the job times the run time, summed over the runs that lost work for this reason in this hour.
    work: Volume
    #: Unix time in milliseconds at which the first of these runs ended; 0: not known, as in records of former releases.
    first_ms: Counter = 0


class LostWorkTold(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Lost work in order of time. If an hour is kept and has no row, no work was lost in it."""

    pool: PoolName
    tree: TreeName
    lost: list[LostWork]
    #: Unix time in milliseconds from which the hours are kept. Earlier hours were deleted.
    kept_since_ms: Counter = 0
