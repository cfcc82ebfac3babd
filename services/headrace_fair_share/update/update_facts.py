"""The frozen input of one update: everything the service knows at one point in time."""

from __future__ import annotations

from collections.abc import Mapping, Set

import msgspec

from headrace.ids import OperationId, PoolName
from headrace.pools import PoolTree
from headrace.resources import ZERO, Resources
from headrace.wire.integral import Downtime, PoolVolume
from headrace.wire.placements import EphemeralPool
from headrace.wire.snapshots import UsageItem
from headrace.wire.version import NEVER, Version
from headrace_fair_share.facts.operations import KnownOperation
from headrace_fair_share.starvation.clocks import Clocks
from headrace_fair_share.yarn.shortage import YarnState


class UpdateFacts(msgspec.Struct, frozen=True):
    """The frozen input of an update. The objects that it holds are never changed."""

    pools: PoolTree
    operations: Mapping[OperationId, KnownOperation] = {}
    usage: Mapping[OperationId, UsageItem] = {}
    #: Operations that changed or were added since the previous input; True if added, in order of arrival. None: any may have changed.
    news: Mapping[OperationId, bool] | None = None
    #: Operations that the allocator has reported in its present term.
    named: Set[OperationId] = frozenset()
    volumes: Mapping[PoolName, PoolVolume] = {}
    #: Largest component of the integral share that the previous update granted to each pool that got one.
    grants: Mapping[PoolName, float] = {}
    downtime: Downtime = Downtime()
    total: Resources = ZERO
    #: Resources of all nodes with the same set of tags, by the set. The object is replaced only when its content changes. None: the nodes
    #: are not known.
    rooms: Mapping[tuple[str, ...], Resources] | None = None
    usage_version: Version = NEVER
    pools_revision: int = 0
    #: True if the integral service has not confirmed the newest advance.
    stale_volumes: bool = False
    #: Messages about configuration that is not in force.
    troubles: list[str] = []
    now_ms: int = 0
    #: Milliseconds counted for starvation (see `CountedTime`).
    clock_ms: int = 0
    #: Milliseconds to add to counted time to get Unix time.
    clock_offset_ms: int = 0
    #: False if usage is too old or incomplete; starvation statuses then stay as they were.
    usage_counts: bool = False
    clocks: Clocks = Clocks.none()
    #: State of a YARN policy.
    yarn: YarnState = YarnState()
    #: Under a YARN policy, counted time at which preemption last handled each operation.
    seen_to_ms: Mapping[OperationId, int] = {}
    #: Average usage by element key, for the elements whose weights fall with their usage.
    usage_averages: Mapping[str, float] = {}
    #: Ephemeral pools as admission reported them; some may no longer exist.
    ephemeral_pools: Mapping[PoolName, EphemeralPool] = {}
