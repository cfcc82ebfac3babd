"""Three allocation files of the kinds that people have, each with all that is warned of and what holds for its pools."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.ids import ROOT_POOL, PoolName, group_name
from headrace.pools import PoolTree
from headrace.pools.rights import Right, access_lists, person_of
from headrace.pools.rights import allowed as lets
from headrace.resources import Resources
from headrace_cli.yarn.allocation_file import NEVER_MS
from headrace_cli.yarn.translation import Imported
from tests.support.yarn_files import CLUSTER, in_force, translated, tree_of

FILES = Path(__file__).parent / "files"


def sample(name: str, total: Resources = CLUSTER) -> tuple[PoolTree, Imported, set[tuple[str, int]]]:
    found, warnings = translated((FILES / name).read_bytes(), total=total)
    return tree_of(found), found, {(each.code, each.line) for each in warnings.found}


def test_analytics() -> None:
    tree, found, warned = sample("analytics.xml")

    assert warned == {("W02", 21), ("W09", 7), ("W13", 25), ("W13", 26), ("W15", 15), ("W16", 5), ("W21", 17)}
    for name in ("prod", "billing", "reports"):
        options = in_force(tree, name)
        assert (options.min_share_preemption_timeout_ms, options.fair_share_starvation_timeout_ms) == (15_000, 30_000)
        assert (options.fair_share_starvation_tolerance, options.preemption) == (0.9, "off")
    for name in ("analysts", "default"):
        options = in_force(tree, name)
        assert (options.min_share_preemption_timeout_ms, options.fair_share_starvation_timeout_ms) == (None, 120_000)
        assert (options.fair_share_starvation_tolerance, options.preemption) == (0.6, "on")
    analysts = tree.settings(PoolName("analysts"))
    assert analysts.resource_limits.named() == {"cpu": 3840_00, "memory": 15_728_640 * 2**20}
    assert analysts.ephemeral_subpool_config is not None
    assert analysts.ephemeral_subpool_config.max_running_operation_count == 8
    assert analysts.ephemeral_subpool_config.resource_limits.named() == {"cpu": 200_00, "memory": 800_000 * 2**20}
    assert tree.is_hub(PoolName("analysts"))
    assert tree.options.placement_rules == ("specified existing", "nested_user default analysts", "default")
    assert tree.settings(PoolName("prod")).access.use == ()  # nobody is shut out in YARN
    assert tree.mode(PoolName("reports")) == "fifo"
    assert tree.max_running_operation_count(PoolName("billing")) == 20
    assert tree.max_running_operation_count(PoolName("reports")) == 50_000
    assert "preemption" not in found.options


def test_etl_legacy() -> None:
    tree, _, warned = sample("etl_legacy.xml")

    # W06: of the whole file, and of each minimum.
    by_memory = {("W06", 3), ("W06", 5), ("W06", 11), ("W06", 12)}
    assert warned == by_memory | {("W05", 4), ("W08", 14), ("W12", 16), ("W16", 10), ("W24", 15)}
    assert tree.options.main_resource == "memory"
    assert tree.options.placement_rules == ("specified", "user")
    assert tree.settings(PoolName("etl")).strong_guarantee_resources.named() == {"memory": 256_000 * 2**20}
    assert tree.settings(PoolName("scratch")).resource_limits.named() == {"cpu": 0, "memory": 0}
    assert tree.max_running_operation_count(ROOT_POOL) == 50
    assert [tree.max_running_operation_count(PoolName(name)) for name in ("etl", "hourly", "adhoc")] == [40, 50, 50]
    for name, min_ms in (("etl", 60_000), ("nightly", 60_000), ("adhoc", 300_000), ("default", 300_000)):
        options = in_force(tree, name)
        assert (options.min_share_preemption_timeout_ms, options.fair_share_starvation_timeout_ms) == (min_ms, 600_000)
        assert options.fair_share_starvation_tolerance == 0.5


def test_tenants() -> None:
    tree, _, warned = sample("tenants.xml")

    # The root lets everybody administer.
    lists = {("W15", 16)}
    assert tree.options.placement_rules == ("primary_group existing", "secondary_group", "reject")
    assert warned == lists | {
        *(("W02", 13), ("W02", 19), ("W10", 14), ("W11", 17), ("W11", 21), ("W12", 19), ("W16", 6)),
    }
    assert {name: tree.settings(PoolName(name)).weight for name in ("tenant1", "tenant2", "tenant3")} == {
        "tenant1": 1,
        "tenant2": 2,
        "tenant3": 1,
    }
    jobs = {name: in_force(tree, name).max_job_resource_limits.named() for name in ("tenant1", "tenant2")}
    assert jobs == {"tenant1": {}, "tenant2": {"cpu": 800, "memory": 32768 * 2**20}}
    options = in_force(tree, "tenant1")
    assert (options.fair_share_starvation_timeout_ms, options.fair_share_starvation_tolerance) == (5_000, 0.8)
    assert tree.settings(PoolName("tenant2")).strong_guarantee_resources.named() == {"cpu": 300, "memory": 6144 * 2**20}
    limits = {name: tree.settings(PoolName(name)).resource_limits.cpu for name in ("tenant1", "tenant2", "planned")}
    assert limits == {"tenant1": 5760_00, "tenant2": 4800_00, "planned": 5760_00}


@pytest.mark.parametrize(("group", "allowed"), [("tenant1", ["tenant1"]), ("tenant2", ["tenant2"]), ("mallory", [])])
def test_a_root_that_lets_nobody_in_leaves_it_to_the_lists_of_queues(group: str, allowed: list[str]) -> None:
    tree, _, _ = sample("tenants.xml")
    person = person_of("ann", ["admin"], (group_name(group),))

    assert [name for name in tree.preorder if lets(access_lists(tree, name), person, Right.USE)] == allowed


def test_without_nodes_there_is_nothing_to_take_percents_of() -> None:
    tree, _, warned = sample("analytics.xml", Resources())

    assert ("W02", 21) in warned
    assert tree.settings(PoolName("analysts")).resource_limits.named() == {}


def test_the_largest_container_of_the_root_becomes_an_option_of_the_tree() -> None:
    largest = "<maxContainerAllocation>vcores=8</maxContainerAllocation>"
    found, _ = translated(f"<allocations><queue name='root'>{largest}<queue name='a'/></queue></allocations>")

    assert tree_of(found).options.max_job_resource_limits.cpu == 800
    assert in_force(tree_of(found), "a").max_job_resource_limits.cpu == 800


def test_a_timeout_that_never_ends_stays_so() -> None:
    found, _ = translated("<allocations><queue name='a'/></allocations>")

    assert in_force(tree_of(found), "a").fair_share_starvation_timeout_ms == NEVER_MS
    assert in_force(tree_of(found), "a").min_share_preemption_timeout_ms is None
