"""Some tasks of an operation form its gang; the jobs of the other tasks start one by one, before, beside and after it."""

from __future__ import annotations

import msgspec
import pytest

from headrace.ids import NodeName, PoolName
from headrace.pools.amounts import PartialResources
from headrace.wire.heartbeat import JobEnd, JobResult, Orders, Retry, TakeBackReason
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import IndexRun, JobsRetried, OperationSuspended
from headrace.wire.nodes import NodeRecord, OperationPlaces, TaskPlaces, WhereRequest
from headrace_allocator.facts.job_slots import JobSlots, is_whole, not_given_out
from headrace_allocator.facts.operations import Operation
from headrace_allocator.gangs.gang import GangPhase
from tests.support.allocating import TERM, an_operation, cores, drawn_before, with_task_sizes
from tests.unit.allocator.test_gangs import Fleet, a_gang
from tests.unit.allocator.test_gangs_with_tasks import nodes, run, taken_over

MIXED = "mixed"


def mixed(*tasks: tuple[int, float], of_gang: tuple[int, ...]) -> LiveOperation:
    """An operation with tasks of these numbers and sizes of jobs, in cores. The tasks `of_gang` start together."""
    sizes = [(jobs, cores(size)) for jobs, size in tasks]
    return with_task_sizes(an_operation(MIXED, 1), *sizes, of_gang=of_gang)


def running(fleet: Fleet, operation: str = MIXED) -> list[int]:
    """The indexes of the jobs that run."""
    reports = (one for there in fleet.shown.values() for one in there.values() if one.operation == operation)
    return sorted(one.job.index for one in reports if one.job is not None)


def node_of(fleet: Fleet, index: int) -> str:
    return next(
        name for name, there in fleet.shown.items() for one in there.values() if one.job and one.job.index == index
    )


def end(fleet: Fleet, index: int, result: JobResult) -> tuple[str, JobEnd]:
    """A job is over. Its node does not show it any more."""
    name = node_of(fleet, index)
    found = next(one for one in fleet.shown[name].values() if one.job is not None and one.job.index == index)
    del fleet.shown[name][found.id]
    assert found.job is not None
    return name, JobEnd(found.operation, index, found.job.attempt, found.id, result)


def taken_back(orders: dict[str, Orders], fleet: Fleet) -> list[int]:
    """The indexes of the jobs that these answers take back because of their gang."""
    jobs = [
        fleet.shown[node][order.allocation].job
        for node, told in orders.items()
        for order in told.take_back
        if order.reason is TakeBackReason.GANG
    ]
    return sorted(job.index for job in jobs if job is not None)


def go_together(fleet: Fleet, orders: dict[str, Orders]) -> list[tuple[str, JobEnd]]:
    """End the jobs that were taken back, and return their ends."""
    ends = []
    for index in taken_back(orders, fleet):
        name, gone = end(fleet, index, JobResult.ABORTED)
        ends.append((name, gone))
        fleet.say(name, ends=[gone])
    return ends


def add_node(fleet: Fleet, name: str, size: float) -> None:
    fleet.nodes[name], fleet.shown[name] = cores(size, slots=99), {}
    fleet.seq[name] = fleet.applied[name] = 0
    known = {each: node.record for each, node in fleet.facts.nodes.items()}
    fleet.engine.on_nodes(known | {NodeName(name): NodeRecord(NodeName(name))}, fleet.now)
    fleet.say(name)
    fleet.refresh()


def a_full_fleet() -> Fleet:
    """Two jobs of the gang and three other jobs run on two nodes."""
    fleet = nodes(4, 4)
    fleet.start(mixed((3, 1), (2, 2), of_gang=(1,)))
    run(fleet, 3)
    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.RUNNING, [0, 1, 2, 3, 4])
    return fleet


