"""The frozen input of one update: everything that is known, as it was at one moment."""

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
from headrace_fair_share.yarn.state import YarnState


class Cut(msgspec.Struct, frozen=True):
    """The frozen input that an update is made from. Nobody changes what it holds."""

    pools: PoolTree
    operations: Mapping[OperationId, KnownOperation] = {}
    usage: Mapping[OperationId, UsageItem] = {}
    #: Those of both that are not as the cut before had them; True for those that came, in their order. None: it may be any.
    news: Mapping[OperationId, bool] | None = None
    #: Operations that the allocator has named in its present term.
    named: Set[OperationId] = frozenset()
    volumes: Mapping[PoolName, PoolVolume] = {}
    #: Largest component of the integral share that the update before granted to each pool, where it granted any.
    grants: Mapping[PoolName, float] = {}
    downtime: Downtime = Downtime()
    total: Resources = ZERO
    #: The parts of it that nodes have, by their tags; the same object while they stay as they are. None: not known.
    rooms: Mapping[tuple[str, ...], Resources] | None = None
    usage_version: Version = NEVER
    pools_revision: int = 0
    #: True if integral has not confirmed the newest advance.
    stale_volumes: bool = False
    #: What of the configuration is not in force, in words.
    troubles: list[str] = []
    now_ms: int = 0
    #: The time that counts for starvation, and what turns its moments into Unix time.
    clock_ms: int = 0
    clock_offset_ms: int = 0
    #: False if usage is too old or incomplete: statuses stay as they were.
    usage_counts: bool = False
    clocks: Clocks = Clocks.none()
    #: Of a tree under a YARN policy; and when preemption has seen to operations.
    yarn: YarnState = YarnState()
    seen_to_ms: Mapping[OperationId, int] = {}
    #: By key, of elements whose weights fall with it.
    usage_averages: Mapping[str, float] = {}
    #: Ephemeral pools as admission told them; some may be over.
    ephemeral_pools: Mapping[PoolName, EphemeralPool] = {}
