"""Every attribute of a pool reaches what it is for: set on a small tree, it changes the figure or the decision that is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headrace.ids import PoolName
from headrace.pools import (
    POOL_ATTRIBUTES,
    TREE_ATTRIBUTES,
    Person,
    PoolTree,
    Record,
    Schema,
    Support,
    read_tree,
    write_tree,
)
from headrace.resources import ZERO
from headrace.wire.snapshots import StarvationStatus
from headrace_admission.state.rules import GlobalRules
from headrace_fair_share.configuration.change_decisions import Change, TreeConfiguration
from tests.support.fair_share import set_pool, stored
from tests.support.offered import first_starts, offered
from tests.support.small_trees import GIB, TREE, Work, a_tree, clocks, in_force, saved, savings, shares
from tests.support.taken_back import groups_on_a_full_node, on_a_full_node
from tests.support.yarn_course import Comer, course
from tests.unit.admission.desk import Desk, oid

Settings = dict[str, Any]
#: By attribute: a value that is not the default, and the figure that follows from the settings of pool `a`.
CASES: dict[str, tuple[Any, Callable[[Settings], object]]] = {}


def case(name: str, value: Any) -> Callable[[Callable[[Settings], object]], Callable[[Settings], object]]:
    """The function after it is the figure for an attribute, with this value or without."""

    def added(figure: Callable[[Settings], object]) -> Callable[[Settings], object]:
        CASES[name] = (value, figure)
        return figure

    return added


@pytest.mark.parametrize("name", sorted(in_force(POOL_ATTRIBUTES)))
def test_a_pool_attribute_changes_the_figure_that_it_is_for(name: str) -> None:
    value, figure = CASES[name]

    assert figure({name: value}) != figure({})


def test_no_figure_is_named_for_an_attribute_that_is_not_in_force() -> None:
    assert set(CASES) == in_force(POOL_ATTRIBUTES)


@pytest.mark.parametrize("schema", [POOL_ATTRIBUTES, TREE_ATTRIBUTES])
def test_exactly_the_attributes_that_are_not_supported_have_a_reason(schema: Schema) -> None:
    attributes = [*schema.attributes.values()]
    attributes += [part for each in attributes if isinstance(each.kind, Record) for part in each.kind.parts()]
    absent = [each.name for each in attributes if each.support is Support.ABSENT]

    assert absent
    assert absent == [each.name for each in attributes if each.reason]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("redirect_to_cluster", "other", "operations run in this cluster only, in the trees that they name"),
        (
            "enable_priority_scheduling_segment_module_assignment",
            True,
            "nodes have no data centres and network modules, so there are no segments",
        ),
    ],
)
def test_an_attribute_that_is_not_supported_is_stored_and_said_to_be_ignored(
    name: str, value: object, words: str
) -> None:
    configuration = TreeConfiguration(TREE)
    configuration.on_stored(stored(a_tree({"a": {}}, {}), 1))
    request = set_pool("a", msgspec.json.encode({name: value}))

    change = configuration.decide(request, {}, ADMINISTRATOR, ZERO)

    assert isinstance(change, Change)
    assert change.plan.warnings == [f"{name} of a: not supported: {words}"]
    configuration.on_stored(stored(read_tree(write_tree(change.tree)), 2))
    assert configuration.alerts() == change.plan.warnings


@case("allow_preemption_from", False)
def taken_under_a_yarn_policy(settings: Settings) -> list[tuple[int, str]]:
    comers = [Comer("x", "a", 12), Comer("z", "b", 12, at_s=5)]
    return course({"a": settings, "b": {}}, comers, seconds=20).losers


# --- shares ---------------------------------------------------------------------------------------------------------------


def two_pools(settings: Settings) -> float:
    """The part of pool `a`, beside one like it that wants everything too."""
    work = [Work("x", "a", 100), Work("y", "b", 100)]
    return shares({"a": settings, "b": {}}, work)["a"].fair_share.total[1]


case("weight", 3)(two_pools)
case("strong_guarantee_resources", {"cpu": 80})(two_pools)
case("resource_limits", {"cpu": 10})(two_pools)
case("max_share_ratio", 0.1)(two_pools)


@case("mode", "fifo")
def part_of_the_second(settings: Settings) -> float:
    return shares({"a": settings}, [Work("x", "a", 80), Work("y", "a", 80, started_at_ms=2)])["y"].fair_share.total[1]


@case("fifo_sort_parameters", ["pending_job_count"])
def place_of_the_second(settings: Settings) -> int | None:
    work = [Work("x", "a", 80), Work("y", "a", 20, started_at_ms=2)]
    return shares({"a": {"mode": "fifo"} | settings}, work)["y"].fifo_index


@case("compute_promised_guarantee_fair_share", True)
def promised(settings: Settings) -> float:
    pool = {"strong_guarantee_resources": {"cpu": 40}} | settings
    return shares({"a": pool}, [Work("x", "a", 100)])["a"].promised_fair_share[1]


def priority(donor: Settings, child: Settings) -> float:
    """The guarantee in force of a child in a tree that promises more than there is."""
    strong = "strong_guarantee_resources"
    pools = {
        "other": {strong: {"cpu": 100}},
        "donor": {strong: {"cpu": 100}} | donor,
        "child": {"parent": "donor", strong: {"cpu": 40}} | child,
        "sibling": {"parent": "donor", strong: {"cpu": 60}},
    }
    return round(shares(pools, [Work("x", "child", 100)])["child"].strong_guarantee_share[1], 6)


@case("enable_priority_strong_guarantee_adjustment", True)
def guarantee_of_a_child_of_a_donor(settings: Settings) -> float:
    return priority({"enable_priority_strong_guarantee_adjustment_donorship": True}, settings)


@case("enable_priority_strong_guarantee_adjustment_donorship", True)
def guarantee_of_a_child_with_priority(settings: Settings) -> float:
    return priority(settings, {"enable_priority_strong_guarantee_adjustment": True})


@case("enable_step_function_for_gang_operations", False)
def part_of_a_gang_that_does_not_fit(settings: Settings) -> float:
    work = [Work("gang", "a", 80, gang=True), Work("y", "b", 100)]
    options = {"enable_step_function_for_gang_operations": True}
    return shares({"a": settings, "b": {}}, work, options)["gang"].fair_share.total[1]


@case("max_schedulable_element_count_in_fifo_pool", 1)
def who_takes_part_in_a_fifo_pool(settings: Settings) -> list[bool]:
    work = [Work(name, "a", 200, started_at_ms=at) for at, name in enumerate(("owed", "first", "second"))]
    items = shares({"a": {"mode": "fifo"} | settings}, work)
    return [items[one.name].schedulable for one in work]


@case("enable_fifo_children_reordering_for_guarantee_utilization", False)
def order_of_a_fifo_pool(settings: Settings) -> list[int | None]:
    pool = {"mode": "fifo", "strong_guarantee_resources": {"cpu": 40}} | settings
    work = [Work("x", "a", 30), Work("gang", "a", 30, gang=True, started_at_ms=2), Work("z", "a", 10, started_at_ms=3)]
    options = {
        "enable_step_function_for_gang_operations": True,
        "enable_fifo_children_reordering_for_guarantee_utilization": True,
    }
    items = shares({"a": pool}, work, options)
    return [items[name].effective_fifo_index for name in ("x", "gang", "z")]


def weight_of_a_heavy_user(settings: Settings) -> float:
    work = [Work("x", "a", 100, running=90), Work("y", "a", 100, running=10)]
    return shares({"a": settings}, work, after_s=3_600.0)["x"].weight


case("infer_children_weights_from_historic_usage", True)(weight_of_a_heavy_user)


@case("yarn_memory_only", True)
def share_of_cores_in_a_yarn_tree(settings: Settings) -> float:
    work = [Work(name, "a", jobs, memory=GIB) for name, jobs in (("x", 20), ("y", 80))]
    return shares({"a": settings}, work, {"preemption_policy": "yarn"})["x"].fair_share.total[1]


@case("historic_usage_aggregation_period", "10m")
def weight_by_a_period(settings: Settings) -> float:
    return weight_of_a_heavy_user({"infer_children_weights_from_historic_usage": True} | settings)


# --- savings --------------------------------------------------------------------------------------------------------------

INTEGRAL = "integral_guarantees/"
TYPE, FLOW, BURST = INTEGRAL + "guarantee_type", INTEGRAL + "resource_flow", INTEGRAL + "burst_guarantee_resources"


@case(TYPE, "relaxed")
def saved_by_type(settings: Settings) -> float:
    return savings(saved({"a": {FLOW: {"cpu": 10}} | settings}, 600), "a")


@case(FLOW, {"cpu": 20})
def saved_by_flow(settings: Settings) -> float:
    return savings(saved({"a": {TYPE: "relaxed"} | settings}, 600), "a")


def granted(a: Settings, **options: Any) -> float:
    """The part of its share that pool `a` has from its savings, beside one that wants everything too."""
    tree = saved({"a": a, "b": {}}, 3_600, {"a": 100, "b": 100}, options)
    return round(tree.points()[PoolName("a")].integral_part, 3)


@case(BURST, {"cpu": 70})
def granted_by_burst(settings: Settings) -> float:
    return granted({TYPE: "burst", FLOW: {"cpu": 10}} | settings)


@case(INTEGRAL + "relaxed_share_multiplier_limit", 6)
def granted_by_multiplier(settings: Settings) -> float:
    return granted({TYPE: "relaxed", FLOW: {"cpu": 10}} | settings)


def overflow(parent: Settings, sibling: Settings, **options: Any) -> float:
    """The savings of a pool that spends while a sibling of it is full."""
    pools = {
        "p": {FLOW: {"cpu": 20}} | parent,
        "full": {"parent": "p", TYPE: "relaxed", FLOW: {"cpu": 10}},
        "spender": {"parent": "p", TYPE: "relaxed", FLOW: {"cpu": 10}} | sibling,
    }
    saturation = {
        "integral_guarantees/pool_capacity_saturation_period": "1m",
        "integral_guarantees/smooth_period": "5s",
    }
    return savings(saved(pools, 600, {"spender": 100}, saturation | options, (10, 10, 10)), "spender")


DISTRIBUTES = INTEGRAL + "should_distribute_free_volume_among_children"


@case(DISTRIBUTES, True)
def savings_below_a_pool_that_hands_on(settings: Settings) -> float:
    return overflow(settings, {})


@case(INTEGRAL + "can_accept_free_volume", False)
def savings_of_a_pool_that_accepts(settings: Settings) -> float:
    return overflow({DISTRIBUTES: True}, settings)


# --- starvation -----------------------------------------------------------------------------------------------------------


def starvation(settings: Settings, after_s: float, running: int = 0) -> StarvationStatus:
    return clocks("x", {"a": settings}, [Work("x", "a", 200, running=running), Work("y", "a", 200)], {}, after_s)


@case("fair_share_starvation_timeout", "1s")
def starvation_after_a_few_seconds(settings: Settings) -> StarvationStatus:
    return starvation(settings, 5)


@case("fair_share_starvation_tolerance", 1)
def starvation_with_nearly_all(settings: Settings) -> StarvationStatus:
    return starvation(settings, 40, running=45)


@case("enable_aggressive_starvation", True)
def starvation_after_long(settings: Settings) -> StarvationStatus:
    return starvation(settings, 200)


@case("min_share_preemption_timeout", "1s")
def starvation_with_most_of_its_guarantee(settings: Settings) -> StarvationStatus:
    pool = {"strong_guarantee_resources": {"cpu": 50}, "fair_share_starvation_tolerance": 0.5}
    return clocks("/a", {"a": pool | settings}, [Work("x", "a", 100, running=40)], {}, 5)


# --- admission ------------------------------------------------------------------------------------------------------------


def ended(pools: dict[str, Settings], *starts: dict[str, Any], **options: Any) -> list[tuple[str, str]]:
    """Kinds of answers to starts one after the other, and what the operations came to."""
    desk = Desk(pools, everywhere=GlobalRules(administrators=frozenset({"root"})), **options)
    answers = [desk.start(str(number), **{"pool": "a"} | start) for number, start in enumerate(starts)]
    return [
        (type(answer).__name__, f"{getattr(answer, 'state', '')} {getattr(answer, 'pool', '')}") for answer in answers
    ]


@case("max_operation_count", 1)
def two_operations(settings: Settings) -> object:
    return ended({"a": settings}, {}, {})


case("max_running_operation_count", 1)(two_operations)
case("forbid_immediate_operations", True)(two_operations)
case("create_ephemeral_subpools", True)(two_operations)


@case("enable_lightweight_operations", True)
def two_operations_of_a_fifo_pool(settings: Settings) -> object:
    return ended({"a": {"mode": "fifo", "max_running_operation_count": 1} | settings}, {}, {})


@case("always_allow_gang_operations", True)
def a_gang_where_only_fifo_pools_may_have_one(settings: Settings) -> object:
    return ended({"a": settings}, {"is_gang": True}, allow_gang_operations_only_in_fifo_pools=True)


def time_limits(settings: Settings, start: dict[str, Any]) -> object:
    """The time limits of an operation that is started in the pool, or the refusal."""
    desk = Desk({"a": settings})
    answer = desk.start("one", "a", **start)
    known = desk.state.operations.get(oid("one"))
    return answer if known is None else (known.spec.time_limit_ms, known.spec.operation_time_limit_ms)


for name in ("default_time_limit", "default_operation_time_limit"):
    case(name, "7s")(lambda settings: time_limits(settings, {}))


@case("max_time_limit", "7s")
def a_long_job(settings: Settings) -> object:
    return time_limits(settings, {"time_limit_ms": 8_000})


@case("max_operation_time_limit", "7s")
def a_long_operation(settings: Settings) -> object:
    return time_limits(settings, {"operation_time_limit_ms": 8_000})


def a_job_of_one_core(settings: Settings) -> object:
    return ended({"a": settings}, {}, {})


case("min_job_resource_limits", {"cpu": 2})(a_job_of_one_core)
case("max_job_resource_limits", {"cpu": 0.5})(a_job_of_one_core)


@case("access/use", ["boris"])
def an_operation_of_a_stranger(settings: Settings) -> object:
    return ended({"a": settings}, {}, {"user": "boris"})


def subpool(settings: Settings, *starts: dict[str, Any]) -> object:
    """Operations in a hub, and the pool that they made."""
    desk = Desk({"a": {"create_ephemeral_subpools": True} | settings})
    states = [type(desk.start(str(number), "a")).__name__ for number in range(2)]
    return states, desk.running(), [tree.pools for tree in desk.state.ephemeral_pools()]


for setting, small in (
    ("mode", "fifo"),
    ("max_operation_count", 1),
    ("max_running_operation_count", 1),
    ("resource_limits", {"cpu": 5}),
):
    case(f"ephemeral_subpool_config/{setting}", small)(subpool)


# --- the order of allocation ----------------------------------------------------------------------------------------------


def starts(settings: Settings) -> list[str]:
    """Who gets room: two small operations of `a`, one of which runs already, beside a large one of `b`."""
    work = [Work("x", "a", 2), Work("y", "a", 2, started_at_ms=2), Work("z", "b", 100)]
    return offered({"a": settings | {"weight": 1}, "b": {"weight": 2}}, work)


case("use_pool_satisfaction_for_scheduling", True)(starts)
case("scheduling_tag_filter", "gpu")(starts)


@case("allow_regular_allocations_on_ssd_nodes", False)
def starts_on_a_node_with_ssd(settings: Settings) -> list[str]:
    ssd = {"ssd_priority_preemption": {"enable": True, "node_tag_filter": "!hdd"}}
    return offered({"a": settings}, [Work("x", "a", 1)], ssd)


@case("waiting_for_resources_on_node_timeout", "7s")
def waits_on_the_node_for_ms(settings: Settings) -> int | None:
    return first_starts({"a": settings}, [Work("x", "a", 1)])[0].waiting_timeout_ms


@case("fifo_pool_scheduling_order", "fifo")
def starts_in_a_fifo_pool(settings: Settings) -> list[str]:
    return offered({"a": {"mode": "fifo"} | settings}, [Work("x", "a", 80), Work("y", "a", 80, started_at_ms=2)])


# --- rights and presets ---------------------------------------------------------------------------------------------------

ADMINISTRATOR = Person("root", administrator=True)
BORIS = Person("boris", administrator=False)


@case("access/manage", ["boris"])
def an_abort_by_another_user(settings: Settings) -> object:
    desk = Desk({"a": settings}, everywhere=GlobalRules(administrators=frozenset({"root"})))
    desk.started("one", pool="a")
    return type(desk.update("one", user="boris", weight=2.0)).__name__


def decided(settings: Settings, attributes: Settings) -> str:
    configuration = TreeConfiguration(TREE)
    configuration.on_stored(stored(a_tree({"a": settings}, {}), 1))
    return type(configuration.decide(set_pool("a", msgspec.json.encode(attributes)), {}, BORIS, ZERO)).__name__


@case("access/write", ["boris"])
def a_change_by_a_user(settings: Settings) -> str:
    return decided(settings, {"weight": 2})


@case("access/administer", ["boris"])
def a_change_of_what_is_for_administrators(settings: Settings) -> str:
    return decided(settings, {"enable_aggressive_starvation": True})


def with_presets(settings: Settings) -> float | None:
    presets = {"patient": {"fair_share_starvation_tolerance": 0.5}}
    tree = PoolTree(a_tree({"a": settings}, {"pool_config_presets": presets}))
    return tree.settings(PoolName("a")).fair_share_starvation_tolerance


case("config_presets", ["patient"])(with_presets)
case("config_preset", "patient")(with_presets)


# --- preemption -----------------------------------------------------------------------------------------------------------


@case("preemption", "off")
@case("preemption_exempt_time", "1m")
@case("allow_normal_preemption", False)
def taken(settings: Settings) -> list[str]:
    return [one.allocation for one in on_a_full_node(pool=settings).next_beat().take_back]


@case("allow_aggressive_preemption", False)
def taken_by_one_that_starves_aggressively(settings: Settings) -> list[str]:
    return [one.allocation for one in on_a_full_node(pool=settings, owed=4, aggressive=True).next_beat().take_back]


@case("non_preemptible_resource_usage_threshold", {"user_slots": 3})
def groups(settings: Settings) -> list[int]:
    return groups_on_a_full_node({}, pool=settings)


@case("resource_limits_overcommit_tolerance", {"cpu": 1})
def starts_through_preemption_in_a_full_pool(settings: Settings) -> list[str]:
    host = on_a_full_node(pool={"resource_limits": {"cpu": 4}} | settings)
    return [one.operation for one in host.next_beat().start]