def test_other_jobs_start_while_the_gang_lacks_resources_and_the_gang_starts_as_soon_as_it_fits() -> None:
    fleet = nodes(4, 1)
    filler = an_operation("filler", 1, cores(2))
    fleet.start(filler)
    fleet.say("a"), fleet.say("a")
    live = mixed((1, 1), (2, 2), of_gang=(1,))
    fleet.start(filler, live)
    run(fleet, 3)
    # The gang of four cores has two on one node. The other job has the core of the small node.
    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.GATHERING, [0])
    assert len(fleet.operation(MIXED).allocations) == 2
    # Nothing runs in resources that are only held.
    told = fleet.engine.on_question(WhereRequest(fleet.operation(MIXED).id), fleet.now).answer
    assert isinstance(told, OperationPlaces)
    assert (told.running_jobs, told.pending_jobs, told.tasks) == (1, 2, [TaskPlaces(1, 0), TaskPlaces(0, 2)])

    fleet.say("a", ends=[fleet.end("a", JobResult.COMPLETED, "filler")])
    run(fleet, 2)
    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.RUNNING, [0, 1, 2])


def test_while_the_gang_pauses_other_jobs_get_the_resources_that_were_held_for_it() -> None:
    fleet = nodes(2, 2, gang_hold_s=3.0)
    filler = an_operation("filler", 1, cores(2))
    fleet.start(filler)
    fleet.say("a"), fleet.say("a")
    fleet.start(filler, mixed((2, 1), (2, 2), of_gang=(1,)))
    run(fleet, 2)
    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.GATHERING, [])
    run(fleet, 3)

    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.PAUSED, [0, 1])
    assert fleet.reasons(MIXED)[0].startswith(
        "a gang of 2 jobs (task task-1): not all got resources in time; other operations may use them, and the gang tries again in "
    )
    assert fleet.reasons(MIXED)[0].endswith("; 2 other jobs of the operation run and count under the same fair share")


def test_the_gang_starts_first_and_the_other_jobs_use_what_is_left() -> None:
    fleet = nodes(4)
    fleet.start(mixed((4, 1), (1, 2), (1, 1), of_gang=(1, 2)))
    run(fleet, 2)

    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.RUNNING, [0, 4, 5])


@pytest.mark.parametrize("result", [JobResult.FAILED, JobResult.ABORTED, JobResult.LOST])
def test_when_a_job_of_the_gang_is_missing_the_gang_starts_again_and_the_other_jobs_go_on(result: JobResult) -> None:
    fleet = a_full_fleet()
    name, gone = end(fleet, 3, result)
    fleet.say(name, ends=[gone])
    ends = [(name, gone), *go_together(fleet, fleet.say_all())]
    assert [one.index for _, one in ends] == [3, 4]
    run(fleet, 2)
    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.WAITING, [0, 1, 2])

    fleet.learn(*(fleet.recorded(one, node) for node, one in ends))
    fleet.refresh()
    run(fleet, 2)
    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.RUNNING, [0, 1, 2, 3, 4])
    assert fleet.operation(MIXED).slots.attempt(0) == 1


@pytest.mark.parametrize("result", [JobResult.FAILED, JobResult.ABORTED, JobResult.LOST])
def test_when_another_job_is_missing_the_gang_goes_on_and_that_job_starts_again_alone(result: JobResult) -> None:
    fleet = a_full_fleet()
    name, gone = end(fleet, 1, result)
    fleet.say(name, ends=[gone])
    assert taken_back(fleet.say_all(), fleet) == []
    fleet.learn(fleet.recorded(gone, name))
    run(fleet, 2)

    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.RUNNING, [0, 1, 2, 3, 4])
    assert fleet.operation(MIXED).slots.attempt(3) == 1


