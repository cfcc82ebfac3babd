"""What integral is told of a tree's pools."""

from headrace.ids import PoolName
from headrace.pools import IntegralType
from headrace.resources import Resources
from headrace.wire.integral import PoolFlow
from headrace_fair_share.facts.flows_to_integral import flows_of, with_grants
from headrace_fair_share.hdrf.model import PoolInput

TOTAL = Resources(user_slots=100, cpu=10_000, memory=1_000)
RELAXED, BURST = IntegralType.RELAXED, IntegralType.BURST


def test_a_flow_is_the_largest_share_of_any_resource() -> None:
    pool = PoolInput(name="a", parent=-1, integral=BURST, resource_flow=Resources(cpu=1_000, memory=200))

    assert flows_of([pool], TOTAL, distribute=False) == [PoolFlow(PoolName("a"), 0.2, 0.0, 0.0, "burst")]


def test_figures_of_a_pool_without_the_guarantee_are_a_budget_and_do_not_count() -> None:
    parent = PoolInput(name="p", parent=-1, resource_flow=Resources(cpu=1_000), burst_guarantee=Resources(cpu=1_000))
    child = PoolInput(name="a", parent=0, integral=RELAXED, resource_flow=Resources(cpu=500))

    flows = flows_of([parent, child], TOTAL, distribute=False)

    assert [(flow.pool, flow.flow_ratio, flow.guarantee_type, flow.parent) for flow in flows] == [
        ("p", 0.0, "none", -1),
        ("a", 0.05, "relaxed", 0),
    ]


def test_only_what_stands_above_an_integral_pool_is_told_of_other_pools() -> None:
    names = ["other", "top", "beside", "middle", "saver"]
    parents = [-1, -1, 1, 1, 3]
    pools = [
        PoolInput(name=name, parent=parent, integral=RELAXED if name == "saver" else IntegralType.NONE)
        for name, parent in zip(names, parents, strict=True)
    ]

    flows = flows_of(pools, TOTAL, distribute=False)

    assert [(flow.pool, flow.parent) for flow in flows] == [("top", -1), ("middle", 0), ("saver", 1)]


def test_a_tree_without_savings_has_no_flows() -> None:
    assert flows_of([PoolInput(name="a", parent=-1)], TOTAL, distribute=True) == []


def test_whether_free_volume_is_handed_on_is_said_by_the_pool_or_else_by_the_tree() -> None:
    pools = [
        PoolInput(name=name, parent=-1, integral=RELAXED, distribute_free_volume=says, can_accept_free_volume=False)
        for name, says in (("silent", None), ("yes", True), ("no", False))
    ]

    assert [flow.distributes_free_volume for flow in flows_of(pools, TOTAL, distribute=True)] == [True, True, False]
    assert [flow.distributes_free_volume for flow in flows_of(pools, TOTAL, distribute=False)] == [False, True, False]
    assert not any(flow.can_accept_free_volume for flow in flows_of(pools, TOTAL, distribute=False))


def test_what_was_granted_is_told_of_the_pools_that_are_charged() -> None:
    parent = PoolInput(name="p", parent=-1)
    pools = [parent, *(PoolInput(name=name, parent=0, integral=BURST) for name in "ab")]
    grants = {PoolName("p"): 0.3, PoolName("a"): 0.3, PoolName("gone"): 1.0}

    flows = with_grants(flows_of(pools, TOTAL, distribute=False), grants)

    assert {flow.pool: flow.grant_ratio for flow in flows} == {"p": 0.0, "a": 0.3, "b": 0.0}
