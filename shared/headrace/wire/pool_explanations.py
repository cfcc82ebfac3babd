"""Explanations of pools: each level on the way from the root, and the holders of what the pool lacks."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from headrace.ids import OperationId, PoolName, TreeName, UserName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.resources import ZERO, Finite, Resources
from headrace.wire.plan import BoundKind
from headrace.wire.snapshots import ElementKind, StarvationStatus
from headrace.wire.version import Counter, Version

ResourceName = Annotated[str, msgspec.Meta(max_length=20)]


class ExplainPool(msgspec.Struct, frozen=True):
    """person → fair_share: ask why a pool gets what it gets. A second pool can be explained too, for comparison."""

    name: Annotated[str, msgspec.Meta(max_length=200)]
    tree: TreeName = TreeName("default")
    #: Pool to compare with; empty: none.
    against: Annotated[str, msgspec.Meta(max_length=200)] = ""


class Division(enum.StrEnum):
    """Ways in which a pool determines the share of a child if the pool has less than its children want."""

    #: The pool gives out all that the child wants and can have, or the explained pool is the root.
    NONE = ""
    #: By weights, in addition to guarantees.
    WEIGHT = "weight"
    #: All resources of the pool go to guarantees and savings.
    GUARANTEES = "guarantees"
    #: The child gets what its siblings leave; none of them would take more.
    REST = "rest"
    #: No sibling is owed anything.
    ALONE = "alone"


class Sibling(msgspec.Struct, frozen=True):
    """A pool or operation with the same parent as the explained pool."""

    kind: ElementKind
    #: Pool name or operation id.
    name: PoolName
    weight: Finite
    usage: Resources
    fair_resources: Resources
    demand: Resources


class IntegralGuarantee(msgspec.Struct, frozen=True):
    """The integral guarantee of a pool, in shares of the cluster."""

    flow_ratio: Finite
    burst_ratio: Finite
    #: Saved volume, in shares times seconds.
    accumulated_ratio_volume: Finite
    #: Share granted from the savings at the last update; the largest of any resource.
    granted_ratio: Finite


class ShareStep(msgspec.Struct, frozen=True):
    """One pool on the way from the root: its figures, and what bounds its share. Shares are given as amounts of resources."""

    pool: PoolName
    #: First bound that prevents a larger share.
    bound_by: BoundKind
    #: Resource that binds; empty if no single resource does.
    resource: ResourceName
    #: Ancestor whose limit binds; empty if the pool's own limit does.
    limited_above: PoolName
    #: How the parent arrived at this pool's share, if the parent gives out less than its children want.
    division: Division
    dominant_resource: ResourceName
    weight: Finite
    usage: Resources
    demand: Resources
    fair_resources: Resources
    #: Part of the fair share that the strong guarantee gives. The two fields below are the parts that savings and weight give.
    by_strong_guarantee: Resources
    by_integral_guarantee: Resources
    by_weight: Resources
    #: Strong guarantee in force.
    guarantee: Resources
    #: Strong guarantee as configured.
    configured_guarantee: PartialResources = NOTHING
    #: Limits in force, for resources where they are below the cluster's total.
    limits: PartialResources = NOTHING
    #: True if the limits follow from the nodes that match tag filters.
    limited_by_nodes: bool = False
    savings: IntegralGuarantee | None = None
    starvation_status: StarvationStatus = StarvationStatus.NON_STARVING
    #: Sum of the weights of the parent's children that share by weight, including this pool.
    weights: Finite = 0.0
    #: Number of the parent's children that share by weight, including this pool.
    sharing: Counter = 0
    #: The siblings that are owed the largest amounts of the resource.
    siblings: Annotated[list[Sibling], msgspec.Meta(max_length=3)] = []


class Holder(msgspec.Struct, frozen=True):
    """The usage of a pool, an operation or a user."""

    #: Id of the operation; empty in sums over operations.
    operation: OperationId
    #: Name of the pool; empty in sums over pools.
    pool: PoolName
    #: Name of the user; empty in sums over users.
    user: UserName
    usage: Resources
    #: The part of the usage that exceeds the fair share.
    beyond: Resources
    #: Unix time in milliseconds when the operation began; None in sums.
    started_at_ms: Counter | None = None
    #: For a pool: run time in milliseconds before which its jobs are not preempted.
    exempt_time_ms: Counter = 0


class Holders(msgspec.Struct, frozen=True):
    """Pools, operations and users that hold what the explained pool lacks, sorted by their usage above fair share, largest first."""

    #: Resource by which the holders are sorted.
    resource: ResourceName
    #: Amounts that the pool is owed but does not have.
    owed: Resources = ZERO
    #: Amounts that the pool wants but does not have.
    wanted: Resources = ZERO
    #: Resources that are not used by any operation.
    free: Resources = ZERO
    pools: Annotated[list[Holder], msgspec.Meta(max_length=10)] = []
    operations: Annotated[list[Holder], msgspec.Meta(max_length=10)] = []
    people: Annotated[list[Holder], msgspec.Meta(max_length=10)] = []
    #: Number of pools, including those not listed.
    pool_count: Counter = 0
    #: Number of operations, including those not listed.
    operation_count: Counter = 0
    #: Number of users, including those not listed.
    people_count: Counter = 0


class PoolExplained(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The explanation of a pool's fair share, from the last update."""

    tree: TreeName
    at_ms: Counter
    usage_version: Version
    total: Resources
    #: Levels from the root to the pool.
    steps: Annotated[list[ShareStep], msgspec.Meta(max_length=34)]
    #: Levels from the root to the other pool; empty if none was asked for.
    against: Annotated[list[ShareStep], msgspec.Meta(max_length=34)]
    holders: Holders
