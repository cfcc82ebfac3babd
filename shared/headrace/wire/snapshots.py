"""Snapshots: usage from the allocator, shares from fair_share, and how readers keep up with them.

A snapshot is published as what changed, in parts under the size cap. Each part names the version it builds on. A reader
subscribes first, then asks for the whole in pages. On a gap or three periods of silence it asks again.
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

    #: Sum over the online nodes of the tree.
    total: Resources = ZERO
    #: False while recovering: figures of unheard nodes are missing, so nothing may be judged by them.
    complete: bool = False


class NodesOfTags(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The online nodes of the tree that have exactly these tags."""

    tags: tuple[str, ...]
    #: Together, as far as the tree may use them.
    total: Resources = ZERO


class UsageItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One operation as the allocator sees it, or the nodes that have the same tags."""

    #: Of nodes `#` and their tags, which is no operation's id.
    operation: OperationId
    usage: Resources = ZERO
    #: Being started at this moment, not yet confirmed by a node.
    precommit: Resources = ZERO
    #: Jobs that wait for a place, and what they need together.
    pending_jobs: Counter = 0
    pending: Resources = ZERO
    #: Smallest job of the operation.
    min_needed: Resources = ZERO
    #: All such items together make up the total of their snapshot. None: this item is of an operation.
    nodes: NodesOfTags | None = None
    #: How many times this term of the allocator has looked for room for it by a YARN policy.
    times_seen_to: Counter = 0

    @staticmethod
    def of_nodes(tags: tuple[str, ...], total: Resources = ZERO) -> UsageItem:
        """Makes the item of the nodes that have these tags."""
        return UsageItem(OperationId(f"#{list(tags)}"), nodes=NodesOfTags(tags, total))


class ElementKind(enum.StrEnum):
    """Kinds of elements that a share item speaks of."""

    ROOT = "root"
    POOL = "pool"
    OPERATION = "operation"


# Each element is asked for its key, while to look a member of an enumeration up takes longer than the answer.
_OPERATION: Final = ElementKind.OPERATION


class SchedulingStatus(enum.StrEnum):
    """The status of the moment: an element has what it is owed, or less."""

    NORMAL = "normal"
    BELOW_FAIR_SHARE = "below_fair_share"


class StarvationStatus(enum.StrEnum):
    """The status with memory: the time for which an element had less than it is owed."""

    NON_STARVING = "non_starving"
    STARVING = "starving"
    AGGRESSIVELY_STARVING = "aggressively_starving"


class StarvationReason(enum.StrEnum):
    """The share that a starving element is short of."""

    NONE = ""
    FAIR_SHARE = "fair_share"
    #: Its strong guarantee.
    MIN_SHARE = "min_share"


class PreemptionPriority(enum.StrEnum):
    """The preemptive stage in which an operation may get allocations of others."""

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
    """One element of the tree, pool or operation."""

    kind: ElementKind
    #: Pool name or operation id.
    name: str
    #: Pool that it stands in; empty for the root.
    parent: PoolName
    fair_share: DetailedShare = DetailedShare()
    usage_share: Share = ZERO_SHARE
    demand_share: Share = ZERO_SHARE
    limits_share: Share = (1.0, 1.0, 1.0, 1.0, 1.0)
    #: After inference and fitting.
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
    #: Place among the operations of a fifo pool, and the one in force where the pool put it elsewhere; None outside of fifo pools.
    fifo_index: Counter | None = None
    effective_fifo_index: Counter | None = None
    #: Integral share that was granted, of which the fair share may use less.
    proposed_integral_share: Share = ZERO_SHARE
    #: Integral guarantees as one number, the largest share of any resource: as configured, and with all pools below.
    specified_resource_flow_ratio: Finite = 0.0
    specified_burst_ratio: Finite = 0.0
    total_resource_flow_ratio: Finite = 0.0
    total_burst_ratio: Finite = 0.0
    #: Of a pool: the most that it may use, as configured, also where that is more than the cluster has.
    limits: PartialResources = NOTHING
    #: Of an operation.
    preemption_priority: PreemptionPriority = PreemptionPriority.NONE
    starvation_reason: StarvationReason = StarvationReason.NONE
    #: In force for the root or a pool. Those of an operation follow from its pool's and its spec (`of_operation`).
    options: EffectiveOptions | None = None
    #: Among children of a pool that are equally satisfied the lowest comes first: pools by their place, operations of a fifo pool by
    #: its order, others by the Unix time of their start in milliseconds.
    rank: Counter = 0
    #: All that the nodes have which match its scheduling tag filters. None: it has none, or the nodes are not known.
    tag_filter_limits: Resources | None = None
    #: Under a YARN policy: what it is short of, of a pool with all below it. None: nothing.
    due_to_fair_share: Resources | None = None
    due_to_min_share: Resources | None = None
    #: True if preemption is to see to that now.
    claims: bool = False
    #: The resource of which the nodes that match the filters of an operation have no more for it, since others that can run nowhere
    #: else are owed the rest. Empty: that is not what bounds it.
    short_of: str = ""

    @property
    def key(self) -> str:
        """The key of an element in a snapshot: an operation's id, or `/` and a pool's name.

        A pool may be named like an id.
        """
        return self.name if self.kind is _OPERATION else f"/{self.name}"


class MovedShare(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The new figures of an element whose fair share, usage or demand alone changed: a quarter of its `ShareItem`. None: as it was."""

    #: As `ShareItem.key`.
    key: str
    weight_proportional: Share | None = None
    #: None with a new `weight_proportional`: the same as that.
    total: Share | None = None
    #: The ratio of the element and its local one.
    satisfaction: tuple[Finite, Finite] | None = None
    usage: Share | None = None
    demand: Share | None = None

    @staticmethod
    def between(before: ShareItem, after: ShareItem) -> MovedShare | None:
        """Tells what of an element changed, or None if that cannot be told by such a struct."""
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
        """The item of the element, which was `before`."""
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

    #: Such as `overcommit_burst`.
    kind: str
    text: str
    pools: list[PoolName] = []


