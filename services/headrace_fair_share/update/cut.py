"""What one update is made from: everything that is known, as it was at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.ids import OperationId, PoolName
from headrace.pools import PoolTree
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.resources import Resources
from headrace.wire.integral import Downtime, PoolVolume
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.placements import EphemeralPool
from headrace.wire.snapshots import UsageItem
from headrace.wire.version import Version
from headrace_fair_share.starvation.clocks import Clock

__all__ = ["Cut", "KnownOperation"]


class KnownOperation(msgspec.Struct, frozen=True):
    """What fair_share knows of an operation from admission."""

    operation: OperationId
    pool: PoolName
    weight: float
    state: OperationState
    suspended: bool
    #: Of all its jobs together: its demand until the allocator first names it.
    initial: Resources
    initial_jobs: int
    started_at_ms: int = 0
    is_gang: bool = False
    limits: PartialResources = NOTHING

    @staticmethod
    def of(spec: OperationSpec, open_jobs: int, **known: Any) -> KnownOperation:
        """An operation of which so many jobs are not over; `known` are the fields that its spec does not tell."""
        return KnownOperation(
            pool=spec.pool,
            weight=spec.weight,
            initial=spec.resources * open_jobs,
            initial_jobs=open_jobs,
            is_gang=spec.is_gang,
            limits=spec.resource_limits,
            **known,
        )

    @property
    def takes_part(self) -> bool:
        """True while it may get more than it has."""
        return self.state is OperationState.RUNNING and not self.suspended

    @property
    def waits(self) -> bool:
        """True before it has a running slot."""
        return self.state in (OperationState.STARTING, OperationState.PENDING)


class Cut(msgspec.Struct, frozen=True):
    """Everything an update is made from. Nobody changes what it holds."""

    pools: PoolTree
    operations: Mapping[OperationId, KnownOperation]
    usage: Mapping[OperationId, UsageItem]
    #: Operations that the allocator has named in its present term.
    named: frozenset[OperationId]
    volumes: Mapping[PoolName, PoolVolume]
    #: Largest component of the integral share that the update before granted to each pool, where it granted any.
    grants: Mapping[PoolName, float]
    downtime: Downtime
    total: Resources
    usage_version: Version
    pools_revision: int
    stale_volumes: bool
    troubles: list[str]
    now_ms: int
    #: The judging clock, and what turns its moments into moments of Unix time.
    clock_ms: int
    clock_offset_ms: int
    #: False: usage is too old or incomplete; statuses keep.
    judged: bool
    clocks: Mapping[str, Clock]
    #: By key, of elements whose weights fall with it.
    usage_averages: Mapping[str, float] = {}
    #: What admission said of pools that live by their operations; some may be over.
    guests: Mapping[PoolName, EphemeralPool] = {}
