"""What admission needs to know of a tree's configuration, with presets and defaults resolved."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import PoolTree

__all__ = ["NON_TENTATIVE_TYPES", "OPERATION_TYPES", "VANILLA", "PoolRules", "SubpoolRules", "TreeRules"]

VANILLA: Final = "vanilla"
#: Labels that an operation may carry.
OPERATION_TYPES: Final = (
    VANILLA,
    "map",
    "merge",
    "erase",
    "sort",
    "reduce",
    "map_reduce",
    "remote_copy",
    "join_reduce",
)
#: Types that take part in no tentative tree, unless the tree says otherwise.
NON_TENTATIVE_TYPES: Final = frozenset({"sort", "map_reduce", "remote_copy"})


class SubpoolRules(msgspec.Struct, frozen=True):
    """What a pool lays on the ephemeral pools right below it."""

    fifo: bool = False
    max_operation_count: int | None = None
    max_running_operation_count: int | None = None
    resource_limits: dict[str, int] = {}


class PoolRules(msgspec.Struct, frozen=True):
    """A configured pool. A limit of None is the tree's figure for a pool."""

    parent: PoolName = ROOT_POOL
    max_operation_count: int | None = None
    max_running_operation_count: int | None = None
    fifo: bool = False
    enable_lightweight_operations: bool = False
    create_ephemeral_subpools: bool = False
    ephemeral_subpools: SubpoolRules | None = None
    forbid_immediate_operations: bool = False
    always_allow_gang_operations: bool = False

    @property
    def lightweight(self) -> bool:
        """Whether vanilla operations pass the running limits here."""
        return self.fifo and self.enable_lightweight_operations


class TreeRules(msgspec.Struct, frozen=True):
    """A tree. The root's limits are the tree's."""

    pools: dict[PoolName, PoolRules] = {}
    max_operation_count: int = 50_000
    max_running_operation_count: int = 2_000
    max_operation_count_per_pool: int = 50
    max_running_operation_count_per_pool: int = 50
    default_parent_pool: PoolName = ROOT_POOL
    #: By user: where ephemeral pools of theirs come; used as it stands.
    user_to_default_pool: dict[str, PoolName] = {}
    max_ephemeral_pools_per_user: int = 1
    allow_gang_operations_only_in_fifo_pools: bool = False
    non_tentative_operation_types: frozenset[str] = NON_TENTATIVE_TYPES
    #: A raised limit, a moved pool or operation and a re-booked one promote nobody until the next scan, as upstream.
    promote_only_on_scan: bool = False
    #: For rights; None: everybody may everything.
    configured: PoolTree | None = None
