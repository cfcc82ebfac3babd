"""The rules of admission: the parts of a tree's configuration that apply to operations, with presets and defaults resolved."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import EVERYBODY, Person, PoolConfig, PoolMode, PoolTree, Tree, TreeOptions, person_of
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.placement_rules import PlacementRule, parse_rule
from headrace.wire.operation_spec import VANILLA
from headrace_admission.state.groups import GroupBook

#: Types that an operation may have.
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
#: Types of operations that do not use tentative trees, unless the tree's options say otherwise.
NON_TENTATIVE_TYPES: Final = frozenset({"sort", "map_reduce", "remote_copy"})


#: Bytes of live operations up to which the service runs in the 2 GB of memory that the compose stack gives it.
_LARGEST_REPLAYED_BYTES: Final = 1024 * 1024 * 1024


class GlobalRules(msgspec.Struct, frozen=True):
    """The rules for all trees together."""

    max_operation_count: int = 5_000
    #: True: no ephemeral pool is made for an operation that names a missing pool.
    require_specified_pools_existence: bool = False
    #: True: operations may be moved to another pool.
    pool_change_is_allowed: bool = True
    #: Users and groups who may do everything; `*`: every user.
    administrators: frozenset[str] = frozenset({EVERYBODY})
    #: Largest number of live operations of each user; None: no limit.
    max_operation_count_per_user: int | None = None
    #: Bytes that the live operations of all users may take in memory.
    most_operation_bytes: int = 512 * 1024 * 1024
    #: Bytes that the live operations of each user may take in memory.
    most_operation_bytes_of_a_user: int = 256 * 1024 * 1024
    #: Time after which an operation fails if each of its jobs is larger than the resource limits of a pool.
    limiting_ancestor_safe_timeout_ms: int = 300_000

    @property
    def largest_replayed_bytes(self) -> int:
        """Bytes of live operations up to which commands are loaded from the log.

        Starts are refused long before live operations take so many bytes. The operations in a log take more only if they started
        before there were quotas, or while the quotas were far larger.
        """
        return max(2 * self.most_operation_bytes, _LARGEST_REPLAYED_BYTES)


class SubpoolRules(msgspec.Struct, frozen=True):
    """The settings that a pool gives to the ephemeral pools directly below it."""

    fifo: bool = False
    max_operation_count: int | None = None
    max_running_operation_count: int | None = None
    resource_limits: dict[str, int] = {}


class TimeLimitRules(msgspec.Struct, frozen=True):
    """The time limits of one pool or of the root, in milliseconds. None: no limit is set there."""

    default_ms: int | None = None
    max_ms: int | None = None


_NO_TIME_LIMITS: Final = TimeLimitRules()


class JobSizeRules(msgspec.Struct, frozen=True):
    """The bounds of the resources of one job, as one pool or the root sets them."""

    least: PartialResources = NOTHING
    most: PartialResources = NOTHING


_ANY_JOB_SIZE: Final = JobSizeRules()


class PoolRules(msgspec.Struct, frozen=True):
    """The rules of a configured pool. If a limit is None, the tree's default for pools applies."""

    parent: PoolName = ROOT_POOL
    max_operation_count: int | None = None
    max_running_operation_count: int | None = None
    fifo: bool = False
    enable_lightweight_operations: bool = False
    create_ephemeral_subpools: bool = False
    ephemeral_subpools: SubpoolRules | None = None
    forbid_immediate_operations: bool = False
    always_allow_gang_operations: bool = False
    time_limit: TimeLimitRules = _NO_TIME_LIMITS
    operation_time_limit: TimeLimitRules = _NO_TIME_LIMITS
    job_size: JobSizeRules = _ANY_JOB_SIZE
    resource_limits: PartialResources = NOTHING

    @property
    def for_lightweight_operations(self) -> bool:
        """True if vanilla operations are lightweight in this pool: it is a fifo pool that allows lightweight operations."""
        return self.fifo and self.enable_lightweight_operations


class TreeRules(msgspec.Struct, frozen=True):
    """The rules of a tree and its pools. The limits of the root are those of the tree."""

    pools: dict[PoolName, PoolRules] = {}
    max_operation_count: int = 50_000
    max_running_operation_count: int = 2_000
    max_operation_count_per_pool: int = 50
    max_running_operation_count_per_pool: int = 50
    #: Rules that choose the pool of an operation, in order. A rule may pass the operation on to the next rule; the first rule that does not
    #: decides.
    placement_rules: tuple[PlacementRule, ...] = tuple(parse_rule(text, "") for text in TreeOptions().placement_rules)
    default_parent_pool: PoolName = ROOT_POOL
    #: By user or group, the pool below which the ephemeral pools of the user, or of the group's members, are made.
    user_to_default_pool: dict[str, PoolName] = {}
    max_ephemeral_pools_per_user: int = 1
    allow_gang_operations_only_in_fifo_pools: bool = False
    enable_interactive: bool = True
    non_tentative_operation_types: frozenset[str] = NON_TENTATIVE_TYPES
    #: True: raised limits, moved pools and moved operations start no waiting operation until the next scan, as in YTsaurus.
    promote_only_on_scan: bool = False
    time_limit: TimeLimitRules = _NO_TIME_LIMITS
    operation_time_limit: TimeLimitRules = _NO_TIME_LIMITS
    job_size: JobSizeRules = _ANY_JOB_SIZE
    #: True: an operation whose jobs are larger than the limits of a pool fails after some time.
    enable_limiting_ancestor_check: bool = True
    #: The tree with its access lists; None: every user may do everything.
    configured: PoolTree | None = None