class ShareFrame(msgspec.Struct, frozen=True):
    """Facts about a share snapshot as a whole."""

    #: The usage snapshot it was made from, and the configuration.
    usage_version: Version = NEVER
    pools_revision: Counter = 0
    total: Resources = ZERO
    at_ms: Counter = 0
    #: Volumes did not come in time; those of an earlier update were used.
    stale_volumes: bool = False
    #: Errors of the algorithm, in words (guarantees over the cluster and the like).
    errors: list[str] = []
    #: The same with the pools that they concern.
    complaints: list[ShareComplaint] = []
    #: Time that the volumes of integral guarantees were neither credited nor charged for.
    downtime: Downtime = Downtime()
    #: Of the configuration that it was made from.
    options: AllocationOptions = AllocationOptions()


class Part(msgspec.Struct, Generic[Item, Frame], frozen=True):
    """One part of a snapshot. It takes effect when all its parts are there."""

    tree: TreeName
    version: Version
    #: What the change is relative to; null: this is the whole. See `builds_on`.
    base: Version | None
    #: Number of this part from 0, and how many there are.
    part: Counter
    parts: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    frame: Frame
    items: list[Item] = []
    #: Keys of items that are gone: operation ids; for pools of a share snapshot `ShareItem.key`.
    removed: list[str] = []
    #: Of shares: elements of which these figures alone changed.
    moved: list[MovedShare] = []
    #: What a change with such elements is relative to. Its `base` is its own version, which no reader has before: one that does not
    #: know of this asks for the whole.
    moved_from: Version | None = None

    @property
    def builds_on(self) -> Version | None:
        """The version that a reader must have to take this part. None: it is the whole."""
        return self.base if self.moved_from is None else self.moved_from


class UsagePart(Part[UsageItem, UsageFrame], frozen=True):
    """allocator → fair_share and readers."""


class SharePart(Part[ShareItem, ShareFrame], frozen=True):
    """fair_share → allocator and readers."""


class WholeRequest(msgspec.Struct, frozen=True):
    """Asks for a page of a whole snapshot.

    First with `version` null and page 0; then the others of the version that was answered. A version that the publisher no longer has is
    answered with page 0 of the newest.
    """

    version: Version | None = None
    part: Counter = 0