def test_the_gang_waits_for_the_retry_of_its_own_jobs_only() -> None:
    """The ledger still pauses before it retries job 0, which does not belong to the gang."""
    fleet = nodes(4, 4)
    live = mixed((3, 1), (2, 2), of_gang=(1,))
    fleet.start(msgspec.structs.replace(live, done=b"\x01", pausing=0))
    run(fleet, 2)
    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.RUNNING, [1, 2, 3, 4])
    fleet.learn(JobsRetried(live.operation, [Retry(0, 2)], at_ms=1))
    run(fleet, 2)
    assert running(fleet) == [0, 1, 2, 3, 4]

    waiting = nodes(4, 4)
    waiting.start(msgspec.structs.replace(live, done=b"\x09", pausing=1))
    waiting.learn(JobsRetried(live.operation, [Retry(0, 2)], at_ms=1))
    run(waiting, 2)
    assert (waiting.phase(MIXED), running(waiting)) == (GangPhase.WAITING, [0, 1, 2])
    waiting.learn(JobsRetried(live.operation, [Retry(3, 2)], at_ms=1))
    run(waiting, 2)
    assert running(waiting) == [0, 1, 2, 3, 4]


def test_the_gang_does_not_wait_for_what_the_ledger_says_of_another_job() -> None:
    fleet = nodes(4)
    fleet.start(mixed((2, 1), (2, 2), of_gang=(1,)))
    gang = fleet.operation(MIXED).gang
    assert gang is not None
    slots = fleet.operation(MIXED).slots
    slots.take(1, task=0)
    slots.end(0, 1)
    assert is_whole(slots)
    slots.take(1, task=1)
    slots.end(2, 1)
    assert not is_whole(slots)


def test_the_gang_is_whole_while_another_job_is_in_doubt() -> None:
    live = mixed((2, 1), (2, 2), of_gang=(1,))
    slots = Operation(drawn_before(live), 0, TERM).slots
    assert not is_whole(slots)
    slots.release([IndexRun(2, 4)])
    assert (slots.in_doubt_count, is_whole(slots)) == (2, True)


def test_another_job_that_its_node_does_not_know_is_lost_and_the_gang_goes_on() -> None:
    fleet = a_full_fleet()
    name, _ = end(fleet, 1, JobResult.LOST)
    fleet.say(name)

    assert taken_back(fleet.say_all(), fleet) == []
    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.RUNNING, [0, 2, 3, 4])


def test_jobs_of_a_running_gang_are_no_reason_why_other_jobs_wait() -> None:
    fleet = nodes(4)
    fleet.start(mixed((3, 1), (2, 1), of_gang=(1,)))
    run(fleet)

    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.RUNNING, [0, 1, 3, 4])
    assert [words for words in fleet.reasons(MIXED) if "gang" in words] == []
    assert any(words.startswith("task task-0 (1 pending job): ") for words in fleet.reasons(MIXED))


def test_while_the_gang_pauses_free_resources_for_its_jobs_alone_are_of_no_use_to_the_operation() -> None:
    fleet = nodes(2, 2, gang_hold_s=3.0)
    filler = an_operation("filler", 1, cores(2))
    fleet.start(filler)
    fleet.say("a"), fleet.say("a")
    fleet.start(filler, mixed((2, 2), (3, 1), of_gang=(1,)))
    run(fleet, 2)
    assert (fleet.phase(MIXED), fleet.operation(MIXED).min_needed) == (GangPhase.GATHERING, cores(1))
    run(fleet, 3)

    assert (fleet.phase(MIXED), fleet.operation(MIXED).min_needed) == (GangPhase.PAUSED, cores(2))


def test_a_start_of_another_job_that_its_node_never_got_does_not_disturb_the_start_of_the_gang() -> None:
    fleet = nodes(2, 2, 1)
    fleet.start(mixed((1, 1), (2, 2), of_gang=(1,)))
    fleet.say("a"), fleet.say("b")
    orders = fleet.say("c", obeys=False)
    assert [start.slots[0].index for start in orders.start] == [0]
    fleet.say("a"), fleet.say("b")
    fleet.say("a"), fleet.say("b")
    # Node c has not shown its job yet, and this is no matter of the gang.
    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.RUNNING, [1, 2])
    fleet.say("c", applied=orders.seq - 1)

    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.RUNNING, [0, 1, 2])