def rules_of(tree: Tree) -> TreeRules:
    """Return the rules of a tree's options and pools, presets included. Raises `BadInput`."""
    index, options = PoolTree(tree), tree.options
    types = options.non_tentative_operation_types
    by_user = options.user_to_default_pool if options.use_user_default_parent_pool_map else {}
    return TreeRules(
        pools={name: _pool_rules(pool.parent, index.settings(name)) for name, pool in index.pools.items()},
        max_operation_count=options.max_operation_count,
        max_running_operation_count=options.max_running_operation_count,
        max_operation_count_per_pool=options.max_operation_count_per_pool,
        max_running_operation_count_per_pool=options.max_running_operation_count_per_pool,
        placement_rules=tuple(parse_rule(text, "placement_rules") for text in options.placement_rules),
        default_parent_pool=PoolName(options.default_parent_pool),
        user_to_default_pool={user: PoolName(pool) for user, pool in by_user.items()},
        max_ephemeral_pools_per_user=options.max_ephemeral_pools_per_user,
        allow_gang_operations_only_in_fifo_pools=options.allow_gang_operations_only_in_fifo_pools,
        enable_interactive=options.enable_interactive,
        non_tentative_operation_types=NON_TENTATIVE_TYPES if types is None else frozenset(types),
        promote_only_on_scan=options.promote_only_on_scan,
        time_limit=TimeLimitRules(options.default_time_limit, options.max_time_limit),
        operation_time_limit=TimeLimitRules(options.default_operation_time_limit, options.max_operation_time_limit),
        job_size=JobSizeRules(options.min_job_resource_limits, options.max_job_resource_limits),
        enable_limiting_ancestor_check=options.enable_limiting_ancestor_check,
        configured=index,
    )


def _pool_rules(parent: PoolName, configured: PoolConfig) -> PoolRules:
    config = configured.ephemeral_subpool_config
    subpools = None
    if config is not None:
        subpools = SubpoolRules(
            fifo=config.mode is PoolMode.FIFO,
            max_operation_count=config.max_operation_count,
            max_running_operation_count=config.max_running_operation_count,
            resource_limits=config.resource_limits.named(),
        )
    return PoolRules(
        parent=parent,
        max_operation_count=configured.max_operation_count,
        max_running_operation_count=configured.max_running_operation_count,
        fifo=configured.mode is PoolMode.FIFO,
        enable_lightweight_operations=bool(configured.enable_lightweight_operations),
        create_ephemeral_subpools=configured.create_ephemeral_subpools,
        ephemeral_subpools=subpools,
        forbid_immediate_operations=configured.forbid_immediate_operations,
        always_allow_gang_operations=configured.always_allow_gang_operations,
        time_limit=TimeLimitRules(configured.default_time_limit, configured.max_time_limit),
        operation_time_limit=TimeLimitRules(
            configured.default_operation_time_limit, configured.max_operation_time_limit
        ),
        job_size=JobSizeRules(configured.min_job_resource_limits, configured.max_job_resource_limits),
        resource_limits=configured.resource_limits,
    )


class HeldBack(msgspec.Struct, frozen=True):
    """New rules of a tree that cannot be applied yet, and the reason."""

    rules: TreeRules
    reason: str


class Configuration:
    """The rules in force, the rules that cannot be applied yet, and the groups of people.

    The log does not contain them: each process that starts reads them again. Only `State.configure` changes the rules.
    """

    def __init__(self, everywhere: GlobalRules, groups: GroupBook | None = None) -> None:
        self.everywhere = everywhere
        self.groups = groups or GroupBook()
        #: Configured trees. A tree that is not configured any more still has a book in `State.books` while operations live in it.
        self.trees: dict[TreeName, TreeRules] = {}
        self.held_back: dict[TreeName, HeldBack] = {}

    def person(self, user: str) -> Person:
        """Return the person with this user name: the groups, and whether the person is an administrator."""
        groups = tuple(each.name for each in self.groups.of(user))
        return person_of(user, self.everywhere.administrators, groups)
