"""Converts a tree's configuration to the algorithm's input: pools and options in its own terms. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.ids import ROOT_POOL
from headrace.pools import Pool, PoolTree, PreemptionPolicy, ShareModel, TreeOptions
from headrace.pools.effective_options import EffectiveOptions, of_pool, of_tree
from headrace.pools.pool_config import PoolConfig
from headrace.resources import RESOURCE_NAMES
from headrace_fair_share.hdrf import model
from headrace_fair_share.hdrf.model import PoolInput


def pool_input(pool: Pool, parent: int, tree: PoolTree, *, memory_only: bool = False) -> PoolInput:
    """Return the input of a pool whose parent has the position `parent` among the pools (-1: the root).

    A configured pool has the settings of its presets too; an ephemeral pool only has its own settings. `memory_only` is the option of this
    name that is in force for the pool.
    """
    settings = _settings(pool, tree)
    integral = settings.integral_guarantees
    return PoolInput(
        name=pool.name,
        parent=parent,
        mode=settings.mode,
        weight=settings.weight,
        strong_guarantee=settings.strong_guarantee_resources.as_tuple(),
        limits=settings.resource_limits.as_tuple(),
        integral=integral.guarantee_type,
        resource_flow=integral.resource_flow.whole,
        burst_guarantee=integral.burst_guarantee_resources.whole,
        relaxed_share_multiplier_limit=integral.relaxed_share_multiplier_limit,
        can_accept_free_volume=integral.can_accept_free_volume,
        distribute_free_volume=integral.should_distribute_free_volume_among_children,
        fifo_sort=settings.fifo_sort_parameters,
        gang_step_function=settings.enable_step_function_for_gang_operations,
        fifo_reordering=settings.enable_fifo_children_reordering_for_guarantee_utilization,
        compute_promised_guarantee=settings.compute_promised_guarantee_fair_share,
        priority_strong_guarantee=settings.enable_priority_strong_guarantee_adjustment,
        priority_strong_guarantee_donor=settings.enable_priority_strong_guarantee_adjustment_donorship,
        memory_only=memory_only,
        historic_usage_weights=settings.infer_children_weights_from_historic_usage,
    )


def effective_options_of(
    tree: PoolTree, pools: Sequence[Pool], known: Sequence[EffectiveOptions] = ()
) -> list[EffectiveOptions]:
    """Return the effective options of the root and each of the pools. Parents must come before their children.

    `known` contains the effective options of the root and of as many of the first pools as are known; these options are not computed again.
    """
    names = [ROOT_POOL, *(pool.name for pool in pools)]
    found = dict(zip(names, known or [of_tree(tree.options)], strict=False))
    for pool in pools[len(found) - 1 :]:
        found[pool.name] = of_pool(found[pool.parent], _settings(pool, tree), tree.options.ssd_priority_preemption)
    return list(found.values())


def filters_of_all_below(pools: Sequence[PoolInput], options: Sequence[EffectiveOptions]) -> list[tuple[str, ...]]:
    """Return the filter formulas that every job below the root and below each pool must match.

    A pool inherits all filters of its parent, except that it may lift the filter that excludes SSD nodes.
    """
    found = [each.scheduling_tag_filters for each in options]
    # Go from the last pool to the first. Children come after their parents, so the result of a pool is complete before its parent uses it.
    for place in range(len(pools), 0, -1):
        above = pools[place - 1].parent + 1
        found[above] = tuple(formula for formula in found[above] if formula in found[place])
    return found


def _settings(pool: Pool, tree: PoolTree) -> PoolConfig:
    return tree.settings(pool.name) if pool.name in tree.pools else pool.settings


def sharing_of(options: TreeOptions) -> model.Sharing:
    """Return the rules by which a tree is shared: YARN's rules if its preemption policy is one of YARN's, unless an option sets Headrace's
    own fair share for this tree.
    """
    is_yarn = options.preemption_policy is not PreemptionPolicy.YTSAURUS and options.yarn.share is ShareModel.YARN
    return model.Sharing.YARN if is_yarn else model.Sharing.VECTOR


def tree_options(options: TreeOptions) -> model.UpdateOptions:
    """Return those options of a tree that the algorithm reads."""
    integral = options.integral_guarantees
    return model.UpdateOptions(
        sharing=sharing_of(options),
        memory_only=options.yarn.memory_only,
        main_resource=RESOURCE_NAMES.index(options.main_resource),
        smooth_period_s=integral.smooth_period / 1000,
        saturation_period_s=integral.pool_capacity_saturation_period / 1000,
        relaxed_share_multiplier_limit=integral.relaxed_share_multiplier_limit,
        gang_step_function=options.enable_step_function_for_gang_operations,
        fifo_reordering=options.enable_fifo_children_reordering_for_guarantee_utilization,
        improved=options.enable_improved_fair_share_by_fit_factor_computation,
        distribution_gap=options.enable_improved_fair_share_by_fit_factor_computation_distribution_gap,
        infer_weight_multiplier=options.infer_weight_from_guarantees_share_multiplier,
        distribute_free_volume=options.should_distribute_free_volume_among_children,
        charge_skipped_relaxed_pools=options.charge_skipped_relaxed_pools,
    )
