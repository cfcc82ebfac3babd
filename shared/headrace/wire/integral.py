"""Accumulated volumes: fair_share asks integral to advance them before each update.

integral applies each version once and confirms only what is saved, so repeating, delaying or losing an advance changes no figure.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.resources import Resources
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, runs_within
from headrace.wire.version import Counter, Version

#: Pools in one message or one value of a bucket take no more than this.
PAGE_BYTES: Final = LARGEST_MESSAGE_BYTES - 10_000
#: Hundredths of a core-second: 17 million cores for 85 years. The other parts of a volume are floats and know no such bound.
LARGEST_CPU_VOLUME: Final = 2**62
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=sys.float_info.max)]


class PoolFlow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One burst or relaxed pool in an advance, or a pool that stands above such pools."""

    pool: PoolName
    #: Share of the total that accrues, and the most that may be drawn at once; 0 without a guarantee.
    flow_ratio: Ratio
    burst_ratio: Ratio
    #: The largest component of the integral share that the update before granted: charged for the whole of dt.
    grant_ratio: Ratio
    #: `burst`, `relaxed` or `none`.
    guarantee_type: str
    can_accept_free_volume: bool = True
    #: Place of the parent in the list, which is before this one; -1 for a pool at the top. Siblings stand in their order.
    parent: Annotated[int, msgspec.Meta(ge=-1)] = -1
    #: What overflows below is offered to the children that have room; matters for pools without a guarantee.
    distributes_free_volume: bool = False


class Advance(msgspec.Struct, frozen=True):
    """Let `dt_us` pass for all volumes of the tree. Pools that are not named lose their volume.

    A chain begins with `previous` at `NEVER` and no time passed. So does every term of the sender.
    """

    tree: TreeName
    version: Version
    #: The advance before this one, as sent; integral applies only what follows what it has.
    previous: Version
    #: Microseconds since the previous update; 0 for the first of a term.
    dt_us: Counter
    total: Resources
    pools: Annotated[list[PoolFlow], msgspec.Meta(max_length=20_000)]
    saturation_period_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 86_400.0
    #: Unix time of the update; 0 where the sender does not tell. No volume depends on it.
    at_ms: Counter = 0
    #: Number of this part from 0, and how many there are: an advance of many pools is cut by bytes.
    part: Counter = 0
    parts: Annotated[int, msgspec.Meta(ge=1)] = 1


class Downtime(msgspec.Struct, frozen=True, array_like=True):
    """Time by the clock on the wall that was credited to nobody's volume.

    Services were down, or did not know the cluster.
    """

    #: Stretches of such time, and how long they were together.
    gaps: Counter = 0
    together_ms: Counter = 0
    #: The last one, Unix time.
    last_from_ms: Counter = 0
    last_until_ms: Counter = 0


class Volume(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Resource times seconds, with cpu in whole hundredths of a core-second, as everywhere."""

    user_slots: NotNegative = 0.0
    cpu: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_CPU_VOLUME)] = 0
    gpu: NotNegative = 0.0
    memory: NotNegative = 0.0
    network: NotNegative = 0.0


class PoolVolume(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One pool's savings after an advance."""

    pool: PoolName
    volume: Volume
    #: Smallest of volume over total, over the resources that there are.
    ratio_volume: NotNegative


class Advanced(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Saved: the volumes as of `version`, as many as fit. With `more` the others are to be asked for by `GetVolumes`."""

    tree: TreeName
    version: Version
    pools: list[PoolVolume]
    downtime: Downtime = Downtime()
    more: bool = False


class AdvancePartTaken(msgspec.Struct, frozen=True, tag_field="refusal", tag="part_taken"):
    """A part of an advance has come. Nothing happens before all of them have."""

    version: Version
    part: Counter


class AdvanceGap(msgspec.Struct, frozen=True, tag_field="refusal", tag="advance_gap"):
    """Refused: the advance follows one that was not applied here, or is older than what is remembered."""

    tree: TreeName
    #: The newest that was applied and saved.
    have: Version
    #: What the refused advance says that it follows.
    previous: Version

    def text(self) -> str:
        return f"the advance follows {self.previous}; the volumes of {self.tree} are of {self.have}"


class GetVolumes(msgspec.Struct, frozen=True):
    """anybody → integral."""

    tree: TreeName
    #: Leaves out so many pools, which were told before.
    first: Counter = 0


def parts_of(advance: Advance) -> list[Advance]:
    """The advance in parts that fit a message each."""
    runs: Sequence[list[PoolFlow]] = list(runs_within(advance.pools, PAGE_BYTES)) or [[]]
    return [
        msgspec.structs.replace(advance, pools=pools, part=part, parts=len(runs)) for part, pools in enumerate(runs)
    ]
