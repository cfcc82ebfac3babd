"""Work that preemption cost: runs that were ended before they were done, told by pool, reason and hour."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.wire.history import UnixMs
from headrace.wire.integral import Volume
from headrace.wire.preemption import PreemptionReason
from headrace.wire.version import Counter

#: Lost work is told by the hour, and so many hours of it are kept.
HOUR_MS: Final = 3_600_000
KEPT_HOURS: Final = 7 * 24


class GetLostWork(msgspec.Struct, frozen=True):
    """person → admission: the work lost in a pool with all below it. Hours count of which a part is in the time."""

    pool: Annotated[PoolName, msgspec.Meta(max_length=200)]
    since_ms: UnixMs
    until_ms: UnixMs
    tree: TreeName = TreeName("default")


class LostWork(msgspec.Struct, frozen=True, array_like=True):
    """Work lost for one reason in one hour. A job that saved its state, by its exit status 75, lost none."""

    #: Unix time at which the hour begins.
    hour_ms: Counter
    reason: PreemptionReason
    runs: Counter
    #: What the job was given times how long it ran, of all these runs together.
    work: Volume


class LostWorkTold(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """In order of time. An hour without a row lost nothing, as far as hours are kept."""

    pool: PoolName
    tree: TreeName
    lost: list[LostWork]
    #: Hours before this one are not kept.
    kept_since_ms: Counter = 0
