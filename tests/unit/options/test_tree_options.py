"""Every option of a tree reaches what it is for: set on a small tree, it changes the figure or the decision that is named."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from random import Random
from typing import Any

import msgspec
import pytest

from headrace.client.consumption import Consumed
from headrace.consumption_sums import By
from headrace.ids import ROOT_POOL, NodeName, PoolName, TreeName
from headrace.pools import TREE_ATTRIBUTES, Person, Pool, TreeOptions
from headrace.resources import ZERO, Resources
from headrace.wire.consumption import RunSums
from headrace.wire.nodes import NodeRecord
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.pool_changes import ChangePools, SetOptions
from headrace.wire.snapshots import DetailedShare, PreemptionPriority, StarvationStatus
from headrace_admission.state.rules import GlobalRules
from headrace_cli.commands.usage.tables import Shown, cost_of, usage_table
from headrace_fair_share.configuration.change_decisions import Change, TreeConfiguration
from headrace_fair_share.facts.pool_inputs import tree_options
from tests.support.allocating import Desk as AllocatorDesk
from tests.support.allocating import an_operation, cores
from tests.support.clocks import at
from tests.support.distribution_gap import share_of_a_gang_in_a_pool_that_is_short_by
from tests.support.failing_fleet import FailingFleet
from tests.support.fair_share import set_pool, stored
from tests.support.gang_fleet import gangs_that_take_turns
from tests.support.offered import first_starts, offered
from tests.support.preempting import Fleet
from tests.support.small_trees import GIB, TREE, SmallTree, Work, a_tree, clocks, in_force, saved, savings, shares
from tests.support.streams import LARGE, StreamFleet
from tests.support.taken_back import groups_on_a_full_node, on_a_full_node, taken_back, taken_for_a_large_job
from tests.support.yarn_course import Comer, course
from tests.unit.admission.desk import Desk, oid

Options = dict[str, Any]
AN_HOUR = RunSums(1, 0, 3600.0, 3600.0 * GIB, 3600.0)
#: By option: a value that is not the default, and the figure that follows from the options of a tree.
CASES: dict[str, tuple[Any, Callable[[Options], object]]] = {}


def case(name: str, value: Any) -> Callable[[Callable[[Options], object]], Callable[[Options], object]]:
    """The function after it is the figure for an option, with this value or without."""

    def added(figure: Callable[[Options], object]) -> Callable[[Options], object]:
        CASES[name] = (value, figure)
        return figure

    return added


@case("prices/cpu", 0.02)
@case("prices/memory", 0.01)
@case("prices/gpu", 2)
def costs_of_an_hour(options: Options) -> object:
    return cost_of(AN_HOUR, TREE_ATTRIBUTES.changed(TreeOptions(), options).value.prices)


@case("prices/currency", "EUR")
def heads_of_usage(options: Options) -> object:
    prices = TREE_ATTRIBUTES.changed(TreeOptions(), options).value.prices
    shown = Shown(Consumed(date.min, date.max, []), (By.USER,), "cpu", prices)
    return [column.header for column in usage_table(shown, ascii_only=True).columns]


@pytest.mark.parametrize("name", sorted(in_force(TREE_ATTRIBUTES)))
def test_an_option_of_a_tree_changes_the_figure_that_it_is_for(name: str) -> None:
    value, figure = CASES[name]

    assert figure({name: value}) != figure({})


def test_no_figure_is_named_for_an_option_that_is_not_in_force() -> None:
    assert set(CASES) == in_force(TREE_ATTRIBUTES)


def test_options_that_are_not_supported_are_said_to_be_ignored() -> None:
    configuration = TreeConfiguration(TREE)
    configuration.on_stored(stored(a_tree({}, {}), 1))
    unbuilt = {"tentative_tree_saturation_deactivation_period": 5, "packing": {"enable": True}}
    options = msgspec.json.encode(unbuilt | {"min_child_heap_size": 3, "metering_tags": {"a": "b"}})

    change = configuration.decide(ChangePools([SetOptions(options)]), {}, Person("root", administrator=True), ZERO)

    assert isinstance(change, Change)
    assert change.plan.warnings == [
        "packing: not supported: free resources of a node go to the next operation that fits, however that fills the node",
        "tentative_tree_saturation_deactivation_period: not supported: the speed of jobs in a tentative tree is not judged",
    ]
    configuration.on_written([change], 2)
    assert configuration.alerts() == change.plan.warnings


def test_placement_rules_that_lead_nowhere_yet_are_told() -> None:
    configuration = TreeConfiguration(TREE)
    rules = ["primary_group existing", "nested_user default a", "nested_user default hub", "default b"]
    pools = {"a": {}, "hub": {"create_ephemeral_subpools": True}}
    configuration.on_stored(stored(a_tree(pools, {"placement_rules": rules}), 1))

    assert configuration.alerts() == [
        "placement_rules: nested_user default a places no user without a configured pool: a does not set "
        "create_ephemeral_subpools",
        "placement_rules: there is no pool b for default b; it is made as an ephemeral pool for the first operation there",
    ]


@pytest.mark.parametrize(
    "options", [{}, {"yarn/memory_only": True}, {"preemption_policy": "yarn", "yarn/share": "native"}]
)
def test_what_acts_on_the_shares_of_yarn_alone_is_told_where_there_are_none(options: Options) -> None:
    configuration = TreeConfiguration(TREE)
    configuration.on_stored(stored(a_tree({"a": {"yarn_memory_only": True}}, options), 1))

    (told,) = [words for words in configuration.alerts() if "memory_only" in words]
    assert told == (
        ("yarn/memory_only, " if "yarn/memory_only" in options else "")
        + "yarn_memory_only of a has no effect: it acts on shares that are divided as in YARN, and this tree divides them "
        "natively"
    )


@pytest.mark.parametrize("policy", ["yarn", "yarn_legacy"])
def test_a_yarn_policy_that_is_not_enabled_is_said_to_take_nothing(policy: str) -> None:
    configuration = TreeConfiguration(TREE)
    configuration.on_stored(stored(a_tree({}, {"preemption_policy": policy, "yarn/memory_only": True}), 1))

    assert configuration.alerts() == [
        f"preemption_policy {policy}: nothing is preempted until yarn/enabled is true",
    ]


# --- shares ---------------------------------------------------------------------------------------------------------------

STRONG = "strong_guarantee_resources"


@case("fair_share_update_period", "30s")
def seconds_between_updates(options: Options) -> float:
    tree = SmallTree({"a": {}}, [Work("x", "a", 100)], options)
    tree.update()
    return round(tree.engine.seconds_until_update(at(0.0)))


@case("main_resource", "memory")
def inferred_guarantee(options: Options) -> float:
    """Of a resource of which the pool has no figure."""
    pool = {STRONG: {"cpu": 40, "memory": 10 * GIB}}
    return shares({"a": pool}, [Work("x", "a", 100)], options)["a"].strong_guarantee_share[2]


@case("infer_weight_from_guarantees_share_multiplier", 10)
def weight(options: Options) -> float:
    return shares({"a": {STRONG: {"cpu": 40}}, "b": {}}, [Work("x", "a", 100)], options)["a"].weight


@case("enable_step_function_for_gang_operations", True)
def part_of_a_gang_that_does_not_fit(options: Options) -> float:
    work = [Work("gang", "a", 80, gang=True), Work("y", "b", 100)]
    return shares({"a": {}, "b": {}}, work, options)["gang"].fair_share.total[1]


@case("enable_fifo_children_reordering_for_guarantee_utilization", True)
def order_of_a_fifo_pool(options: Options) -> list[int | None]:
    pool = {"mode": "fifo", STRONG: {"cpu": 40}}
    work = [Work("x", "a", 30), Work("gang", "a", 30, gang=True, started_at_ms=2), Work("z", "a", 10, started_at_ms=3)]
    items = shares({"a": pool}, work, {"enable_step_function_for_gang_operations": True} | options)
    return [items[name].effective_fifo_index for name in ("x", "gang", "z")]


def two_gangs(options: Options) -> list[float]:
    """Shares in a pool of two gangs of which only one fits."""
    work = [Work("x", "a", 60, gang=True), Work("y", "a", 60, gang=True, started_at_ms=2)]
    items = shares({"a": {}}, work, {"enable_step_function_for_gang_operations": True} | options)
    return [items[name].fair_share.total[1] for name in ("x", "y")]


case("enable_improved_fair_share_by_fit_factor_computation", True)(two_gangs)


@case("enable_improved_fair_share_by_fit_factor_computation_distribution_gap", True)
def part_of_a_gang_that_fits_but_for_rounding(options: Options) -> float:
    improved = {
        "enable_step_function_for_gang_operations": True,
        "enable_improved_fair_share_by_fit_factor_computation": True,
    }
    read = tree_options(a_tree({}, improved | options).options)
    return share_of_a_gang_in_a_pool_that_is_short_by(5e-10, read)


@case("max_schedulable_element_count_in_fifo_pool", 2)
def who_takes_part_in_a_fifo_pool(options: Options) -> list[bool]:
    work = [Work(name, "a", 200, started_at_ms=at) for at, name in enumerate(("owed", "first", "second"))]
    items = shares({"a": {"mode": "fifo"}}, work, options)
    return [items[one.name].schedulable for one in work]


def share_of_a_pool_that_wants_little(options: Options) -> float:
    work = [Work("x", "a", 10), Work("y", "b", 200)]
    return shares({"a": {}, "b": {}}, work, options)["a"].fair_share.total[1]


case("preemption_policy", "yarn")(share_of_a_pool_that_wants_little)


@case("yarn/share", "native")
def share_in_a_yarn_tree(options: Options) -> float:
    return share_of_a_pool_that_wants_little({"preemption_policy": "yarn"} | options)


@case("yarn/memory_only", True)
def share_of_cores_by_a_guarantee_of_cores(options: Options) -> float:
    pools = {"a": {STRONG: {"cpu": 30, "memory": 0}}, "b": {}}
    work = [Work(name, name, 100, memory=GIB) for name in "ab"]
    return shares(pools, work, {"preemption_policy": "yarn"} | options)["b"].fair_share.total[1]


# --- YARN's policies ------------------------------------------------------------------------------------------------------

FULL = [Comer("x", "a", 12), Comer("z", "b", 12, at_s=5)]


@case("yarn/enabled", True)
def taken_under_a_yarn_policy(options: Options) -> list[tuple[int, str]]:
    return course({"a": {}, "b": {}}, FULL, {"yarn/enabled": False} | options).losers


@case("yarn/cluster_utilization_threshold", 1)
def taken_in_a_full_cluster(options: Options) -> list[tuple[int, str]]:
    return course({"a": {}, "b": {}}, FULL, options).losers


@case("yarn/wait_before_kill", "5s")
def gets_to_make_room_under_a_yarn_policy_ms(options: Options) -> list[int | None]:
    return [order.timeout_ms for _, _, order in course({"a": {}, "b": {}}, FULL, options).taken]


@case("yarn/heartbeat_allowance", "20s")
@case("yarn/wait_before_next_check", "1s")
def how_often_preemption_looks_for_room(options: Options) -> int:
    held = {"a": {"allow_preemption_from": False}, "b": {}}
    return course(held, FULL, options, seconds=80).fleet.operation("z").times_seen_to


@case("yarn/legacy_interval", "40s")
def taken_by_rounds(options: Options) -> list[tuple[int, str]]:
    return course({"a": {}, "b": {}}, FULL, {"preemption_policy": "yarn_legacy"} | options).losers


@case("yarn/min_share_spread", "yarn")
def due_to_the_last_that_is_served(options: Options) -> list[object]:
    pools: dict[str, Any] = {"a": {}, "b": {STRONG: {"cpu": 60, "memory": "60G"}}}
    work = [
        Work("x", "a", 100, running=100, memory=GIB),
        Work("y", "b", 40, memory=GIB),
        Work("z", "b", 30, memory=GIB),
    ]
    never = dict.fromkeys(("fair_share_starvation_timeout", "fair_share_aggressive_starvation_timeout"), "10000d")
    never["min_share_preemption_timeout"] = "0s"
    items = shares(pools, work, {"preemption_policy": "yarn", "yarn/enabled": True} | never | options, 1)
    return [items[name].due_to_min_share for name in ("y", "z")]


@case("yarn/older_release", True)
def due_to_a_queue_with_a_guarantee_of_more_memory_than_it_wants(options: Options) -> list[object]:
    pools: dict[str, Any] = {"a": {}, "b": {STRONG: {"cpu": 5, "memory": "60G"}}}
    work = [Work("x", "a", 100, running=100, memory=GIB), Work("y", "b", 40, memory=GIB)]
    legacy = {"preemption_policy": "yarn_legacy", "yarn/enabled": True, "min_share_preemption_timeout": "0s"}
    return [shares(pools, work, legacy | options, 1)["b"].due_to_min_share]


@case("yarn/drf_needy_quirk", True)
def warned_of_two_queues(options: Options) -> set[str]:
    pools: dict[str, Any] = {"a": {STRONG: {"cpu": 4}}, "b": {"weight": 0.4}, "c": {}}
    comers = [Comer("x", "a", 9), Comer("y", "b", 3), Comer("z", "c", 1, at_s=5)]
    legacy = {"preemption_policy": "yarn_legacy", "yarn/wait_before_kill": 0}
    return {name for _, name in course(pools, comers, legacy | options, seconds=30).losers}


# --- savings --------------------------------------------------------------------------------------------------------------

INTEGRAL = "integral_guarantees/"
RELAXED = {INTEGRAL + "guarantee_type": "relaxed", INTEGRAL + "resource_flow": {"cpu": 10}}


@case(INTEGRAL + "pool_capacity_saturation_period", "1m")
def saved_in_ten_minutes(options: Options) -> float:
    return savings(saved({"a": RELAXED}, 600, options=options), "a")


def granted(idle_s: int, options: Options) -> float:
    """The part of its share that a relaxed pool has from its savings, beside one that wants everything too."""
    tree = saved({"a": RELAXED, "b": {}}, idle_s, {"a": 100, "b": 100}, options)
    return round(tree.points()[PoolName("a")].integral_part, 3)


@case(INTEGRAL + "smooth_period", "10m")
def granted_of_little(options: Options) -> float:
    return granted(60, options)


@case(INTEGRAL + "relaxed_share_multiplier_limit", 6)
def granted_of_much(options: Options) -> float:
    return granted(3_600, options)


@case("should_distribute_free_volume_among_children", True)
def savings_beside_a_full_pool(options: Options) -> float:
    pools: dict[str, Any] = {
        "p": {INTEGRAL + "resource_flow": {"cpu": 20}},
        "full": {"parent": "p"} | RELAXED,
        "spender": {"parent": "p"} | RELAXED,
    }
    saturation = {INTEGRAL + "pool_capacity_saturation_period": "1m", INTEGRAL + "smooth_period": "5s"}
    return savings(saved(pools, 600, {"spender": 100}, saturation | options, (10, 10, 10)), "spender")


@case("charge_skipped_relaxed_pools", True)
def savings_after_they_were_used_up_at_once(options: Options) -> float:
    tree = saved({"a": RELAXED, "b": {}}, 120, {"a": 100, "b": 100}, options, (1, 120, 60, 60))
    return savings(tree, "a")


# --- starvation -----------------------------------------------------------------------------------------------------------


def starvation(key: str, options: Options, after_s: float, running: int = 0) -> StarvationStatus:
    work = [Work("x", "a", 200, running=running), Work("y", "a", 200, running=running)]
    return clocks(key, {"a": {}, "b": {}}, [*work, Work("z", "b", 200, running=2 * running)], options, after_s)


@case("fair_share_starvation_timeout", "1s")
def starvation_after_a_few_seconds(options: Options) -> StarvationStatus:
    return starvation("x", options, 5)


@case("fair_share_aggressive_starvation_timeout", "40s")
def aggressive_starvation_after_a_minute(options: Options) -> StarvationStatus:
    return starvation("x", {"enable_aggressive_starvation": True} | options, 60)


@case("fair_share_starvation_tolerance", 1)
def starvation_with_nearly_all(options: Options) -> StarvationStatus:
    return starvation("x", options, 40, running=23)


@case("enable_aggressive_starvation", True)
def starvation_after_long(options: Options) -> StarvationStatus:
    return starvation("x", options, 200)


SHORT = {"strong_guarantee_resources": {"cpu": 50}, "fair_share_starvation_tolerance": 0.5}


@case("min_share_preemption_timeout", "1s")
def starvation_of_a_pool_that_has_most_of_its_guarantee(options: Options) -> StarvationStatus:
    return clocks("/a", {"a": SHORT}, [Work("x", "a", 100, running=40)], options, 5)


@case("allocation_count_preemption_timeout_coefficient", 10)
def starvation_with_little_to_do(options: Options) -> StarvationStatus:
    return clocks("x", {"a": {}}, [Work("x", "a", 1)], options, 10)


@case("enable_absolute_fair_share_starvation_tolerance", True)
def starvation_for_less_than_a_job(options: Options) -> StarvationStatus:
    work = [Work(name, "a", 100, running=33) for name in ("x", "y", "z")]
    return clocks("x", {"a": {}}, work, {"fair_share_starvation_tolerance": 1} | options, 40)


@case("scheduling_preemption_priority_scope", "operation_only")
def priority_in_a_starving_pool(options: Options) -> PreemptionPriority:
    return shares({"a": {}, "b": {}}, IMPROPER, options, 60)["fed"].preemption_priority


#: Pool `a` starves, and one of its operations has what it is owed.
IMPROPER = [Work("fed", "a", 100, running=25), Work("hungry", "a", 100), Work("other", "b", 200, running=75)]


@case("enable_pool_starvation", False)
def starvation_of_a_pool(options: Options) -> StarvationStatus:
    return starvation("/a", options, 40)


# --- the order of allocation ----------------------------------------------------------------------------------------------


@case("use_pool_satisfaction_for_scheduling", True)
def starts(options: Options) -> list[str]:
    work = [Work("x", "a", 2), Work("y", "a", 2, started_at_ms=2), Work("z", "b", 100)]
    return offered({"a": {"weight": 1}, "b": {"weight": 2}}, work, options)


SSD = "ssd_priority_preemption/"


@case(SSD + "enable", True)
def starts_on_a_node_with_ssd(options: Options) -> object:
    shy = {"a": {"allow_regular_allocations_on_ssd_nodes": False}}
    return offered(shy, [Work("x", "a", 1)], {SSD + "node_tag_filter": "!hdd"} | options)


@case(SSD + "node_tag_filter", "!hdd")
def starts_on_a_node_with_such_tags(options: Options) -> object:
    return starts_on_a_node_with_ssd({SSD + "enable": True, SSD + "node_tag_filter": "ssd"} | options)


@case("fifo_pool_scheduling_order", "fifo")
def starts_in_a_fifo_pool(options: Options) -> list[str]:
    work = [Work("x", "a", 80), Work("y", "a", 80, started_at_ms=2)]
    return offered({"a": {"mode": "fifo"}}, work, options)


@case("enable_guarantee_priority_scheduling", True)
def starts_of_one_below_its_promise(options: Options) -> list[str]:
    pools: dict[str, Any] = {
        "a": {"weight": 8},
        "b": {STRONG: {"cpu": 10}, "compute_promised_guarantee_fair_share": True},
    }
    return offered(pools, [Work("x", "a", 100), Work("y", "b", 100)], options)


BATCHES = "batch_operation_scheduling/"


@case(BATCHES + "batch_size", 1)
def starts_by_batches(options: Options) -> list[str]:
    return offered({"a": {}}, [Work(name, "a", 3) for name in ("x", "y", "z")], options)


@case(BATCHES + "fallback_min_spare_allocation_resources", {"cpu": 4})
def starts_behind_the_first_batch(options: Options) -> list[str]:
    by_ones = {BATCHES + "batch_size": 1} | options
    return offered({"a": {}}, [Work(name, "a", 3) for name in ("x", "y", "z")], by_ones)


@case("waiting_for_resources_on_node_timeout", "7s")
def waits_on_the_node_for_ms(options: Options) -> int | None:
    return first_starts({"a": {}}, [Work("x", "a", 1)], options)[0].waiting_timeout_ms


@case("allocation_preemption_timeout", "7s")
def gets_to_make_room_ms(options: Options) -> int | None:
    return taken_back(options)[0].timeout_ms


@case("allocation_graceful_preemption_timeout", "7s")
def gets_to_make_room_gracefully_ms(options: Options) -> int | None:
    return taken_back(options, preemption_mode=PreemptionMode.GRACEFUL)[0].timeout_ms


@case("preemption", "off")
@case("preemption_exempt_time", "1m")
@case("pause_preemption", True)
@case("preemptive_scheduling_backoff", "20s")
def taken(options: Options) -> list[str]:
    return [one.allocation for one in taken_back(options)]


@case("preemption_satisfaction_threshold", 1.5)
@case("aggressive_preemption_satisfaction_threshold", 1.0)
@case("non_preemptible_resource_usage_threshold", {"user_slots": 3})
@case("max_unpreemptible_running_allocation_count", 3)
def groups(options: Options) -> list[int]:
    return groups_on_a_full_node(options)


@case("consider_allocation_on_fair_share_bound_preemptible", True)
def groups_where_one_crosses_the_bound(options: Options) -> list[int]:
    return groups_on_a_full_node(options, owed=2.5)


@case("preempt_at_bound_for_owed_jobs", True)
def taken_where_one_crosses_the_bound(options: Options) -> list[str]:
    return [one.allocation for one in on_a_full_node(options, owed=3.5).next_beat().take_back]


@case("node_reservation_time", "1m")
def reserved_for_a_job_that_fits_nowhere(options: Options) -> int:
    longest_ms = a_tree({}, options).options.node_reservation_time
    fleet = StreamFleet(Random(1), (60.0, 60.0), fair_share_starvation_timeout=0, node_reservation_time=longest_ms)
    fleet.stream(10)
    fleet.second()
    fleet.work(LARGE, "whole", 1, cores(4), started_at_ms=2)
    most = 0
    for _ in range(10):
        fleet.second()
        most = max(most, len(fleet.reserved_nodes()))
    return most


@case("hold_back_failing_nodes", True)
def failed_where_every_job_fails(options: Options) -> bool:
    is_on = a_tree({}, options).options.hold_back_failing_nodes
    fleet = FailingFleet(("a", "b"), lambda host, _operation: host == "b", hold_back_failing_nodes=is_on)
    fleet.work("op", 30)
    fleet.run_for(5)
    return fleet.failed("b") > 3


@case("allow_aggressive_preemption_for_gang_operations", False)
def taken_from_a_gang(options: Options) -> list[str]:
    host = on_a_full_node(options, owed=4, aggressive=True, is_gang=True)
    return [one.allocation for one in host.next_beat().take_back]


@case("preempt_gangs_whole", True)
def taken_from_one_of_two_gangs(options: Options) -> bool:
    return bool(gangs_that_take_turns(options, seconds=12).taken)


@case("allow_preemption_from_starving_operations", True)
def taken_from_one_that_starves(options: Options) -> list[str]:
    return [one.allocation for one in on_a_full_node(options, both_starve=True).next_beat().take_back]


@case("victim_rules", "legacy")
def taken_from_below_a_starving_pool(options: Options) -> list[str]:
    return _taken_from_a_shielded_pool(options)


@case("preemption_check_starvation", False)
def taken_by_the_older_rules_from_below_a_starving_pool(options: Options) -> list[str]:
    return _taken_from_a_shielded_pool({"victim_rules": "legacy"} | options)


@case("preemption_check_satisfaction", False)
def taken_by_the_older_rules_from_below_a_pool_with_too_little(options: Options) -> list[str]:
    owed = DetailedShare(total=(1.0, 2.0, 0.0, 0.0, 0.0))
    changes = {"fair_share": owed, "demand_share": (1.0, 3.0, 0.0, 0.0, 0.0)}
    host = on_a_full_node({"victim_rules": "legacy"} | options, other_pool=True, pool_changes=changes)
    return [one.allocation for one in host.next_beat().take_back]


@case("enable_conditional_preemption", False)
def taken_by_the_older_rules_within_a_starving_pool(options: Options) -> list[str]:
    return _taken_from_a_shielded_pool({"victim_rules": "legacy"} | options, other_pool=False)


def _taken_from_a_shielded_pool(options: Options, *, other_pool: bool = True) -> list[str]:
    has_its_share = DetailedShare(total=(0.5, 0.5, 0.0, 0.0, 0.0))
    changes = {"starvation_status": StarvationStatus.STARVING, "fair_share": has_its_share}
    host = on_a_full_node(options, other_pool=other_pool, pool_changes=changes)
    return [one.allocation for one in host.next_beat().take_back]


@case("drop_needless_victims", True)
def taken_where_an_older_one_makes_the_room(options: Options) -> list[str]:
    return taken_for_a_large_job(options)


@case("take_excess_for_few_nodes", True)
def places_kept_of_whoever_has_too_much_on_the_only_node(options: Options) -> list[str]:
    """`held` has four jobs, the youngest two on the node where `picky` cannot run, and is owed two."""
    tree = Fleet(
        Random(1),
        dict.fromkeys(("n1", "n2"), Resources(10, 200, 0, 2**30)),
        [Pool(PoolName("p"), ROOT_POOL)],
        TreeOptions(),
    )
    read = TREE_ATTRIBUTES.changed(TreeOptions(fair_share_starvation_timeout=1_000), options).value
    tree.reconfigure([Pool(PoolName("p"), ROOT_POOL)], read, 2)
    tree.engine.on_nodes({NodeName("n1"): NodeRecord(NodeName("n1"), tags=["ssd"])}, tree.now)
    for name, filter_ in (("held", ""), ("picky", "ssd")):
        live_one = an_operation(name, 4, Resources(1, 100))
        spec = msgspec.structs.replace(live_one.spec, pool=PoolName("p"), scheduling_tag_filter=filter_)
        tree.begin(msgspec.structs.replace(live_one, spec=spec), 600.0)
        tree.update_shares()
        for _ in range(9):
            tree.pass_time(1)
            for node in ("n1", "n2"):
                tree.hear(node)
    return sorted(place.operation for place in tree.places["n1"].values() if not place.is_closing)


@case("enable_infinite_resource_limits_overcommit", True)
def taken_for_one_at_the_limit_of_its_pool(options: Options) -> list[str]:
    return [
        start.operation for start in on_a_full_node(options, pool={"resource_limits": {"cpu": 4}}).next_beat().start
    ]


@case("min_spare_allocation_resources_on_node", {"cpu": 4})
def starts_on_an_empty_node(options: Options) -> list[str]:
    return offered({"a": {}}, [Work("x", "a", 80)], options)


# --- admission ------------------------------------------------------------------------------------------------------------


def ended(options: Options, *starts: dict[str, Any], pools: dict[str, Any] | None = None) -> list[str]:
    """What became of operations that were started one after the other, with their pools."""
    desk = Desk(pools or {"a": {}}, everywhere=GlobalRules(administrators=frozenset({"root"})), **options)
    found = []
    for number, start in enumerate(starts):
        answer = desk.start(str(number), **{"pool": "a"} | start)
        found.append(f"{type(answer).__name__} {getattr(answer, 'state', '')} {getattr(answer, 'pool', '')}")
    return [*found, *(f"{each.name} in {each.parent}" for tree in desk.state.ephemeral_pools() for each in tree.pools)]


def two_operations(options: Options) -> object:
    return ended(options, {}, {})


for limit in ("max_operation_count", "max_running_operation_count"):
    case(limit, 1)(two_operations)
    case(f"{limit}_per_pool", 1)(two_operations)


def nobodys_pool(options: Options) -> object:
    return ended(options, {"pool": "new"}, {"pool": "newer"})


@case("placement_rules", ["specified existing", "default a"])
def pool_by_rules(options: Options) -> object:
    return ended(options, {"pool": "new"})


case("default_parent_pool", "a")(nobodys_pool)
case("max_ephemeral_pools_per_user", 2)(nobodys_pool)


@case("use_user_default_parent_pool_map", True)
def parent_of_a_users_pool(options: Options) -> object:
    return nobodys_pool({"user_to_default_pool": {"anna": "a"}} | options)


@case("user_to_default_pool", {"anna": "a"})
def parent_by_user(options: Options) -> object:
    return nobodys_pool({"use_user_default_parent_pool_map": True} | options)


@case("promote_only_on_scan", True)
def running_when_a_limit_is_raised(options: Options) -> list[str]:
    desk = Desk({"a": {"max_running_operation_count": 1}}, **options)
    desk.started("one", "two", pool="a")
    desk.configure({"a": {"max_running_operation_count": 2}}, **options)
    return desk.running()


def time_limits(options: Options, start: dict[str, Any]) -> object:
    """The time limits of an operation that is started in the tree, or the refusal."""
    desk = Desk({"a": {}}, **options)
    answer = desk.start("one", "a", **start)
    known = desk.state.operations.get(oid("one"))
    return answer if known is None else (known.spec.time_limit_ms, known.spec.operation_time_limit_ms)


for name in ("default_time_limit", "default_operation_time_limit"):
    case(name, "7s")(lambda options: time_limits(options, {}))


@case("max_time_limit", "7s")
def a_long_job(options: Options) -> object:
    return time_limits(options, {"time_limit_ms": 8_000})


@case("max_operation_time_limit", "7s")
def a_long_operation(options: Options) -> object:
    return time_limits(options, {"operation_time_limit_ms": 8_000})


def a_job_of_one_core(options: Options) -> object:
    return ended(options, {})


case("min_job_resource_limits", {"cpu": 2})(a_job_of_one_core)
case("max_job_resource_limits", {"cpu": 0.5})(a_job_of_one_core)


@case("enable_limiting_ancestor_check", False)
def an_operation_that_never_fits(options: Options) -> str:
    desk = Desk({"a": {"resource_limits": {"cpu": 0.5}}}, **options)
    desk.started("one", pool="a")
    for at_ms in (1_000, 400_000):
        desk.engine.on_scan(at(at_ms / 1000))
    return desk.state_of("one")


@case("enable_interactive", False)
def a_job_with_a_terminal(options: Options) -> object:
    return type(Desk({"a": {}}, **options).start("one", "a", terminal=True))


@case("allow_gang_operations_only_in_fifo_pools", True)
def a_gang_elsewhere(options: Options) -> object:
    return ended(options, {"is_gang": True})


@case("non_tentative_operation_types", ["map"])
def trees_of_a_tentative_operation(options: Options) -> list[str]:
    desk = Desk({"a": {}})
    desk.configure({"a": {}}, tree=TreeName("other"), **options)
    desk.started("one", pool="a", type="map", pool_trees=[TREE], tentative_pool_trees=["other"])
    return list(desk.state.operations[oid("one")].placements)


@case("pool_config_presets", {"patient": {"enable_lightweight_operations": True}})
def running_by_a_preset(options: Options) -> object:
    pool = {"mode": "fifo", "max_running_operation_count": 1, "config_preset": "patient"}
    return ended(options, {}, {}, pools={"a": pool})


# --- rights and nodes -----------------------------------------------------------------------------------------------------

BORIS = Person("boris", administrator=False)


@case("access/use", ["boris"])
def an_operation_of_a_stranger(options: Options) -> object:
    return ended(options, {}, {"user": "boris"})


@case("access/manage", ["boris"])
def an_update_by_another_user(options: Options) -> str:
    desk = Desk({"a": {}}, everywhere=GlobalRules(administrators=frozenset({"root"})), **options)
    desk.started("one", pool="a")
    return type(desk.update("one", user="boris", weight=2.0)).__name__


def decided(options: Options, attributes: Options) -> str:
    configuration = TreeConfiguration(TREE)
    configuration.on_stored(stored(a_tree({"a": {}}, options), 1))
    return type(configuration.decide(set_pool("a", msgspec.json.encode(attributes)), {}, BORIS, ZERO)).__name__


@case("access/write", ["boris"])
def a_change_by_a_user(options: Options) -> str:
    return decided(options, {"weight": 2})


@case("access/administer", ["boris"])
def a_change_of_what_is_for_administrators(options: Options) -> str:
    return decided(options, {"enable_aggressive_starvation": True})


@case("node_filter", "gpu")
def starts_on_a_node_without_a_tag(options: Options) -> int:
    read = a_tree({}, options).options
    desk = AllocatorDesk({"n1": cores(4, slots=10)})
    desk.engine.on_options(read, desk.now)
    desk.start(an_operation("a", 100))
    desk.share(a=1.0)
    return len(desk.beat("n1")[0].start)


case("require_isolation", True)(starts_on_a_node_without_a_tag)
case("pause_starts", True)(starts_on_a_node_without_a_tag)
