"""Each field of the algorithm's input comes from the configuration: none stays as it is by default where everything is set."""

from __future__ import annotations

import msgspec

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, Pool, PoolConfig, PoolTree, Tree, TreeOptions
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


def at_default(given: msgspec.Struct, default: msgspec.Struct) -> set[str]:
    return {name for name in given.__struct_fields__ if getattr(given, name) == getattr(default, name)}


def test_every_field_of_a_pool_comes_from_its_settings() -> None:
    above = Pool(PoolName("above"), ROOT_POOL)
    pool = Pool(PoolName("a"), above.name, POOL_ATTRIBUTES.changed(PoolConfig(), SETTINGS).value)
    tree = PoolTree(Tree(TreeName("default"), [above, pool]))

    given = pool_input(pool, 0, tree)

    assert at_default(given, model.PoolInput(name="", parent=-1)) == NOT_CONFIGURED


def test_every_option_of_the_algorithm_comes_from_the_tree() -> None:
    given = tree_options(TREE_ATTRIBUTES.changed(TreeOptions(), OPTIONS).value)

    assert at_default(given, model.TreeOptions()) == set()
