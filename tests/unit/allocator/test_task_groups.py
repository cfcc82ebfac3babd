"""An operation whose jobs are of several sizes: what starts, and what is asked for."""

from __future__ import annotations

import msgspec

from headrace.pools import PartialResources
from headrace.resources import Resources
from headrace_allocator.decision.placing import start_regularly
from headrace_allocator.decision.view import Overlay, View
from headrace_allocator.facts.operations import Operation, TaskGroup
from tests.support.allocating import Desk, a_share, an_operation, cores
from tests.support.taken_back import on_a_full_node

LARGE, SMALL = cores(3), cores(1)


def a_desk(room: Resources, *groups: TaskGroup) -> Desk:
    desk = Desk({"n": room})
    desk.start(an_operation("a", sum(group.pending for group in groups)))
    operation = desk.operation("a")
    operation.set_task_groups(list(groups))
    desk.share(a=1.0)
    return desk


def test_the_first_size_that_fits_starts_and_no_more_of_it_than_wait() -> None:
    desk = a_desk(cores(8, slots=9), TaskGroup(LARGE, 1), TaskGroup(SMALL, 3))
    orders = desk.beat("n")[0]

    assert [start.resources for start in orders.start] == [LARGE, SMALL, SMALL, SMALL]
    assert [group.pending for group in desk.operation("a").task_groups] == [0, 0]


def test_all_that_waits_is_asked_for_and_the_least_of_each_resource() -> None:
    desk = a_desk(cores(1), TaskGroup(Resources(1, 100, memory=50), 1), TaskGroup(Resources(1, 500, memory=10), 2))
    (item,) = desk.cut_usage().items

    assert (item.pending, item.min_needed) == (Resources(3, 1100, memory=70), Resources(1, 100, memory=10))


def test_an_operation_of_which_no_size_fits_holds_up_nobody() -> None:
    """The least of each resource that its jobs need would fit, and none of them does."""
    desk = Desk({"n": Resources(9, 200, memory=20)})
    desk.start(an_operation("a", 2), an_operation("b", 1))
    desk.operation("a").set_task_groups(
        [TaskGroup(Resources(1, 100, memory=50), 1), TaskGroup(Resources(1, 500, memory=10), 1)]
    )
    desk.tell([msgspec.structs.replace(a_share(name, 0.5), demand_share=(9.0,) * 5) for name in "ab"])

    assert [start.operation for start in desk.beat("n")[0].start] == ["b"]
    assert desk.engine.answers.decided.refused == {"a"}


def test_a_size_that_would_delay_a_reserved_job_does_not_start() -> None:
    """The node is reserved for `whole`, which its own limit holds back for now."""
    desk = Desk({"n": cores(4, slots=9)})
    desk.beat("n")
    whole = an_operation("whole", 1, cores(2))
    spec = msgspec.structs.replace(whole.spec, resource_limits=PartialResources(cpu=100))
    desk.start(an_operation("a", 4), msgspec.structs.replace(whole, spec=spec))
    desk.operation("a").set_task_groups([TaskGroup(LARGE, 1), TaskGroup(SMALL, 3)])
    desk.share(a=0.5, whole=0.5)
    view = View.of(desk.facts, desk.node("n"), desk.engine.ranking.order, 1_000)

    def sizes(reserved: Operation | None) -> list[Resources]:
        overlay = Overlay(msgspec.structs.replace(view, reserved=reserved))
        return [one.job for one in start_regularly(overlay)]

    assert sizes(None) == [LARGE, SMALL]
    assert sizes(desk.operation("whole")) == [SMALL, SMALL]


def test_no_more_of_several_sizes_start_than_the_operation_may_have() -> None:
    desk = a_desk(cores(8, slots=9), TaskGroup(SMALL, 3))
    operation = desk.operation("a")
    desk.facts.set_spec(operation, msgspec.structs.replace(operation.spec, resource_limits=PartialResources(cpu=400)))
    operation.set_task_groups([TaskGroup(LARGE, 2), TaskGroup(SMALL, 1)])

    assert [start.resources for start in desk.beat("n")[0].start] == [LARGE, SMALL]


def test_a_preemptive_stage_passes_an_operations_own_limit_by_its_tolerance() -> None:
    limits = {"resource_limits": PartialResources(cpu=50)}
    found = []
    for cpu in (0, 50):
        host = on_a_full_node(poor=limits | {"resource_limits_overcommit_tolerance": PartialResources(cpu=cpu)})
        host.operation("poor").set_task_groups([TaskGroup(LARGE, 1), TaskGroup(SMALL, 1)])
        found.append([(start.operation, start.resources) for start in host.next_beat().start])

    assert found == [[], [("poor", SMALL)]]


def test_by_the_older_rules_what_may_go_in_a_full_pool_is_room_for_the_size_that_starts() -> None:
    older = {"victim_rules": "legacy", "preemption_check_satisfaction": False}
    host = on_a_full_node(older, pool={"resource_limits": {"cpu": 4}})
    host.operation("poor").set_task_groups([TaskGroup(cores(9), 1), TaskGroup(SMALL, 1)])
    orders = host.next_beat()

    assert [(start.operation, start.resources) for start in orders.start] == [("poor", SMALL)]
    assert len(orders.take_back) == 1
