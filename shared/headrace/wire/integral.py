"""Accumulated volumes of integral guarantees: fair_share asks integral to advance them before each update.

integral applies each version once and confirms only what it has saved. Repeated, delayed or lost advances therefore change no volume.
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

#: Upper bound of the encoded size of the pools in one message or in one value of a bucket, in bytes.
PAGE_BYTES: Final = LARGEST_MESSAGE_BYTES - 10_000
#: Upper bound of a cpu volume in hundredths of a core-second: 17 million cores for 85 years. The other volumes are floats without such a
#: bound.
LARGEST_CPU_VOLUME: Final = 2**62
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=sys.float_info.max)]


class PoolFlow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One burst or relaxed pool in an advance, or a pool above such pools."""

    pool: PoolName
    #: Inflow, as a share of the total; 0 without a guarantee.
    flow_ratio: Ratio
    #: Burst (the most that may be drawn at once), as a share of the total; 0 without a guarantee.
    burst_ratio: Ratio
    #: Largest component of the integral share that the previous update granted to the pool; the pool's volume is charged with this share
    #: over the whole time `dt_us`.
    grant_ratio: Ratio
    #: `burst`, `relaxed` or `none`.
    guarantee_type: str
    can_accept_free_volume: bool = True
    #: Position of the parent in the list of pools; -1 for a top-level pool. The parent is listed before its children, and siblings are
    #: listed in their order.
    parent: Annotated[int, msgspec.Meta(ge=-1)] = -1
    #: True if the pool offers the overflow of its children to children whose savings are not full; it matters only for a pool without an
    #: integral guarantee.
    distributes_free_volume: bool = False


class Advance(msgspec.Struct, frozen=True):
    """Advance all volumes of the tree by `dt_us`. Pools that the advance does not name lose their volume.

    A chain of advances begins with `previous` at `NEVER` and `dt_us` 0. Every term of the sender begins a new chain.
    """

    tree: TreeName
    version: Version
    #: Version of the previous advance; integral applies an advance only if it has applied the previous advance.
    previous: Version
    #: Microseconds since the previous update; 0 for the first update of a term.
    dt_us: Counter
    total: Resources
    pools: Annotated[list[PoolFlow], msgspec.Meta(max_length=20_000)]
    saturation_period_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 86_400.0
    #: Unix time of the update in milliseconds; 0 if the sender does not report it. No volume depends on it.
    at_ms: Counter = 0
    #: Number of this part, counted from 0. An advance of many pools is split by size.
    part: Counter = 0
    #: Number of parts of the advance.
    parts: Annotated[int, msgspec.Meta(ge=1)] = 1


class Downtime(msgspec.Struct, frozen=True, array_like=True):
    """Wall-clock time for which pools with volumes were credited nothing, because services were down or did not know the cluster."""

    #: Number of periods that were not credited.
    gaps: Counter = 0
    #: Total length of these periods, in milliseconds.
    together_ms: Counter = 0
    #: Unix time in milliseconds at which the last period began.
    last_from_ms: Counter = 0
    #: Unix time in milliseconds at which the last period ended.
    last_until_ms: Counter = 0


class Volume(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Amounts of each resource times seconds; cpu in whole hundredths of a core-second, as everywhere on the wire."""

    user_slots: NotNegative = 0.0
    cpu: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_CPU_VOLUME)] = 0
    gpu: NotNegative = 0.0
    memory: NotNegative = 0.0
    network: NotNegative = 0.0


class PoolVolume(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The saved volume of one pool after an advance."""

    pool: PoolName
    volume: Volume
    #: Smallest ratio of volume to total, over the resources that the cluster has.
    ratio_volume: NotNegative


class Advanced(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The saved volumes after the advance to `version`, as many as fit in the answer. If `more` is true, the reader asks for the rest with
    `GetVolumes`.
    """

    tree: TreeName
    version: Version
    pools: list[PoolVolume]
    downtime: Downtime = Downtime()
    more: bool = False


class AdvancePartTaken(msgspec.Struct, frozen=True, tag_field="refusal", tag="part_taken"):
    """A part of an advance has arrived. integral applies the advance when all parts have arrived."""

    version: Version
    part: Counter


class AdvanceGap(msgspec.Struct, frozen=True, tag_field="refusal", tag="advance_gap"):
    """The advance is refused.

    It follows an advance that integral has not applied, or it is older than the versions that integral remembers.
    """

    tree: TreeName
    #: Newest version that was applied and saved.
    have: Version
    #: Version that the refused advance names as its predecessor.
    previous: Version

    def text(self) -> str:
        return f"the advance follows version {self.previous}, but the volumes of {self.tree} have version {self.have}"


class GetVolumes(msgspec.Struct, frozen=True):
    """any service → integral: ask for the current volumes."""

    tree: TreeName
    #: Number of pools to skip, because earlier answers had them.
    first: Counter = 0


def parts_of(advance: Advance) -> list[Advance]:
    """Split the advance into parts that each fit into one message."""
    runs: Sequence[list[PoolFlow]] = list(runs_within(advance.pools, PAGE_BYTES)) or [[]]
    return [
        msgspec.structs.replace(advance, pools=pools, part=part, parts=len(runs)) for part, pools in enumerate(runs)
    ]
