"""Pool trees: configuration in the bucket of pools, requests of people to fair_share, and what people see of pools."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.pools.pool_config import PoolConfig
from headrace.resources import ZERO, Finite, Resources
from headrace.wire.integral import Downtime
from headrace.wire.snapshots import ElementKind, ShareFrame, ShareItem, StarvationReason, StarvationStatus
from headrace.wire.version import Counter, Version

#: Largest number of pools on a page.
MOST_POOLS_OF_PAGE: Final = 200


class GetPools(msgspec.Struct, frozen=True):
    """Ask for pools with their shares: one pool if `name` is given, else all."""

    name: str = ""
    tree: TreeName = TreeName("default")
    #: True: include operations.
    operations: bool = False
    #: Position of the first pool on this page; the next page begins after the last pool of this page.
    first: Counter = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_POOLS_OF_PAGE)] = MOST_POOLS_OF_PAGE
    #: True: include only operations that starve or may preempt.
    only_starving: bool = False
    #: Key of an element, as in `ShareItem.key`. The answer then says when this element and the pools above it will starve, and lists the
    #: element before the other operations of its pool. Empty: no outlook is wanted.
    outlook_of: Annotated[str, msgspec.Meta(max_length=201)] = ""
    #: Name of the last pool of the page before; empty: the page begins at `first`. If that pool was removed meanwhile, the page begins at
    #: the pool before `first`, because the later pools moved up.
    after: Annotated[str, msgspec.Meta(max_length=200)] = ""
    #: Name of a pool: only its child pools. Empty: all pools.
    parent: Annotated[str, msgspec.Meta(max_length=200)] = ""
    #: Only pools whose name begins with this text.
    name_prefix: Annotated[str, msgspec.Meta(max_length=200)] = ""
    #: True: only pools that starve.
    starving: bool = False


class StarvationOutlook(msgspec.Struct, frozen=True):
    """An element that is short of what it is owed: since when, and when it will starve. All timestamps are Unix milliseconds.

    A timestamp in the future is the earliest possible time, if the element stays as short as it is, keeps its pending jobs, and its
    starvation clocks keep running. The timestamp is None if the element is in that state already, will not get into it, or if the time
    cannot be predicted: under a YARN policy, and while the clocks do not run.
    """

    kind: ElementKind
    name: str
    starvation_status: StarvationStatus
    starvation_reason: StarvationReason
    starving_since_ms: Counter | None = None
    below_fair_share_since_ms: Counter | None = None
    #: Time since which the element has been below its strong guarantee. Set only for pools with a `min_share_preemption_timeout`.
    below_strong_guarantee_since_ms: Counter | None = None
    starves_for_fair_share_at_ms: Counter | None = None
    starves_for_strong_guarantee_at_ms: Counter | None = None
    starves_aggressively_at_ms: Counter | None = None

    @property
    def key(self) -> str:
        """The key of the element, as `ShareItem.key`."""
        return self.name if self.kind is ElementKind.OPERATION else f"/{self.name}"


class ResourceDistribution(msgspec.Struct, frozen=True):
    """The amounts of a tree that are promised as guarantees, by resource, cpu in cores. For integral guarantees, the sum of all flows or
    the sum of all bursts counts as promised, whichever is larger.

    Undistributed amounts are negative if more is promised than there is.
    """

    distributed_resources: dict[str, Finite]
    undistributed_resources: dict[str, Finite]
    distributed_strong_guarantee_resources: dict[str, Finite]
    distributed_resource_flow: dict[str, Finite]
    distributed_burst_guarantee_resources: dict[str, Finite]
    #: Flow that could still be promised without a change of the total, because the bursts exceed the flows by this amount.
    undistributed_resource_flow: dict[str, Finite]
    #: Burst that could still be promised without a change of the total, because the flows exceed the bursts by this amount.
    undistributed_burst_guarantee_resources: dict[str, Finite]


class PoolView(msgspec.Struct, frozen=True):
    """A pool, configured or ephemeral, with the figures of the last update."""

    name: PoolName
    parent: PoolName
    path: str
    ephemeral: bool
    settings: PoolConfig
    share: ShareItem
    #: Fair share as amounts.
    fair_resources: Resources
    usage: Resources
    demand: Resources
    operation_count: Counter
    #: Number of running operations, without lightweight operations.
    running_operation_count: Counter
    #: Saved volume: resource times seconds; None for a pool without integral guarantees.
    accumulated_resource_volume: dict[str, Finite] | None = None
    #: Saved volume as one number: share times seconds; None for a pool without integral guarantees.
    accumulated_resource_ratio_volume: Finite | None = None
    #: Largest volume that the pool can save: resource times seconds; None for a pool without integral guarantees.
    integral_pool_capacity: dict[str, Finite] | None = None
    #: Seconds that the savings last at full burst; None if the savings last for ever.
    estimated_burst_usage_duration_seconds: Finite | None = None
    #: Largest volume that the pool can save as one number: share times seconds.
    integral_pool_capacity_ratio: Finite | None = None
    #: Inflow, as the largest share of any resource. This field and the three fields below are None for a pool without integral guarantees.
    specified_resource_flow_ratio: Finite | None = None
    #: Burst (the most that may be drawn at once), as the largest share of any resource.
    specified_burst_ratio: Finite | None = None
    #: The inflow as amounts: `specified_resource_flow_ratio` of the total of each resource; cpu in cores.
    specified_resource_flow: dict[str, Finite] | None = None
    #: The burst as amounts: `specified_burst_ratio` of the total of each resource; cpu in cores.
    specified_burst_guarantee_resources: dict[str, Finite] | None = None
    #: Sum of the inflow ratios of the pool and all pools below it.
    total_resource_flow_ratio: Finite = 0.0
    #: Sum of the burst ratios of the pool and all pools below it.
    total_burst_ratio: Finite = 0.0
    #: Promised part of the tree; set for the root only.
    resource_distribution_info: ResourceDistribution | None = None
    #: Time for which the pool's volume was neither credited nor charged; None for a pool without integral guarantees.
    downtime: Downtime | None = None
    #: Limits in force, at most the cluster's total.
    resource_limits: Resources = ZERO
    #: Demand, cut to `resource_limits`.
    limited_resource_demand: Resources = ZERO
    #: Strong guarantee in force, as amounts: missing amounts are inferred, and amounts that do not fit into the parent's guarantee or limit
    #: are reduced.
    effective_strong_guarantee_resources: Resources = ZERO
    #: Estimated guarantee, as amounts.
    estimated_guarantee_resources: Resources = ZERO
    #: The part of the fair share that the pool is owed within its guarantees, as amounts.
    promised_fair_resources: Resources = ZERO
    #: Number of operations of the pool and all pools below that take part in scheduling.
    schedulable_operation_count: Counter = 0
    #: Number of operations directly in the pool.
    pool_operation_count: Counter = 0
    #: Number of pools directly in the pool.
    child_pool_count: Counter = 0
    #: Limits in force.
    max_operation_count: Counter = 0
    max_running_operation_count: Counter = 0
    #: Number of lightweight operations that may run jobs. No limit counts them.
    lightweight_running_operation_count: Counter = 0

    @property
    def running_count(self) -> int:
        """Number of operations that may run jobs, including lightweight ones."""
        return self.running_operation_count + self.lightweight_running_operation_count


class PoolList(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Pools, the root first, parents before children, siblings in their order."""

    tree: TreeName
    pools: list[PoolView]
    frame: ShareFrame
    version: Version
    revision: Counter
    #: Operations of the pools on this page.
    operations: list[ShareItem] = []
    more: bool = False
    #: Number of operations of this page that did not fit into the answer. An answer about a single pool has space for the most operations.
    operations_left_out: Counter = 0
    #: Outlook of the element `outlook_of`, followed by the outlooks of the pools above it, the nearest pool first. Elements that have what
    #: they are owed are left out.
    outlooks: list[StarvationOutlook] = []
    #: Position after the last pool of this page, in the list of all pools of the tree: the value of `first` in the request for the next
    #: page.
    next_first: Counter = 0
