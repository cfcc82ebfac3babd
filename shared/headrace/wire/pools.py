"""Pool trees: configuration in the bucket of pools, requests of people to fair_share, and what they see."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.pools.pool_config import PoolConfig
from headrace.resources import ZERO, Finite, Resources
from headrace.wire.integral import Downtime
from headrace.wire.snapshots import ElementKind, ShareFrame, ShareItem, StarvationReason, StarvationStatus
from headrace.wire.version import Counter, Version


class GetPools(msgspec.Struct, frozen=True):
    """Ask for pools with their shares: one with `name`, else all."""

    name: str = ""
    tree: TreeName = TreeName("default")
    #: Operations too.
    operations: bool = False
    #: Place of the first pool of this page; the next page begins behind the last of this one.
    first: Counter = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 200
    #: Of the operations only those that starve or may preempt.
    only_starving: bool = False
    #: Key of an element, as `ShareItem.key`: tell when it and the pools above it will starve. An operation comes first in its pool.
    #: Empty: of none.
    outlook_of: Annotated[str, msgspec.Meta(max_length=201)] = ""


class StarvationOutlook(msgspec.Struct, frozen=True):
    """An element that is short of what it is owed, and when it starves for that. All moments are Unix milliseconds.

    Those to come are first moments if it stays as short as it is, with as many jobs waiting, and if time goes on counting. They are None
    where it is so already, where nothing leads there, and where nobody can tell: under a YARN policy, or while time does not count.
    """

    kind: ElementKind
    name: str
    starvation_status: StarvationStatus
    starvation_reason: StarvationReason
    starving_since_ms: Counter | None = None
    below_fair_share_since_ms: Counter | None = None
    #: Told of pools with a `min_share_preemption_timeout` alone.
    below_strong_guarantee_since_ms: Counter | None = None
    starves_for_fair_share_at_ms: Counter | None = None
    starves_for_strong_guarantee_at_ms: Counter | None = None
    starves_aggressively_at_ms: Counter | None = None

    @property
    def key(self) -> str:
        """The key of the element, as `ShareItem.key`."""
        return self.name if self.kind is ElementKind.OPERATION else f"/{self.name}"


class ResourceDistribution(msgspec.Struct, frozen=True):
    """The promised part of a tree by resource, cpu in cores. Of flows and bursts the larger one takes room.

    What is left over is negative where more is promised than there is.
    """

    distributed_resources: dict[str, Finite]
    undistributed_resources: dict[str, Finite]
    distributed_strong_guarantee_resources: dict[str, Finite]
    distributed_resource_flow: dict[str, Finite]
    distributed_burst_guarantee_resources: dict[str, Finite]
    #: Flow that could still be promised beside the bursts without taking more room, and the other way round.
    undistributed_resource_flow: dict[str, Finite]
    undistributed_burst_guarantee_resources: dict[str, Finite]


class PoolView(msgspec.Struct, frozen=True):
    """A pool, configured or ephemeral, with the figures of the last update."""

    name: PoolName
    parent: PoolName
    path: str
    ephemeral: bool
    settings: PoolConfig
    share: ShareItem
    #: Amounts to the shares.
    fair_resources: Resources
    usage: Resources
    demand: Resources
    operation_count: Counter
    #: Of those that are not lightweight.
    running_operation_count: Counter
    #: Resource times seconds, and its ratio form; None for a pool without integral guarantees.
    accumulated_resource_volume: dict[str, Finite] | None = None
    accumulated_resource_ratio_volume: Finite | None = None
    #: The most that it can save, resource times seconds; and how long its savings last at full burst, where that is an end.
    integral_pool_capacity: dict[str, Finite] | None = None
    estimated_burst_usage_duration_seconds: Finite | None = None
    #: The same as one number, share times seconds.
    integral_pool_capacity_ratio: Finite | None = None
    #: What flows in, and the most that may be drawn at once, as the largest share of any resource; and what that is of each resource, cpu
    #: in cores. None for a pool without integral guarantees.
    specified_resource_flow_ratio: Finite | None = None
    specified_burst_ratio: Finite | None = None
    specified_resource_flow: dict[str, Finite] | None = None
    specified_burst_guarantee_resources: dict[str, Finite] | None = None
    #: Of the pool and all below it.
    total_resource_flow_ratio: Finite = 0.0
    total_burst_ratio: Finite = 0.0
    #: Of the root: how much of the tree is promised.
    resource_distribution_info: ResourceDistribution | None = None
    #: Time that its volume was neither credited nor charged for; None for a pool without integral guarantees.
    downtime: Downtime | None = None
    #: Limits in force (at most the cluster), and demand as far as they let it.
    resource_limits: Resources = ZERO
    limited_resource_demand: Resources = ZERO
    #: Amounts to the shares: in force after inference and fitting; what it could count on; what it is owed within its guarantees.
    effective_strong_guarantee_resources: Resources = ZERO
    estimated_guarantee_resources: Resources = ZERO
    promised_fair_resources: Resources = ZERO
    #: Operations of the pool and all below that take part in scheduling; operations and pools directly in it.
    schedulable_operation_count: Counter = 0
    pool_operation_count: Counter = 0
    child_pool_count: Counter = 0
    #: In force.
    max_operation_count: Counter = 0
    max_running_operation_count: Counter = 0
    #: Lightweight operations that may run jobs. No limit counts them.
    lightweight_running_operation_count: Counter = 0

    @property
    def running_count(self) -> int:
        """Operations that may run jobs, lightweight ones among them."""
        return self.running_operation_count + self.lightweight_running_operation_count


class PoolList(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Pools, the root first, parents before children, siblings in their order."""

    tree: TreeName
    pools: list[PoolView]
    frame: ShareFrame
    version: Version
    revision: Counter
    #: Of the pools on this page.
    operations: list[ShareItem] = []
    more: bool = False
    #: Operations of this page for which there was no room in it; asking for one pool leaves out the fewest.
    operations_left_out: Counter = 0
    #: The element that was asked about, then the pools above it from the nearest on: as far as each is short of something.
    outlooks: list[StarvationOutlook] = []
