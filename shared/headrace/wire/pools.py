"""Pool trees: configuration in the bucket of pools, requests of people to fair_share, and what they see."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.pools.model import Pool, Tree
from headrace.pools.settings import IntegralGuarantees, IntegralType, PoolMode, PoolSettings
from headrace.resources import Resources
from headrace.wire.snapshots import ShareFrame, ShareItem
from headrace.wire.version import Counter, Version

__all__ = [
    "CreatePool",
    "GetPools",
    "IntegralGuarantees",
    "IntegralType",
    "Pool",
    "PoolChanged",
    "PoolList",
    "PoolMode",
    "PoolSettings",
    "PoolView",
    "RemovePool",
    "SetPool",
    "Tree",
]


class CreatePool(msgspec.Struct, frozen=True):
    """Make a pool. Its name must be new in the whole tree."""

    name: PoolName
    parent: PoolName
    settings: PoolSettings = PoolSettings()
    tree: TreeName = TreeName("default")


class SetPool(msgspec.Struct, frozen=True):
    """Change settings: `settings` as a JSON object with only the keys to change; null takes one back to its default."""

    name: PoolName
    settings: bytes
    tree: TreeName = TreeName("default")


class RemovePool(msgspec.Struct, frozen=True):
    """Take a pool away; it must have no child pools and no operations."""

    name: PoolName
    tree: TreeName = TreeName("default")


class PoolChanged(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Durable; a request that carries `min_revision` sees it."""

    name: PoolName
    tree: TreeName
    revision: Counter
    warnings: list[str] = []


class GetPools(msgspec.Struct, frozen=True):
    """Pools with their shares; one with `name`, else all."""

    name: str = ""
    tree: TreeName = TreeName("default")
    #: Operations too.
    operations: bool = False
    #: Place of the first pool of this page; the next page begins behind the last of this one.
    first: Counter = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 200


class PoolView(msgspec.Struct, frozen=True):
    """A pool, configured or ephemeral, with the figures of the last update."""

    name: PoolName
    parent: PoolName
    path: str
    ephemeral: bool
    settings: PoolSettings
    share: ShareItem
    #: Amounts to the shares.
    fair_resources: Resources
    usage: Resources
    demand: Resources
    operation_count: Counter
    running_operation_count: Counter
    #: Resource times seconds, and its ratio form; None for a pool without integral guarantees.
    accumulated_resource_volume: dict[str, float] | None = None
    accumulated_resource_ratio_volume: float | None = None
    #: The most that it can save, resource times seconds; and how long its savings last at full burst, where that is an end.
    integral_pool_capacity: dict[str, float] | None = None
    estimated_burst_usage_duration_seconds: float | None = None


class PoolList(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Pools, parents before children, siblings in their order; the root first."""

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
