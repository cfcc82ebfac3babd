"""Explanations of pools: each level on the way from the root, and whoever has what is lacking."""

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
    """person → fair_share: why does a pool get what it gets, and another one beside it."""

    name: Annotated[str, msgspec.Meta(max_length=200)]
    tree: TreeName = TreeName("default")
    #: Empty: no other one.
    against: Annotated[str, msgspec.Meta(max_length=200)] = ""


class Division(enum.StrEnum):
    """Rules by which a pool that hands out less than is wanted came to the share of a child."""

    #: It hands out nothing that the child wants and could have, or the child is the root.
    NONE = ""
    #: By weights, beside guarantees.
    WEIGHT = "weight"
    #: All of it goes to guarantees and savings.
    GUARANTEES = "guarantees"
    #: What its siblings leave, none of which would take more.
    REST = "rest"
    #: No sibling is owed anything.
    ALONE = "alone"


class Sibling(msgspec.Struct, frozen=True):
    """A pool or operation that shares with the explained one what their pool gets."""

    kind: ElementKind
    #: Pool name or operation id.
    name: PoolName
    weight: Finite
    usage: Resources
    fair_resources: Resources
    demand: Resources


class Savings(msgspec.Struct, frozen=True):
    """The integral guarantee of a pool, in shares of the cluster."""

    flow_ratio: Finite
    burst_ratio: Finite
    #: What is saved, in shares times seconds.
    accumulated_ratio_volume: Finite
    #: What they gave at the last update, the largest of any resource.
    granted_ratio: Finite


class ShareStep(msgspec.Struct, frozen=True):
    """One pool on the way from the root: its figures, and the step that bound them. Amounts are those to the shares."""

    pool: PoolName
    #: The step that stands first in the way of a larger share.
    bound_by: BoundKind
    #: The resource by which it does; empty where none does alone.
    resource: ResourceName
    #: The pool above whose limit it is; empty where it is the pool's own.
    limited_above: PoolName
    #: How the pool above came to its share, where that pool hands out less than is wanted of it.
    division: Division
    dominant_resource: ResourceName
    weight: Finite
    usage: Resources
    demand: Resources
    fair_resources: Resources
    #: The parts of the fair share.
    by_strong_guarantee: Resources
    by_integral_guarantee: Resources
    by_weight: Resources
    #: Strong guarantee in force, and as configured.
    guarantee: Resources
    configured_guarantee: PartialResources = NOTHING
    #: In force, where that is less than the cluster.
    limits: PartialResources = NOTHING
    #: True if it follows from the nodes that match tag filters.
    limited_by_nodes: bool = False
    savings: Savings | None = None
    starvation_status: StarvationStatus = StarvationStatus.NON_STARVING
    #: Weights of those that share by weight, itself among them; and how many they are.
    weights: Finite = 0.0
    sharing: Counter = 0
    #: Of its siblings those that are owed most of the resource.
    siblings: Annotated[list[Sibling], msgspec.Meta(max_length=3)] = []


class Holder(msgspec.Struct, frozen=True):
    """An amount of the cluster that a pool, an operation or a person has."""

    #: Empty in sums over operations.
    operation: OperationId
    #: Empty in sums over pools.
    pool: PoolName
    #: Empty in sums over people.
    user: UserName
    usage: Resources
    #: What of it is more than it is owed.
    beyond: Resources
    #: When the operation began; None of sums.
    started_at_ms: Counter | None = None
    #: Of a pool: a job in it makes no room for others before it has run for so long.
    exempt_time_ms: Counter = 0


class Holders(msgspec.Struct, frozen=True):
    """Pools, operations and people that have what a pool lacks, those with most beyond their share first."""

    #: The resource that they are sorted by.
    resource: ResourceName
    #: What the pool is owed and has not, and what it wants and has not.
    owed: Resources = ZERO
    wanted: Resources = ZERO
    #: What nobody has.
    free: Resources = ZERO
    pools: Annotated[list[Holder], msgspec.Meta(max_length=10)] = []
    operations: Annotated[list[Holder], msgspec.Meta(max_length=10)] = []
    people: Annotated[list[Holder], msgspec.Meta(max_length=10)] = []
    #: How many of each there are.
    pool_count: Counter = 0
    operation_count: Counter = 0
    people_count: Counter = 0


class PoolExplained(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Why a pool gets what it gets, as the last update has it."""

    tree: TreeName
    at_ms: Counter
    usage_version: Version
    total: Resources
    #: From the root to the pool.
    steps: Annotated[list[ShareStep], msgspec.Meta(max_length=34)]
    #: From the root to the other pool; empty where none was asked for.
    against: Annotated[list[ShareStep], msgspec.Meta(max_length=34)]
    holders: Holders
