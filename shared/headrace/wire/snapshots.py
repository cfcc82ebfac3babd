"""Snapshots: usage from the allocator, shares from fair_share, and how readers keep up with them.

A snapshot is published as the changes since the version before, in parts below the size limit. Each part names the version it builds on. A
reader subscribes first, then asks for the whole snapshot in pages. After a missing version, or when no part has arrived for some time, the
reader asks for the whole snapshot again.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from headrace.ids import OperationId, PoolName, TreeName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.effective_options import EffectiveOptions
from headrace.pools.tree_options import AllocationOptions
from headrace.resources import ZERO, ZERO_SHARE, Finite, Resources, Share
from headrace.wire.integral import Downtime
from headrace.wire.version import NEVER, Counter, Version

Item = TypeVar("Item")
Frame = TypeVar("Frame")


class UsageFrame(msgspec.Struct, frozen=True):
    """Facts about a usage snapshot as a whole."""

    #: Sum of the resources of the tree's online nodes.
    total: Resources = ZERO
    #: False while the allocator is recovering: figures of unheard nodes are missing, so no decision may rely on them.
    complete: bool = False


class NodesOfTags(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The online nodes of the tree that have exactly these tags."""

    tags: tuple[str, ...]
    #: Sum of their resources, as far as the tree may use them.
    total: Resources = ZERO


class UsageItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One operation as the allocator sees it, or the nodes that have the same tags."""

    #: Operation id. An item of nodes has `#` and the tags of the nodes instead, which is no valid operation id.
    operation: OperationId
    usage: Resources = ZERO
    #: Resources of jobs that are being started and that no node has confirmed yet.
    precommit: Resources = ZERO
    #: Number of pending jobs.
    pending_jobs: Counter = 0
    #: Resources of all pending jobs together.
    pending: Resources = ZERO
    #: Resources of the operation's smallest job.
    min_needed: Resources = ZERO
    #: The nodes, if this is an item of nodes; else None. The totals of all items of nodes add up to the total of the snapshot.
    nodes: NodesOfTags | None = None
    #: Under a YARN policy: number of times that the allocator, in its present term, has tried to free resources for the operation.
    times_seen_to: Counter = 0

    @staticmethod
    def of_nodes(tags: tuple[str, ...], total: Resources = ZERO) -> UsageItem:
        """Return the item of the nodes that have these tags."""
        return UsageItem(OperationId(f"#{list(tags)}"), nodes=NodesOfTags(tags, total))


class ElementKind(enum.StrEnum):
    """Kind of an element of the tree."""

    ROOT = "root"
    POOL = "pool"
    OPERATION = "operation"


# A constant, because `ShareItem.key` is read very often, and looking up a member of the enumeration would take longer than the rest of
# `key`.
_OPERATION: Final = ElementKind.OPERATION


class SchedulingStatus(enum.StrEnum):
    """Statuses of an element by its present usage: below its fair share, or not."""

    NORMAL = "normal"
    BELOW_FAIR_SHARE = "below_fair_share"


class StarvationStatus(enum.StrEnum):
    """Statuses of an element by the time for which it was below its fair share or guarantee."""

    NON_STARVING = "non_starving"
    STARVING = "starving"
    AGGRESSIVELY_STARVING = "aggressively_starving"


class StarvationReason(enum.StrEnum):
    """The share that a starving element is short of."""

    NONE = ""
    FAIR_SHARE = "fair_share"
    #: The strong guarantee of the element.
    MIN_SHARE = "min_share"


class PreemptionPriority(enum.StrEnum):
    """Preemptive stage in which an operation may preempt allocations of other operations."""

    NONE = "none"
    NORMAL = "normal"
    AGGRESSIVE = "aggressive"


class DetailedShare(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The parts of a fair share, as shares of the tree's total. `total` is their sum."""

    strong_guarantee: Share = ZERO_SHARE
    integral_guarantee: Share = ZERO_SHARE
    weight_proportional: Share = ZERO_SHARE
    total: Share = ZERO_SHARE


class ShareItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One element of the tree: the root, a pool or an operation."""

    kind: ElementKind
    #: Pool name or operation id.
    name: str
    #: Pool that the element is in; empty for the root.
    parent: PoolName
    fair_share: DetailedShare = DetailedShare()
    usage_share: Share = ZERO_SHARE
    demand_share: Share = ZERO_SHARE
    limits_share: Share = (1.0, 1.0, 1.0, 1.0, 1.0)
    #: Strong guarantee in force: missing amounts are inferred, and amounts that do not fit into the parent's guarantee or limit are
    #: reduced.
    strong_guarantee_share: Share = ZERO_SHARE
    promised_fair_share: Share = ZERO_SHARE
    estimated_guarantee_share: Share = ZERO_SHARE
    weight: Finite = 1.0
    dominant_resource: str = "cpu"
    #: Usage over fair share; 1e9 stands for infinite.
    satisfaction_ratio: Finite = 1e9
    local_satisfaction_ratio: Finite = 1e9
    scheduling_status: SchedulingStatus = SchedulingStatus.NORMAL
    starvation_status: StarvationStatus = StarvationStatus.NON_STARVING
    below_fair_share_since_ms: Counter | None = None
    starving_since_ms: Counter | None = None
    schedulable: bool = True
    #: True for an operation whose fair share covers its whole demand.
    owed_everything: bool = False
    accumulated_ratio_volume: Finite = 0.0
    ephemeral: bool = False
    #: Position among the operations of a fifo pool; None outside fifo pools.
    fifo_index: Counter | None = None
    #: Position in force, which differs from `fifo_index` if the pool reordered its operations. None outside fifo
    #: pools.
    effective_fifo_index: Counter | None = None
    #: Share granted to the pool from its savings; the fair share may include only a part of it.
    proposed_integral_share: Share = ZERO_SHARE
    #: Inflow that is configured for the pool, as the largest share of any resource.
    specified_resource_flow_ratio: Finite = 0.0
    #: Burst that is configured for the pool, as the largest share of any resource.
    specified_burst_ratio: Finite = 0.0
    #: Sum of the inflow ratios of the pool and all pools below it.
    total_resource_flow_ratio: Finite = 0.0
    #: Sum of the burst ratios of the pool and all pools below it.
    total_burst_ratio: Finite = 0.0
    #: For a pool: its limits as configured, even where they exceed the cluster.
    limits: PartialResources = NOTHING
    #: Set for operations only.
    preemption_priority: PreemptionPriority = PreemptionPriority.NONE
    starvation_reason: StarvationReason = StarvationReason.NONE
    #: Options in force for the root or a pool. The options of an operation follow from its pool's options and its spec (`of_operation`).
    options: EffectiveOptions | None = None
    #: Number that breaks ties in satisfaction among the children of a pool; the lowest number comes first. For a pool: its position among
    #: its siblings. For an operation of a fifo pool: its position there. For any other operation: Unix time of its start in milliseconds.
    rank: Counter = 0
    #: Total resources of the nodes that match the element's scheduling tag filters. None: the element has no filters, or the nodes are not
    #: known.
    tag_filter_limits: Resources | None = None
    #: Under a YARN policy: amount that the element is short of its fair share and that preemption should provide. The amount of a pool
    #: includes all elements below the pool. None: the element is due nothing.
    due_to_fair_share: Resources | None = None
    due_to_min_share: Resources | None = None
    #: True if jobs must be preempted now to provide what the element is due.
    claims: bool = False
    #: Resource that bounds the fair share of the operation: the nodes that match its filters have no more of the resource for it, because
    #: the rest is owed to operations that can run only on these nodes. Empty: something else bounds the operation.
    short_of: str = ""

    @property
    def key(self) -> str:
        """The key of an element in a snapshot: an operation's id, or `/` and a pool's name.

        The slash is needed because a pool may be named like an operation id.
        """
        return self.name if self.kind is _OPERATION else f"/{self.name}"


class MovedShare(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The new figures of an element, if only its fair share, usage or demand changed. A field is None if its figure did not change.

    A `MovedShare` has a quarter of the size of a `ShareItem`.
    """

    #: Key of the element, as in `ShareItem.key`.
    key: str
    weight_proportional: Share | None = None
    #: New fair share; None: equal to `weight_proportional` if that is set, else unchanged.
    total: Share | None = None
    #: `satisfaction_ratio` and `local_satisfaction_ratio` of the element.
    satisfaction: tuple[Finite, Finite] | None = None
    usage: Share | None = None
    demand: Share | None = None

    @staticmethod
    def between(before: ShareItem, after: ShareItem) -> MovedShare | None:
        """Return the difference of two items, or None if the items also differ in other fields."""
        was, fair = before.fair_share, after.fair_share
        if was.strong_guarantee != fair.strong_guarantee or was.integral_guarantee != fair.integral_guarantee:
            return None
        ratio, local = after.satisfaction_ratio, after.local_satisfaction_ratio
        usage, demand = after.usage_share, after.demand_share
        alike = replace(
            before,
            fair_share=fair,
            usage_share=usage,
            demand_share=demand,
            satisfaction_ratio=ratio,
            local_satisfaction_ratio=local,
        )
        if alike != after:
            return None
        is_same, is_plain = was == fair, fair.total == fair.weight_proportional
        return MovedShare(
            before.key,
            None if is_same else fair.weight_proportional,
            None if is_same or is_plain else fair.total,
            None if (before.satisfaction_ratio, before.local_satisfaction_ratio) == (ratio, local) else (ratio, local),
            None if before.usage_share == usage else usage,
            None if before.demand_share == demand else demand,
        )

    def applied(self, before: ShareItem) -> ShareItem:
        """Return the new item of the element: its previous item `before` with the new figures."""
        fair, share = before.fair_share, self.weight_proportional
        if share is not None:
            fair = replace(fair, weight_proportional=share, total=share if self.total is None else self.total)
        ratio, local = self.satisfaction or (before.satisfaction_ratio, before.local_satisfaction_ratio)
        return replace(
            before,
            fair_share=fair,
            usage_share=before.usage_share if self.usage is None else self.usage,
            demand_share=before.demand_share if self.demand is None else self.demand,
            satisfaction_ratio=ratio,
            local_satisfaction_ratio=local,
        )


