"""An operation whose jobs are of several sizes: what starts, and what is asked for."""

from __future__ import annotations

import math

import msgspec

from headrace.ids import NodeName, OperationId
from headrace.pools import PartialResources
from headrace.resources import Resources
from headrace.wire.heartbeat import JobSlot
from headrace_allocator.decision.placing import start_regularly
from headrace_allocator.decision.view import Overlay, View
from headrace_allocator.effects import Draw
from headrace_allocator.facts.operations import Operation, waiting_tasks
from headrace_allocator.preemption.yarn.execution import carried_out
from headrace_allocator.preemption.yarn.plans import Plan
from tests.support.allocating import Desk, a_share, an_operation, cores, drawn_before, with_task_sizes
from tests.support.taken_back import on_a_full_node
from tests.unit.allocator.test_recovery import after_a_restart, running

LARGE, SMALL = cores(3), cores(1)


def a_desk(room: Resources, *tasks: tuple[int, Resources]) -> Desk:
    desk = Desk({"n": room})
    desk.start(with_task_sizes(an_operation("a"), *tasks))
    desk.share(a=1.0)
    return desk


def test_the_first_size_that_fits_starts_and_no_more_of_it_than_wait() -> None:
    desk = a_desk(cores(8, slots=9), (1, LARGE), (3, SMALL))
    orders = desk.beat("n")[0]

    assert [start.resources for start in orders.start] == [LARGE, SMALL, SMALL, SMALL]
    assert [slot.index for start in orders.start for slot in start.slots] == [0, 1, 2, 3]
    assert waiting_tasks(desk.operation("a")) == []


def test_all_that_waits_is_asked_for_and_the_least_of_each_resource() -> None:
    desk = a_desk(Resources(1, 500, memory=50), (1, Resources(1, 100, memory=50)), (2, Resources(1, 500, memory=10)))
    (item,) = desk.cut_usage().items

    assert (item.pending, item.min_needed) == (Resources(3, 1100, memory=70), Resources(1, 100, memory=10))


def test_an_operation_of_which_no_size_fits_holds_up_nobody() -> None:
    """The least of each resource that its jobs need would fit, and none of them does."""
    desk = Desk({"n": Resources(9, 200, memory=20)})
    tasks = (1, Resources(1, 100, memory=50)), (1, Resources(1, 500, memory=10))
    desk.start(with_task_sizes(an_operation("a"), *tasks), an_operation("b", 1))
    desk.tell([msgspec.structs.replace(a_share(name, 0.5), demand_share=(9.0,) * 5) for name in "ab"])

    assert [start.operation for start in desk.beat("n")[0].start] == ["b"]
    assert desk.engine.answers.decided.refused == {"a"}


def test_a_size_that_would_delay_a_reserved_job_does_not_start() -> None:
    """The node is reserved for `whole`, which its own limit holds back for now."""
    desk = Desk({"n": cores(4, slots=9)})
    desk.beat("n")
    whole = an_operation("whole", 1, cores(2))
    spec = msgspec.structs.replace(whole.spec, resource_limits=PartialResources(cpu=100))
    a = with_task_sizes(an_operation("a"), (1, LARGE), (3, SMALL))
    desk.start(a, msgspec.structs.replace(whole, spec=spec))
    desk.share(a=0.5, whole=0.5)
    view = View.of(desk.facts, desk.node("n"), desk.engine.ranking.order, 1_000)

    def sizes(reserved: Operation | None) -> list[Resources]:
        overlay = Overlay(msgspec.structs.replace(view, reserved=reserved))
        return [one.job for one in start_regularly(overlay)]

    assert sizes(None) == [LARGE, SMALL]
    assert sizes(desk.operation("whole")) == [SMALL, SMALL]


def test_no_more_of_several_sizes_start_than_the_operation_may_have() -> None:
    desk = a_desk(cores(8, slots=9), (2, LARGE), (1, SMALL))
    operation = desk.operation("a")
    desk.facts.set_spec(operation, msgspec.structs.replace(operation.spec, resource_limits=PartialResources(cpu=400)))

    assert [start.resources for start in desk.beat("n")[0].start] == [LARGE, SMALL]


def test_a_preemptive_stage_passes_an_operations_own_limit_by_its_tolerance() -> None:
    limits = {"resource_limits": PartialResources(cpu=50)}
    found = []
    for cpu in (0, 50):
        poor = limits | {"resource_limits_overcommit_tolerance": PartialResources(cpu=cpu)}
        host = on_a_full_node(poor=poor, poor_tasks=[(1, LARGE), (1, SMALL)])
        found.append([(start.operation, start.resources) for start in host.next_beat().start])

    assert found == [[], [("poor", SMALL)]]