def test_a_lost_start_of_another_job_is_ordered_again_as_a_start_of_its_own_while_the_gang_starts() -> None:
    fleet = nodes(2, 2, 1)
    fleet.start(mixed((1, 1), (2, 2), of_gang=(1,)))
    fleet.say("a"), fleet.say("b")
    orders = fleet.say("c", obeys=False)
    fleet.say("a")
    assert fleet.phase(MIXED) is GangPhase.STARTING
    again = fleet.say("c", applied=orders.seq - 1)

    assert [start.slots[0].index for start in again.start] == [0]
    assert again.start[0].allocation != orders.start[0].allocation


def test_a_gang_larger_than_the_cluster_does_not_hold_up_the_other_jobs_and_is_no_demand() -> None:
    fleet = nodes(4, 2)
    fleet.start(mixed((8, 1), (3, 3), of_gang=(1,)))
    run(fleet)

    assert len(running(fleet)) == 6
    assert fleet.reasons(MIXED)[0].startswith(
        "a gang of 3 jobs (task task-1) that cannot start, even if all other jobs end: "
        "all nodes that take its jobs together have resources for 1 of its jobs"
    )
    [wanted] = [item for item in fleet.cut_usage().items if item.operation == MIXED]
    assert (wanted.pending.cpu, wanted.min_needed.cpu) == (200, 100)

    add_node(fleet, "c", 12)
    run(fleet)
    assert running(fleet) == list(range(11))


def test_a_limit_of_the_operation_holds_for_the_gang_and_the_other_jobs_together() -> None:
    fleet = nodes(9)
    live = mixed((4, 1), (2, 2), of_gang=(1,))
    limited = msgspec.structs.replace(live.spec, resource_limits=PartialResources(user_slots=3))
    fleet.start(msgspec.structs.replace(live, spec=limited))
    run(fleet)

    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.RUNNING, [0, 4, 5])
    assert fleet.facts.pools.pool(PoolName("p")).charged.user_slots == 3


def test_other_jobs_start_while_resources_are_held_for_the_gang_of_another_operation() -> None:
    """The jobs of the other gang are too large for node c."""
    fleet = nodes(2, 1, 0.9)
    filler, first = an_operation("filler", 1), a_gang("first", 3)
    fleet.start(filler)
    fleet.say("a"), fleet.say("a")
    fleet.start(filler, first)
    fleet.say_all()
    assert fleet.phase("first") is GangPhase.GATHERING
    fleet.start(filler, first, mixed((2, 0.2), (2, 0.2), of_gang=(1,)))
    run(fleet)
    assert (fleet.phase(MIXED), running(fleet)) == (GangPhase.WAITING, [0, 1])
    assert fleet.reasons(MIXED)[0].startswith(
        "a gang of 2 jobs (task task-1): resources are held for another gang, first, for at most "
    )

    fleet.say("a", ends=[fleet.end("a", JobResult.COMPLETED, "filler")])
    run(fleet)
    assert (fleet.runs("first"), running(fleet)) == (3, [0, 1, 2, 3])


def test_a_gang_of_a_single_job_is_none() -> None:
    fleet = nodes(4)
    fleet.start(mixed((2, 1), (1, 1), of_gang=(1,)))
    run(fleet)

    assert fleet.operation(MIXED).gang is None
    assert running(fleet) == [0, 1, 2]


