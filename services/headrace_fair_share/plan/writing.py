"""Writes the input of an update as a plan file, which `description` reads.

The file does not contain the start times of operations (only their order), best allocation shares, fractions of units in volumes, or bursts
of relaxed pools.
"""

from __future__ import annotations

from typing import Any

from headrace.ids import ROOT_POOL
from headrace.pools import (
    IntegralGuarantees,
    IntegralType,
    PartialResources,
    PreemptionPolicy,
    TreeIntegralOptions,
    TreeOptions,
    YarnOptions,
)
from headrace.pools.attributes.map_kinds import ResourceAmounts
from headrace.resources import RESOURCE_NAMES, ZERO
from headrace.tree_file.pools import ConfiguredPool, as_yaml, tree_as_map
from headrace_fair_share.hdrf import model
from headrace_fair_share.hdrf.model import OperationInput, PoolInput, TreeInput
from headrace_fair_share.plan.attributes import (
    OPERATION_ATTRIBUTES,
    PLANNED_POOL_ATTRIBUTES,
    PlannedOperation,
    PlannedPool,
)


def written(tree: TreeInput) -> str:
    """Return the plan file as YAML."""
    names = [pool.name for pool in tree.pools]
    pools = [
        ConfiguredPool(
            pool.name,
            names[pool.parent] if pool.parent >= 0 else ROOT_POOL,
            PLANNED_POOL_ATTRIBUTES.written(_planned_pool(pool, tree)),
        )
        for pool in tree.pools
    ]
    plan: dict[str, Any] = {"total": ResourceAmounts().write(PartialResources.of(tree.total))}
    plan |= tree_as_map(pools, _tree_options(tree.options))
    plan["operations"] = {
        each.name: OPERATION_ATTRIBUTES.written(_planned_operation(each, names[each.pool])) for each in tree.operations
    }
    return as_yaml(plan)


def _tree_options(options: model.UpdateOptions) -> TreeOptions:
    is_yarn = options.sharing is model.Sharing.YARN
    return TreeOptions(
        preemption_policy=PreemptionPolicy.YARN if is_yarn else PreemptionPolicy.YTSAURUS,
        yarn=YarnOptions(memory_only=options.memory_only),
        main_resource=RESOURCE_NAMES[options.main_resource],
        integral_guarantees=TreeIntegralOptions(
            smooth_period=round(options.smooth_period_s * 1000),
            pool_capacity_saturation_period=round(options.saturation_period_s * 1000),
            relaxed_share_multiplier_limit=options.relaxed_share_multiplier_limit,
        ),
        should_distribute_free_volume_among_children=options.distribute_free_volume,
        infer_weight_from_guarantees_share_multiplier=options.infer_weight_multiplier,
        enable_step_function_for_gang_operations=options.gang_step_function,
        enable_fifo_children_reordering_for_guarantee_utilization=options.fifo_reordering,
        enable_improved_fair_share_by_fit_factor_computation=options.improved,
        enable_improved_fair_share_by_fit_factor_computation_distribution_gap=options.distribution_gap,
        charge_skipped_relaxed_pools=options.charge_skipped_relaxed_pools,
    )


def _planned_pool(pool: PoolInput, tree: TreeInput) -> PlannedPool:
    savings = tree.integral.get(pool.name) if pool.integral is not IntegralType.NONE else None
    burst = ZERO if pool.integral is IntegralType.RELAXED else pool.burst_guarantee
    return PlannedPool(
        mode=pool.mode,
        weight=pool.weight,
        strong_guarantee_resources=PartialResources(*pool.strong_guarantee),
        resource_limits=PartialResources(*pool.limits),
        integral_guarantees=IntegralGuarantees(
            guarantee_type=pool.integral,
            resource_flow=PartialResources.of(pool.resource_flow),
            burst_guarantee_resources=PartialResources.of(burst),
            relaxed_share_multiplier_limit=pool.relaxed_share_multiplier_limit,
            can_accept_free_volume=pool.can_accept_free_volume,
            should_distribute_free_volume_among_children=pool.distribute_free_volume,
        ),
        fifo_sort_parameters=pool.fifo_sort,
        enable_step_function_for_gang_operations=pool.gang_step_function,
        enable_fifo_children_reordering_for_guarantee_utilization=pool.fifo_reordering,
        compute_promised_guarantee_fair_share=pool.compute_promised_guarantee,
        enable_priority_strong_guarantee_adjustment=pool.priority_strong_guarantee,
        enable_priority_strong_guarantee_adjustment_donorship=pool.priority_strong_guarantee_donor,
        infer_children_weights_from_historic_usage=pool.historic_usage_weights,
        yarn_memory_only=pool.memory_only,
        historic_usage_average=pool.historic_usage_average,
        accumulated_resource_volume=PartialResources(*map(round, savings.volume)) if savings is not None else None,
    )


def _planned_operation(operation: OperationInput, pool: str) -> PlannedOperation:
    return PlannedOperation(
        pool=pool,
        weight=operation.weight,
        resource_demand=PartialResources.of(operation.demand),
        resource_usage=PartialResources.of(operation.usage),
        resource_limits=PartialResources(*operation.limits),
        is_gang=operation.gang,
        historic_usage_average=operation.historic_usage_average,
    )