class ShareComplaint(msgspec.Struct, frozen=True):
    """One error of the algorithm, in words with figures, and the pools that it concerns."""

    #: Kind, such as `overcommit_burst`.
    kind: str
    text: str
    pools: list[PoolName] = []


class ShareFrame(msgspec.Struct, frozen=True):
    """Facts about a share snapshot as a whole."""

    #: Usage snapshot from which the share snapshot was computed.
    usage_version: Version = NEVER
    #: Revision of the pool configuration from which the share snapshot was computed.
    pools_revision: Counter = 0
    total: Resources = ZERO
    at_ms: Counter = 0
    #: True if the volumes did not arrive in time, and the volumes of an earlier update were used.
    stale_volumes: bool = False
    #: Errors of the algorithm in words, such as guarantees above the cluster.
    errors: list[str] = []
    #: The errors in `errors`, each with the pools that it concerns.
    complaints: list[ShareComplaint] = []
    #: Time for which the volumes of integral guarantees were neither credited nor charged.
    downtime: Downtime = Downtime()
    #: Options of the configuration that the snapshot was computed from.
    options: AllocationOptions = AllocationOptions()


class Part(msgspec.Struct, Generic[Item, Frame], frozen=True):
    """One part of a snapshot. A reader applies the parts of a version when all of them have arrived."""

    tree: TreeName
    version: Version
    #: Version that the change is relative to; null: this is the whole snapshot. See `builds_on`.
    base: Version | None
    #: Number of this part, counted from 0.
    part: Counter
    #: Number of parts of the version.
    parts: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    frame: Frame
    items: list[Item] = []
    #: Keys of removed items: operation ids, or in a share snapshot `ShareItem.key`.
    removed: list[str] = []
    #: In share snapshots: new figures of the elements of which nothing else changed.
    moved: list[MovedShare] = []
    #: Version that this part is relative to, if the part has `moved`. The field `base` of such a part is the part's own version, which no
    #: reader has yet. So a reader of a former release, which does not know `moved`, cannot apply the part and asks for the whole snapshot.
    moved_from: Version | None = None

    @property
    def builds_on(self) -> Version | None:
        """The version that a reader must have to apply this part. None: the part is of a whole snapshot."""
        return self.base if self.moved_from is None else self.moved_from


class UsagePart(Part[UsageItem, UsageFrame], frozen=True):
    """allocator → fair_share and other readers: a part of a usage snapshot."""


class SharePart(Part[ShareItem, ShareFrame], frozen=True):
    """fair_share → allocator and other readers: a part of a share snapshot."""


class WholeRequest(msgspec.Struct, frozen=True):
    """Ask for a page of a whole snapshot.

    The first request has `version` null and page 0. Each further request names the version of the first answer. If the publisher no longer
    has that version, it answers with page 0 of the newest version.
    """

    version: Version | None = None
    part: Counter = 0