def test_by_the_older_rules_what_may_go_in_a_full_pool_is_room_for_the_size_that_starts() -> None:
    older = {"victim_rules": "legacy", "preemption_check_satisfaction": False}
    tasks = [(1, cores(9)), (1, SMALL)]
    host = on_a_full_node(older, pool={"resource_limits": {"cpu": 4}}, poor_tasks=tasks)
    orders = host.next_beat()

    assert [(start.operation, start.resources) for start in orders.start] == [("poor", SMALL)]
    assert len(orders.take_back) == 1


def test_a_later_allocator_books_jobs_for_their_tasks_and_starts_the_others() -> None:
    """Jobs 1 and 3 run. Job 0 is of the large task, and no node holds it."""
    live = drawn_before(with_task_sizes(an_operation("a"), (1, LARGE), (3, SMALL)))
    desk = after_a_restart(live, nodes={"n": False}, size=8)
    desk.share(a=1.0)
    charged = desk.operation("a").in_doubt
    there = [running("1-1", "a", 1), running("1-2", "a", 3)]
    desk.beat("n", allocations=there)
    desk.refresh()
    orders = desk.beat("n", allocations=there)[0]

    assert charged == Resources(4, 600)
    assert desk.operation("a").in_doubt == Resources(0, 0)
    assert [(start.resources, start.slots) for start in orders.start] == [(LARGE, [JobSlot(0)]), (SMALL, [JobSlot(2)])]
    assert desk.operation("a").held == Resources(4, 600)
    assert desk.engine.check() == []


def test_a_node_that_names_a_job_of_a_small_task_holds_no_more_than_that_job_needs() -> None:
    live = drawn_before(with_task_sizes(an_operation("a"), (1, LARGE), (3, SMALL)))
    desk = after_a_restart(live, nodes={"n": False}, size=8)
    report = msgspec.structs.replace(running("1-1", "a", 2), resources=cores(7))
    desk.beat("n", allocations=[report])

    assert desk.operation("a").held == SMALL


def test_jobs_of_a_size_that_fits_on_no_node_are_no_demand_and_hold_up_no_other_task() -> None:
    desk = Desk({"n": cores(2, slots=9)})
    desk.beat("n")
    desk.start(with_task_sizes(an_operation("a"), (2, cores(3)), (1, SMALL)))
    desk.share(a=1.0)
    item = next(each for each in desk.cut_usage().items if each.operation == "a")

    assert (item.pending, item.min_needed) == (SMALL, SMALL)
    assert [start.slots for start in desk.beat("n")[0].start] == [[JobSlot(2)]]
    assert desk.reasons("a")[0].startswith("task task-0 (2 pending jobs): each job is larger than every node")
    desk.nodes["n"] = cores(4, slots=9)
    desk.beat("n")
    desk.share(a=1.0)
    assert [start.slots for start in desk.beat("n")[0].start] == [[JobSlot(0)]]


def test_the_jobs_of_every_task_are_leased_however_many_are_ready() -> None:
    live = with_task_sizes(an_operation("a"), (400, LARGE), (400, SMALL))
    desk = Desk({"n": cores(1)})
    effects = desk.start(msgspec.structs.replace(live, block=256, done=bytes(32)))

    assert Draw(OperationId("a"), 512) in effects


def test_a_limit_of_a_pool_is_named_for_the_task_that_it_holds_back() -> None:
    """The limit of the operation leaves one core."""
    desk = a_desk(cores(8, slots=9), (1, LARGE), (2, SMALL))
    operation = desk.operation("a")
    desk.facts.set_spec(operation, msgspec.structs.replace(operation.spec, resource_limits=PartialResources(cpu=100)))
    desk.beat("n")

    told = [words for words in desk.reasons("a") if words.startswith("task")]
    assert [words.partition(":")[0] for words in told] == ["task task-0 (1 pending job)", "task task-1 (1 pending job)"]


def test_a_plan_of_a_yarn_policy_starts_a_job_of_the_task_for_which_it_was_made() -> None:
    desk = Desk({"n": cores(8, slots=9)})
    desk.beat("n")
    desk.start(with_task_sizes(an_operation("a"), (1, LARGE), (1, SMALL)))
    desk.share(a=1.0)
    found = []
    for size in (SMALL, LARGE, cores(2)):
        overlay = Overlay(View.of(desk.facts, desk.node("n"), desk.engine.ranking.order, 1_000))
        outcome = carried_out(overlay, Plan(NodeName("n"), (), math.inf, OperationId("a"), size))
        found.append(outcome and outcome.placement and (outcome.placement.job, outcome.placement.task))

    assert found == [(SMALL, 1), (LARGE, 0), None]
