"""Options in force down a tree: each row of the table of section 4, for pools and for operations."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import PoolName
from headrace.pools import NOTHING, PartialResources, PoolConfig, TreeOptions
from headrace.pools.effective_options import EffectiveOptions, of_operation, of_pool, of_tree
from headrace.pools.pool_config import FifoPoolSchedulingOrder, PreemptionSwitch
from headrace.pools.tree_options import SsdNodes
from headrace.wire.operations import OperationSpec

#: By option: what stands above, what a pool sets, and by its side what an operation sets, with what is in force there.
ONE, TWO = PartialResources(user_slots=1), PartialResources(cpu=200)
THRESHOLD = "non_preemptible_resource_usage_threshold"
REPLACED: list[tuple[str, Any, str, Any]] = [
    ("fair_share_starvation_tolerance", 0.5, "fair_share_starvation_tolerance", 0.9),
    ("fair_share_starvation_timeout_ms", 5, "fair_share_starvation_timeout", 3),
    ("enable_aggressive_starvation", True, "enable_aggressive_starvation", False),
    ("min_share_preemption_timeout_ms", 7, "min_share_preemption_timeout", 9),
    ("allow_aggressive_preemption", False, "allow_aggressive_preemption", True),
    (THRESHOLD, ONE, THRESHOLD, TWO),
    (THRESHOLD, ONE, THRESHOLD, NOTHING),
    ("waiting_for_resources_on_node_timeout_ms", 7, "waiting_for_resources_on_node_timeout", 0),
    ("use_pool_satisfaction_for_scheduling", True, "use_pool_satisfaction_for_scheduling", False),
    ("fifo_pool_scheduling_order", FifoPoolSchedulingOrder.FIFO, "fifo_pool_scheduling_order", "satisfaction"),
    ("preemption", PreemptionSwitch.OFF, "preemption", PreemptionSwitch.OBSERVE),
    ("preemption_exempt_time_ms", 7, "preemption_exempt_time", 9),
    ("preemption_exempt_time_ms", 7, "preemption_exempt_time", 0),
]

#: Elements below such a pool do not use nodes with SSD.
SHY = PoolConfig(allow_regular_allocations_on_ssd_nodes=False)


def spec(**wishes: Any) -> OperationSpec:
    return OperationSpec(PoolName("a"), ["true"], **wishes)


def of(above: EffectiveOptions, tree: TreeOptions | None = None, **wishes: Any) -> EffectiveOptions:
    return of_operation(above, spec(**wishes), tree or TreeOptions())


@pytest.mark.parametrize(("name", "above", "setting", "own"), REPLACED)
def test_a_pool_replaces_what_stands_above_it_either_way(name: str, above: Any, setting: str, own: Any) -> None:
    parent = msgspec.structs.replace(EffectiveOptions(), **{name: above})

    assert getattr(of_pool(parent, PoolConfig(**{setting: own})), name) == own
    assert of_pool(parent, PoolConfig()) == parent


def test_preemption_of_the_normal_stage_is_allowed_only_where_all_above_allow_it() -> None:
    forbidden = of_pool(EffectiveOptions(), PoolConfig(allow_normal_preemption=False))

    assert not forbidden.allow_normal_preemption
    assert not of_pool(forbidden, PoolConfig(allow_normal_preemption=True)).allow_normal_preemption


def test_what_may_pass_limits_is_of_each_element_itself() -> None:
    pool = of_pool(EffectiveOptions(), PoolConfig(resource_limits_overcommit_tolerance=ONE))

    assert pool.resource_limits_overcommit_tolerance == ONE
    assert of_pool(pool, PoolConfig()).resource_limits_overcommit_tolerance == NOTHING


@pytest.mark.parametrize(("own", "expected"), [(None, 0.8), (0.5, 0.5), (0.9, 0.8)])
def test_an_operation_may_lower_its_tolerance(own: float | None, expected: float) -> None:
    assert of(EffectiveOptions(), fair_share_starvation_tolerance=own).fair_share_starvation_tolerance == expected


@pytest.mark.parametrize(("own", "expected"), [(None, 30_000), (10_000, 30_000), (40_000, 40_000)])
def test_an_operation_may_lengthen_its_timeout(own: int | None, expected: int) -> None:
    assert of(EffectiveOptions(), fair_share_starvation_timeout_ms=own).fair_share_starvation_timeout_ms == expected


@pytest.mark.parametrize(
    ("above", "own", "slots", "expected"),
    [
        (NOTHING, NOTHING, None, NOTHING),
        (ONE, NOTHING, None, ONE),
        (ONE, TWO, None, PartialResources(user_slots=1, cpu=200)),
        (TWO, PartialResources(cpu=100), None, PartialResources(cpu=100)),
        (TWO, PartialResources(cpu=300), None, TWO),
        (ONE, NOTHING, 0, PartialResources(user_slots=0)),
        (NOTHING, TWO, 0, PartialResources(user_slots=0, cpu=200)),
        (ONE, ONE, 0, ONE),
    ],
)
def test_an_operation_fills_in_or_lowers_its_threshold_and_cannot_raise_it(
    above: PartialResources, own: PartialResources, slots: int | None, expected: PartialResources
) -> None:
    pool = EffectiveOptions(non_preemptible_resource_usage_threshold=above)
    found = of(pool, non_preemptible_resource_usage_threshold=own, max_unpreemptible_allocation_count=slots)

    assert found.non_preemptible_resource_usage_threshold == expected


@pytest.mark.parametrize(
    ("option", "above", "own"),
    [
        ("waiting_for_resources_on_node_timeout_ms", None, 5),
        ("waiting_for_resources_on_node_timeout_ms", 5, 0),
        ("allocation_preemption_timeout_ms", 10_000, 90_000),
        ("allocation_graceful_preemption_timeout_ms", 60_000, 1),
    ],
)
def test_an_operation_has_times_of_its_own(option: str, above: Any, own: int) -> None:
    pool = msgspec.structs.replace(EffectiveOptions(), **{option: above})

    assert getattr(of(pool, None, **{option: own}), option) == own
    assert of(pool) == pool


def test_a_gang_is_shielded_where_the_tree_says_so() -> None:
    shield = TreeOptions(allow_aggressive_preemption_for_gang_operations=False)
    forbidden = EffectiveOptions(allow_aggressive_preemption=False)

    assert not of(EffectiveOptions(), shield, is_gang=True).allow_aggressive_preemption
    assert of(EffectiveOptions(), shield).allow_aggressive_preemption
    assert of(EffectiveOptions(), is_gang=True).allow_aggressive_preemption
    assert not of(forbidden, is_gang=True).allow_aggressive_preemption


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(NOTHING, PartialResources(user_slots=3)), (ONE, ONE), (TWO, PartialResources(user_slots=3, cpu=200))],
)
def test_the_older_option_of_a_tree_fills_in_slots(threshold: PartialResources, expected: PartialResources) -> None:
    options = TreeOptions(
        non_preemptible_resource_usage_threshold=threshold, max_unpreemptible_running_allocation_count=3
    )

    assert of_tree(options).non_preemptible_resource_usage_threshold == expected


def test_the_root_has_what_its_tree_says() -> None:
    options = TreeOptions(
        fair_share_starvation_timeout=1, preemption=PreemptionSwitch.OFF, allocation_preemption_timeout=2
    )

    root = of_tree(options)
    assert (root.fair_share_starvation_timeout_ms, root.preemption) == (1, PreemptionSwitch.OFF)
    assert root.allocation_preemption_timeout_ms == 2
    assert of_tree(TreeOptions()) == EffectiveOptions()


def test_a_pool_that_leaves_nodes_with_ssd_alone_does_so_for_all_below_it_that_say_nothing_else() -> None:
    ssd = SsdNodes(enable=True, node_tag_filter="ssd | nvme")
    shy = of_pool(EffectiveOptions(scheduling_tag_filters=("big",)), SHY, ssd)

    assert shy.scheduling_tag_filters == ("big", "!(ssd | nvme)")
    assert of_pool(shy, PoolConfig(), ssd) == shy
    assert of_pool(shy, PoolConfig(allow_regular_allocations_on_ssd_nodes=True), ssd).scheduling_tag_filters == ("big",)
    assert of_pool(EffectiveOptions(), SHY, SsdNodes(node_tag_filter="ssd")) == EffectiveOptions()
