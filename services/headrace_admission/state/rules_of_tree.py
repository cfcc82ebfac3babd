"""The configuration of a tree, as admission reads it."""

from __future__ import annotations

from headrace.ids import PoolName
from headrace.pools import PoolConfig, PoolMode, PoolTree, Tree
from headrace_admission.state.rules import NON_TENTATIVE_TYPES, PoolRules, SubpoolRules, TreeRules

__all__ = ["rules_of"]


def rules_of(tree: Tree) -> TreeRules:
    """What the tree's options and its pools' settings, presets included, mean for operations."""
    index, options = PoolTree(tree), tree.options
    types = options.non_tentative_operation_types
    return TreeRules(
        pools={name: _pool_rules(pool.parent, index.settings(name)) for name, pool in index.pools.items()},
        max_operation_count=options.max_operation_count,
        max_running_operation_count=options.max_running_operation_count,
        max_operation_count_per_pool=options.max_operation_count_per_pool,
        max_running_operation_count_per_pool=options.max_running_operation_count_per_pool,
        default_parent_pool=PoolName(options.default_parent_pool),
        user_to_default_pool=_default_pools(options.user_to_default_pool)
        if options.use_user_default_parent_pool_map
        else {},
        max_ephemeral_pools_per_user=options.max_ephemeral_pools_per_user,
        allow_gang_operations_only_in_fifo_pools=options.allow_gang_operations_only_in_fifo_pools,
        non_tentative_operation_types=NON_TENTATIVE_TYPES if types is None else frozenset(types),
        promote_only_on_scan=options.promote_only_on_scan,
        configured=index,
    )


def _default_pools(by_user: dict[str, str]) -> dict[str, PoolName]:
    return {user: PoolName(pool) for user, pool in by_user.items()}


def _pool_rules(parent: PoolName, settings: PoolConfig) -> PoolRules:
    config = settings.ephemeral_subpool_config
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
        max_operation_count=settings.max_operation_count,
        max_running_operation_count=settings.max_running_operation_count,
        fifo=settings.mode is PoolMode.FIFO,
        enable_lightweight_operations=bool(settings.enable_lightweight_operations),
        create_ephemeral_subpools=settings.create_ephemeral_subpools,
        ephemeral_subpools=subpools,
        forbid_immediate_operations=settings.forbid_immediate_operations,
        always_allow_gang_operations=settings.always_allow_gang_operations,
    )
