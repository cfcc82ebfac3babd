"""Gangs whose jobs have several sizes: all jobs of all tasks start together or none does."""

from __future__ import annotations

import msgspec
import pytest

from headrace.ids import NodeName, PoolName
from headrace.pools.amounts import PartialResources
from headrace.resources import Resources
from headrace.wire.heartbeat import JobResult
from headrace.wire.ledger import LiveOperation
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace_allocator.facts.nodes import Reservation
from headrace_allocator.gangs.gang import GangPhase
from tests.support.allocating import Desk, an_operation, cores, drawn_before, with_task_sizes
from tests.unit.allocator.test_gangs import GANG, NEVER, Fleet, a_gang


def with_tasks(name: str, *tasks: tuple[int, float]) -> LiveOperation:
    """A gang with tasks of these numbers and sizes of jobs, in cores."""
    return with_task_sizes(a_gang(name, 1), *((jobs, cores(size)) for jobs, size in tasks))


def nodes(*sizes: float, **timing: object) -> Fleet:
    return Fleet({name: cores(size, slots=99) for name, size in zip("abcdef", sizes, strict=False)}, **timing)


def started(fleet: Fleet, operation: str = GANG) -> dict[str, list[int]]:
    """The cores of the jobs that run on each node."""
    return {
        node: sorted(one.resources.cpu // 100 for one in there.values() if one.operation == operation)
        for node, there in fleet.shown.items()
    }


def everywhere(fleet: Fleet) -> list[int]:
    """The cores of all jobs of the gang that run."""
    return sorted(cpu for there in started(fleet).values() for cpu in there)


def run(fleet: Fleet, seconds: int = 2) -> None:
    for _ in range(seconds):
        fleet.now_s += 1
        fleet.say_all()
        fleet.tick(fleet.now_s)
    fleet.say_all()


def test_all_jobs_of_all_tasks_start_in_one_round_each_with_the_size_of_its_task() -> None:
    fleet = nodes(4, 2)
    fleet.start(with_tasks(GANG, (2, 1), (1, 4)))
    fleet.gather()
    starts = [start for orders in fleet.say_all().values() for start in orders.start]

    assert {start.slots[0].index: start.resources for start in starts} == {0: cores(1), 1: cores(1), 2: cores(4)}
    fleet.say_all()
    assert (fleet.phase(), started(fleet)) == (GangPhase.RUNNING, {"a": [4], "b": [1, 1]})


def test_nothing_starts_while_one_task_lacks_resources_and_people_are_told_which() -> None:
    fleet = nodes(4, 2)
    fleet.start(an_operation("filler", 1))
    fleet.say("a"), fleet.say("a")
    fleet.start(an_operation("filler", 1), with_tasks(GANG, (1, 4), (2, 1)))
    run(fleet, 2)
    held = [one.id for one in fleet.operation(GANG).allocations.values()]
    run(fleet, 3)

    assert fleet.runs() == 0
    # Nothing is exchanged, because not all jobs would fit.
    assert [one.id for one in fleet.operation(GANG).allocations.values()] == held
    told = fleet.reasons(GANG)
    assert told[0].startswith("a gang of 3 jobs: resources for 2 of them on 1 node are held")
    assert any("task-0" in words for words in told[1:])
    assert not any("task-1" in words for words in told[1:])


def test_a_smaller_job_that_has_the_only_node_for_a_larger_job_moves() -> None:
    """When the nodes were full, only one core became free on the large node, and the small job got it."""
    fleet = nodes(4, 2)
    fillers = [an_operation(f"filler-{number}", 1, cores(size)) for number, size in enumerate((3, 1, 2))]
    for node, filler in zip("aab", fillers, strict=True):
        fleet.start(*fillers[: fillers.index(filler) + 1])
        fleet.say(node), fleet.say(node)
    fleet.start(*fillers, with_tasks(GANG, (1, 4), (1, 1)))
    ended = fleet.end("a", JobResult.COMPLETED, "filler-1")
    fleet.say("a", ends=[ended])
    assert [one.resources for one in fleet.operation(GANG).allocations.values()] == [cores(1)]
    others = [fleet.end("a", JobResult.COMPLETED, "filler-0"), fleet.end("b", JobResult.COMPLETED, "filler-2")]
    fleet.say("a", ends=[ended, others[0]])
    fleet.say("b", ends=[others[1]])
    fleet.tick(fleet.now_s)
    fleet.say("a", ends=[ended, others[0]])
    fleet.say("b", ends=[others[1]])

    assert started(fleet) == {"a": [4], "b": [1]}


def test_jobs_for_which_the_largest_first_find_nodes_only_elsewhere_are_placed_anew() -> None:
    """The largest job is held on the large node, where the next two would fit; it moves to the small node."""
    fleet = nodes(6, 4)
    fleet.start(with_tasks(GANG, (1, 4), (2, 3)))
    fleet.say("a")
    run(fleet)

    assert started(fleet) == {"a": [3, 3], "b": [4]}


def test_no_job_moves_to_resources_that_are_reserved_for_another_operation() -> None:
    fleet = nodes(6, 4)
    fleet.start(an_operation("other", 1, cores(9)), with_tasks(GANG, (1, 4), (2, 3)))
    fleet.say("a")
    node, now_s = fleet.node("b"), fleet.now.steady_s
    other = fleet.operation("other").id
    fleet.facts.reservations.enter(Reservation(other, cores(4), node, now_s, now_s, now_s + 60))
    fleet.tick(fleet.now_s)
    assert fleet.operation(GANG).slots.ready_count == 2

    # This tick has ended the reservation, because no node is large enough for the other operation.
    assert node.reserved is None
    fleet.tick(fleet.now_s)
    assert fleet.operation(GANG).slots.ready_count == 0


def test_a_gang_that_never_fits_holds_nothing_and_is_no_demand_and_people_are_told() -> None:
    fleet = nodes(4, 2)
    fleet.start(with_tasks(GANG, (1, 4), (3, 1)), a_gang("small", 4))
    run(fleet)

    assert fleet.reasons(GANG)[0].startswith(
        NEVER.replace("7 jobs", "4 jobs") + "all nodes that take its jobs together have resources for 3 of its jobs"
    )
    assert (fleet.phase(), fleet.runs("small")) == (GangPhase.WAITING, 4)
    wanted = {item.operation: item.pending.cpu for item in fleet.cut_usage().items}
    assert wanted[GANG] == 0


def test_a_gang_with_a_task_that_fits_on_no_node_never_starts() -> None:
    fleet = nodes(4, 4)
    fleet.start(with_tasks(GANG, (2, 1), (1, 5)))
    run(fleet)

    assert fleet.reasons(GANG)[0].startswith("a gang of 3 jobs that cannot start, even if all other jobs end")
    assert not fleet.operation(GANG).allocations


def test_a_limit_that_leaves_too_little_for_all_tasks_is_named() -> None:
    fleet = nodes(9, 9)
    pool = ShareItem(ElementKind.POOL, "p", PoolName("<Root>"), limits=PartialResources(cpu=500))
    fleet.tell([pool])
    fleet.start(with_tasks(GANG, (1, 4), (3, 1)))
    run(fleet)

    assert fleet.reasons(GANG)[0].endswith(
        "cannot start, even if all other jobs end: resource_limits of pool p allow 2 of its jobs"
    )
    assert fleet.runs() == 0


def test_jobs_do_not_get_resources_that_a_limit_of_the_pool_does_not_allow() -> None:
    """All nodes have enough, but another operation uses a part of the limit."""
    fleet = nodes(6, 4, 1)
    fleet.tell([ShareItem(ElementKind.POOL, "p", PoolName("<Root>"), limits=PartialResources(cpu=1_050))])
    other = an_operation("other", 1)
    fleet.start(other)
    fleet.say("c"), fleet.say("c")
    fleet.start(other, with_tasks(GANG, (1, 4), (2, 3)))
    run(fleet, 4)
    assert (fleet.runs("other"), fleet.runs()) == (1, 0)
    assert fleet.facts.pools.pool(PoolName("p")).charged.cpu <= 1_050

    fleet.say("c", ends=[fleet.end("c", JobResult.COMPLETED, "other")])
    run(fleet, 4)
    assert fleet.runs() == 3


def a_running_gang() -> Fleet:
    fleet = nodes(4, 2, 2)
    fleet.start(with_tasks(GANG, (1, 4), (3, 1)))
    run(fleet)
    assert fleet.phase() is GangPhase.RUNNING
    return fleet


@pytest.mark.parametrize("node", ["a", "b"])
def test_when_a_job_of_any_task_fails_all_others_are_taken_back_and_start_anew_together(node: str) -> None:
    fleet = a_running_gang()
    end = fleet.end(node, JobResult.FAILED)
    fleet.say(node, ends=[end])
    ends = [(end, node)]
    for each, orders in fleet.say_all().items():
        gone = [fleet.end(each, JobResult.ABORTED) for _ in orders.take_back]
        ends += [(one, each) for one in gone]
        fleet.say(each, ends=gone)
    for one, each in ends:
        assert fleet.runs() == 0
        fleet.learn(fleet.recorded(one, each))
    fleet.refresh()
    run(fleet)

    assert everywhere(fleet) == [1, 1, 1, 4]


def test_what_completed_does_not_count_when_the_rest_starts_anew() -> None:
    """The large job has completed, so the others start although the large node takes no more jobs."""
    fleet = a_running_gang()
    records = {name: node.record for name, node in fleet.facts.nodes.items()}
    records[NodeName("a")] = msgspec.structs.replace(records[NodeName("a")], drained=True)
    fleet.engine.on_nodes(records, fleet.now)
    fleet.refresh()
    assert fleet.phase() is GangPhase.RUNNING
    done = fleet.end("a", JobResult.COMPLETED)
    fleet.say("a", ends=[done])
    fleet.learn(fleet.recorded(done, "a"))
    end = fleet.end("b", JobResult.FAILED)
    ends = [(end, "b")]
    fleet.say("b", ends=[end])
    for each, orders in fleet.say_all().items():
        gone = [fleet.end(each, JobResult.ABORTED) for _ in orders.take_back]
        ends += [(one, each) for one in gone]
        fleet.say(each, ends=gone)
    fleet.learn(*(fleet.recorded(one, each) for one, each in ends))
    assert fleet.reasons(GANG)[0].startswith("a gang of 4 jobs that cannot start")
    fleet.refresh()
    run(fleet)

    assert fleet.phase() is GangPhase.RUNNING
    assert started(fleet) == {"a": [], "b": [1, 1], "c": [1]}


def taken_over(fleet: Fleet, live: LiveOperation) -> Fleet:
    """The nodes under the next allocator, which has heard of each node once."""
    after = Fleet.__new__(Fleet)
    Desk.__init__(after, fleet.nodes, recovering=True)
    after.shown = fleet.shown
    after.start(drawn_before(live))
    after.say_all()
    return after


def test_the_next_allocator_takes_over_a_gang_that_runs() -> None:
    after = taken_over(a_running_gang(), with_tasks(GANG, (1, 4), (3, 1)))

    assert after.phase() is GangPhase.RUNNING
    assert after.operation(GANG).held == Resources(4, 700)
    assert not any(orders.take_back for orders in after.say_all().values())


def test_the_next_allocator_takes_back_the_part_of_a_gang_that_was_told_to_start() -> None:
    """Its predecessor was killed while it ordered the start: node `a` did not get its order."""
    fleet = a_running_gang()
    del fleet.shown["a"]
    fleet.shown["a"] = {}
    after = taken_over(fleet, with_tasks(GANG, (1, 4), (3, 1)))
    after.now_s += 1
    after.tick(after.now_s)
    after.say_all()

    assert after.phase() is GangPhase.BREAKING
    assert sum(len(orders.take_back) for orders in after.say_all().values()) == 3


def test_the_next_allocator_gathers_anew_what_its_predecessor_only_held() -> None:
    fleet = nodes(4, 2, 2)
    fleet.start(with_tasks(GANG, (1, 4), (3, 1)))
    fleet.gather()
    after = taken_over(fleet, with_tasks(GANG, (1, 4), (3, 1)))
    run(after)

    assert after.phase() is GangPhase.RUNNING
    assert everywhere(after) == [1, 1, 1, 4]


def test_an_operation_without_gang_starts_its_tasks_one_by_one() -> None:
    fleet = nodes(4, 2)
    fleet.start(with_task_sizes(an_operation("tasks", 1), (1, cores(8)), (3, cores(1))))
    run(fleet)

    assert fleet.runs("tasks") == 3
