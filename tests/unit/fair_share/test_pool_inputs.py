"""Each field of the algorithm's input comes from the configuration, where everything is set to what it is not by default."""

from __future__ import annotations

import msgspec

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, Pool, PoolConfig, PoolTree, Tree, TreeOptions
from headrace.pools.pool_config import FifoSortParameter, IntegralType, PoolMode
from headrace.resources import Resources
from headrace_fair_share.facts.pool_inputs import pool_input, tree_options
from headrace_fair_share.hdrf import model

#: Told by the algorithm's caller: what the pool had used is no setting.
NOT_CONFIGURED = {"historic_usage_average"}
SETTINGS = {
    "mode": "fifo",
    "weight": 7,
    "strong_guarantee_resources": {"cpu": 3},
    "resource_limits": {"memory": 5},
    "integral_guarantees": {
        "guarantee_type": "relaxed",
        "resource_flow": {"cpu": 2},
        "burst_guarantee_resources": {"cpu": 4},
        "relaxed_share_multiplier_limit": 5,
        "can_accept_free_volume": False,
        "should_distribute_free_volume_among_children": True,
    },
    "fifo_sort_parameters": ["pending_job_count"],
    "enable_step_function_for_gang_operations": False,
    "enable_fifo_children_reordering_for_guarantee_utilization": False,
    "compute_promised_guarantee_fair_share": True,
    "enable_priority_strong_guarantee_adjustment": True,
    "enable_priority_strong_guarantee_adjustment_donorship": True,
    "infer_children_weights_from_historic_usage": True,
    "historic_usage_aggregation_period": 60_000,
}
OPTIONS = {
    "preemption_policy": "yarn",
    "yarn": {"memory_only": True},
    "main_resource": "gpu",
    "integral_guarantees": {
        "smooth_period": 10_000,
        "pool_capacity_saturation_period": 3_600_000,
        "relaxed_share_multiplier_limit": 2,
    },
    "enable_step_function_for_gang_operations": True,
    "enable_fifo_children_reordering_for_guarantee_utilization": True,
    "enable_improved_fair_share_by_fit_factor_computation": True,
    "enable_improved_fair_share_by_fit_factor_computation_distribution_gap": True,
    "infer_weight_from_guarantees_share_multiplier": 4,
    "should_distribute_free_volume_among_children": True,
    "charge_skipped_relaxed_pools": True,
}


def test_every_field_of_a_pool_comes_from_its_settings() -> None:
    above = Pool(PoolName("above"), ROOT_POOL)
    pool = Pool(PoolName("a"), above.name, POOL_ATTRIBUTES.changed(PoolConfig(), SETTINGS).value)
    tree = PoolTree(Tree(TreeName("default"), [above, pool]))
    wanted = model.PoolInput(
        name="a",
        parent=0,
        mode=PoolMode.FIFO,
        weight=7.0,
        strong_guarantee=(None, 300, None, None, None),
        limits=(None, None, None, 5, None),
        integral=IntegralType.RELAXED,
        resource_flow=Resources(cpu=200),
        burst_guarantee=Resources(cpu=400),
        relaxed_share_multiplier_limit=5.0,
        can_accept_free_volume=False,
        distribute_free_volume=True,
        fifo_sort=(FifoSortParameter.PENDING_JOB_COUNT,),
        gang_step_function=False,
        fifo_reordering=False,
        compute_promised_guarantee=True,
        priority_strong_guarantee=True,
        priority_strong_guarantee_donor=True,
        historic_usage_weights=True,
        memory_only=True,
    )

    assert at_default(wanted, model.PoolInput(name="", parent=-1)) == NOT_CONFIGURED
    assert pool_input(pool, 0, tree, memory_only=True) == wanted


def test_every_option_of_the_algorithm_comes_from_the_tree() -> None:
    wanted = model.UpdateOptions(
        sharing=model.Sharing.YARN,
        main_resource=2,
        smooth_period_s=10.0,
        saturation_period_s=3_600.0,
        relaxed_share_multiplier_limit=2.0,
        gang_step_function=True,
        fifo_reordering=True,
        improved=True,
        distribution_gap=True,
        infer_weight_multiplier=4.0,
        distribute_free_volume=True,
        charge_skipped_relaxed_pools=True,
        memory_only=True,
    )

    assert at_default(wanted, model.UpdateOptions()) == set()
    assert tree_options(TREE_ATTRIBUTES.changed(TreeOptions(), OPTIONS).value) == wanted


def at_default(given: msgspec.Struct, default: msgspec.Struct) -> set[str]:
    """Fields by which a case would not tell whether they were passed on."""
    return {name for name in given.__struct_fields__ if getattr(given, name) == getattr(default, name)}