def test_a_drained_node_ends_its_jobs_and_only_the_gang_starts_again_elsewhere() -> None:
    fleet = nodes(4, 4, 4)
    fleet.start(mixed((4, 1), (2, 2), of_gang=(1,)))
    run(fleet, 3)
    name = node_of(fleet, 4)
    records = {each: node.record for each, node in fleet.facts.nodes.items()}
    records[NodeName(name)] = msgspec.structs.replace(records[NodeName(name)], drained=True)
    fleet.engine.on_nodes(records, fleet.now)
    gone_with_node, gone = end(fleet, 4, JobResult.ABORTED)
    fleet.say(gone_with_node, ends=[gone])
    before = [index for index in running(fleet) if index < 4]
    ends = [(gone_with_node, gone), *go_together(fleet, fleet.say_all())]
    fleet.learn(*(fleet.recorded(one, node) for node, one in ends))
    fleet.refresh()
    run(fleet, 2)

    assert [index for index in running(fleet) if index < 4] == before
    assert {4, 5} <= set(running(fleet))
    assert node_of(fleet, 4) != name


def test_a_suspended_operation_starts_no_job_and_goes_on_with_both_kinds_of_jobs() -> None:
    fleet = nodes(4)
    live = mixed((3, 1), (2, 1), of_gang=(1,))
    fleet.start(live)
    fleet.learn(OperationSuspended(live.operation, suspended=True, at_ms=1))
    run(fleet)
    assert running(fleet) == []
    fleet.learn(OperationSuspended(live.operation, suspended=False, at_ms=1))
    fleet.refresh()
    run(fleet)

    assert running(fleet) == [0, 1, 3, 4]


def test_the_next_allocator_takes_over_the_gang_and_the_other_jobs() -> None:
    after = taken_over(a_full_fleet(), mixed((3, 1), (2, 2), of_gang=(1,)))

    assert after.phase(MIXED) is GangPhase.RUNNING
    assert not any(orders.take_back for orders in after.say_all().values())
    gang = after.operation(MIXED).gang
    assert gang is not None
    assert sorted(index for one in gang.allocations for index in one.slots) == [3, 4]


def test_the_next_allocator_takes_back_a_part_of_a_gang_and_leaves_the_other_jobs() -> None:
    """Its predecessor was killed while it ordered the start: job 4 did not start."""
    fleet = a_full_fleet()
    end(fleet, 4, JobResult.LOST)
    after = taken_over(fleet, mixed((3, 1), (2, 2), of_gang=(1,)))
    after.now_s += 1
    after.tick(after.now_s)
    after.say_all()

    assert after.phase(MIXED) is GangPhase.BREAKING
    assert taken_back(after.say_all(), after) == [3]


def test_the_next_allocator_starts_the_gang_that_its_predecessor_only_held_resources_for() -> None:
    fleet = nodes(2, 2, 1)
    live = mixed((1, 1), (2, 2), of_gang=(1,))
    fleet.start(live)
    fleet.say_all()
    assert running(fleet) == [0]
    after = taken_over(fleet, live)
    run(after, 2)

    assert (after.phase(MIXED), running(after)) == (GangPhase.RUNNING, [0, 1, 2])


def test_ready_jobs_are_handed_over_but_not_a_part_of_the_gang() -> None:
    slots = JobSlots.from_ledger(mixed((2, 1), (3, 1), (1, 1), of_gang=(1,)), own_term=0)
    slots.release_doubt()
    whole = [(run.first, run.below) for run in not_given_out(slots)]
    slots.take(1, task=1)
    slots.take(1, task=0)
    part = [(run.first, run.below) for run in not_given_out(slots)]

    assert whole == [(0, 6)]
    assert part == [(1, 2), (5, 6)]


def test_the_check_of_the_facts_finds_an_allocation_that_is_counted_for_the_wrong_part() -> None:
    fleet = a_full_fleet()
    assert fleet.engine.check() == []
    gang = fleet.operation(MIXED).gang
    assert gang is not None
    del gang.allocations[next(iter(gang.allocations))]

    assert any(
        "its allocations differ from the allocations that hold its jobs" in words for words in fleet.engine.check()
    )
