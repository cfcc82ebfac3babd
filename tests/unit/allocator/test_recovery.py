"""What an allocator holds back after its start, until nodes have spoken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import ROOT_POOL, AllocationId, NodeName, OperationId
from headrace.pools.amounts import PartialResources
from headrace.resources import ZERO
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobEnd, JobKey, JobResult, JobSlot, RunningJob
from headrace.wire.ledger import DrawAnswer, LiveOperation
from headrace.wire.log import OperationStateChanged, StateCause
from headrace.wire.nodes import GiveUpNode, NodeRecord
from headrace.wire.operations import OnLostNode, OperationState
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace_allocator.effects import HeldTwice, LowerLease, Release, Report
from headrace_allocator.engine import AllocatorEngine
from tests.support.allocating import TERM, TREE, Desk, a_share, an_operation, cores, nothing_owed
from tests.support.clocks import at


def after_a_restart(
    *operations: LiveOperation, nodes: dict[str, bool], size: int = 4, limits_known: bool = True
) -> Desk:
    """An allocator that has just begun. Each of the nodes is drained or not; none has spoken."""
    desk = Desk(dict.fromkeys(nodes, cores(size, slots=9)))
    desk.engine = AllocatorEngine(TREE, TERM, desk.facts.timing)
    desk.engine.on_operations(operations, desk.now)
    records = {NodeName(name): NodeRecord(NodeName(name), drained=drained) for name, drained in nodes.items()}
    desk.engine.on_nodes(records, desk.now)
    if limits_known:
        desk.tell([nothing_owed(each) for each in operations], total=cores(size * len(nodes), slots=99))
    return desk


def running(name: str, operation: str, *jobs: int) -> AllocationReport:
    """An allocation that runs the first of the jobs and has the others still to run."""
    job = RunningJob(jobs[0], 1, 1, 1)
    unstarted = [JobSlot(index) for index in jobs[1:]]
    return AllocationReport(
        AllocationId(name), OperationId(operation), AllocationState.RUNNING, cores(1), job, unstarted
    )


def waiting(live: LiveOperation) -> LiveOperation:
    """Its jobs wait for a lost node to come back."""
    return msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, on_lost_node=OnLostNode.WAIT))


def test_after_a_lease_was_lowered_jobs_go_out_only_when_the_longer_one_is_over() -> None:
    """A runner keeps the longest lease that it was told."""
    desk = Desk({"n1": cores(1, slots=9), "n2": cores(1, slots=9)}, node_lease_s=100.0, longest_lease_s=600.0)
    desk.start(an_operation("op", jobs=1))
    desk.beat("n1")

    early = desk.tick(100.0 + 101)
    late = desk.tick(100.0 + 601)

    assert not [effect for effect in early if isinstance(effect, Report)]
    assert [effect.ends[0].node for effect in late if isinstance(effect, Report)] == ["n1"]


def test_a_lowered_lease_counts_once_the_longer_one_is_over_since_every_node_obeys_this_term() -> None:
    desk = Desk({"n1": cores(1, slots=9)}, node_lease_s=100.0, longest_lease_s=600.0)
    desk.start(an_operation("op", jobs=1))
    before = desk.tick(699.0)
    desk.now_s = 700.0
    desk.beat("n1")

    assert LowerLease(100_000) not in before
    assert LowerLease(100_000) in desk.tick(701.0)
    assert LowerLease(100_000) not in desk.tick(702.0)
    assert [effect for effect in desk.tick(801.0) if isinstance(effect, Report)]


def is_complete(desk: Desk) -> bool:
    return desk.cut_usage().frame.complete


def former(name: str, **changes: Any) -> LiveOperation:
    """An operation whose jobs a former allocator drew."""
    return an_operation(name, term=TERM - 1, **changes)


def test_a_job_that_a_drained_node_may_run_is_given_to_no_other() -> None:
    desk = after_a_restart(former("op", jobs=1), nodes={"drained": True, "open": False})
    desk.beat("open", term=TERM)

    early, _ = desk.beat("open", term=TERM)
    kept, _ = desk.beat("drained", term=TERM, allocations=[running("4-1", "op", 0)])

    assert early.start == []
    assert kept.take_back == []
    assert desk.operation("op").slots.out() == [JobSlot(0)]


def test_a_job_whose_end_found_no_room_in_a_heartbeat_is_in_doubt_until_it_comes() -> None:
    desk = after_a_restart(former("op", jobs=1), nodes={"crowded": False, "open": False})
    desk.beat("open", term=TERM)
    desk.beat("crowded", term=TERM, ends_waiting=1)

    assert desk.operation("op").slots.in_doubt() == [JobSlot(0)]
    end = JobEnd(OperationId("op"), 0, 1, AllocationId("4-1"), JobResult.COMPLETED)
    desk.beat("crowded", term=TERM, ends=[end])

    assert desk.operation("op").slots.in_doubt() == []
    assert desk.beat("open", term=TERM)[0].start == []


def test_a_dead_node_keeps_usage_incomplete_for_the_heartbeat_timeout_and_its_jobs_in_doubt_for_the_lease() -> None:
    desk = after_a_restart(former("op", jobs=2), nodes={"dead": False, "alive": False})
    desk.beat("alive", term=TERM)
    desk.tick(159.0)
    assert not is_complete(desk)

    desk.tick(161.0)
    orders, _ = desk.beat("alive", term=TERM)

    assert is_complete(desk)
    assert orders.start == []
    assert "recovering: 1 of 2" in desk.reasons("op")[0]
    desk.tick(701.0)
    assert desk.operation("op").slots.in_doubt() == []


def test_jobs_that_a_removed_node_may_run_stay_in_doubt_until_its_lease_is_over() -> None:
    """Its record may have gone with the bucket, while its runner goes on."""
    desk = after_a_restart(former("op", jobs=1), nodes={"gone": False, "alive": False})
    desk.beat("alive", term=TERM)
    desk.engine.on_nodes({NodeName("gone"): None}, desk.now)

    early, _ = desk.beat("alive", term=TERM)
    lost = [effect for effect in desk.tick(701.0) if isinstance(effect, Report)]

    assert early.start == []
    assert [end.end.index for effect in lost for end in effect.ends] == [0]
    assert "gone" not in desk.facts.nodes


def test_a_removed_node_that_still_holds_something_gets_nothing_new() -> None:
    desk = after_a_restart(nodes={"n1": False, "n2": False})
    desk.start(an_operation("op", jobs=1))
    (start,) = desk.beat("n1", term=TERM)[0].start
    desk.engine.on_nodes({NodeName("n1"): None}, desk.now)
    desk.start(an_operation("op", jobs=1), an_operation("next", jobs=1))

    orders, _ = desk.beat("n1", term=TERM, allocations=[running(start.allocation, "op", 0)])
    desk.tick(101.0)

    assert orders.start == []
    assert desk.node("n1").condition == "removed"


def limited(desk: Desk, share: float) -> None:
    """Pool p may have so much of the cluster's eight cores."""
    desk.tell(
        [ShareItem(ElementKind.POOL, "p", ROOT_POOL, limits=PartialResources(cpu=round(800 * share)))], cores(8, 99)
    )


def test_jobs_that_may_run_unseen_count_under_the_limits_of_pools() -> None:
    desk = after_a_restart(former("old", jobs=2), nodes={"n1": False, "n2": False})
    desk.start(former("old", jobs=2), an_operation("new", jobs=9))
    limited(desk, 3 / 8)

    during, _ = desk.beat("n1", term=TERM)
    desk.beat("n2", term=TERM, allocations=[running("4-1", "old", 0)])
    after, _ = desk.beat("n1", term=TERM)

    assert [start.operation for start in during.start] == ["new"]
    assert len(after.start) == 1
    assert desk.engine.check() == []


@pytest.mark.parametrize("of_operation", [False, True])
def test_nobody_loses_a_place_for_jobs_that_may_run_unseen_beyond_a_limit(of_operation: bool) -> None:
    """Most of a block may never have been given out. Limits keep room for all of it, and take nothing for it."""
    old = former("op", jobs=100)
    if of_operation:
        limits = PartialResources(cpu=400)
        old = msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, resource_limits=limits))
    desk = after_a_restart(old, nodes={"n1": False, "dead": False})
    limited(desk, 8 / 8 if of_operation else 4 / 8)
    shown = [running(f"4-{index}", "op", index) for index in range(3)]
    desk.beat("n1", term=TERM, allocations=shown)
    desk.tick(desk.now_s + 61)
    desk.now_s += 61

    orders, _ = desk.beat("n1", term=TERM, allocations=shown)

    assert (desk.facts.recovery.complete, desk.facts.recovery.doubt_over) == (True, False)
    assert (orders.take_back, orders.start) == ([], [])


def test_jobs_that_may_run_unseen_count_under_the_limits_of_their_operation() -> None:
    old = former("op", jobs=9, block=2)
    spec = msgspec.structs.replace(old.spec, resource_limits=PartialResources(cpu=300))
    desk = after_a_restart(msgspec.structs.replace(old, spec=spec), nodes={"n1": False, "n2": False})
    desk.engine.on_drawn(OperationId("op"), DrawAnswer(OperationId("op"), 9), desk.now)

    during, _ = desk.beat("n1", term=TERM)

    assert len(during.start) == 1


def test_an_operation_is_released_while_others_are_in_doubt_and_never_while_its_own_jobs_are() -> None:
    desk = after_a_restart(nodes={"dead": False})
    ending = OperationState.ABORTING

    effects = desk.start(an_operation("op-new", state=ending), former("op-old", jobs=1, state=ending))

    assert list(effects) == [Release([OperationId("op-new")])]
    assert Release([OperationId("op-old")]) not in desk.tick(101.0)


def test_jobs_that_a_former_allocator_added_to_a_known_allocation_are_adopted() -> None:
    """Its answer was obeyed after the first word in the new term."""
    desk = after_a_restart(former("op", jobs=2), nodes={"n1": False, "n2": False})
    desk.beat("n1", term=TERM - 1, allocations=[running("4-1", "op", 0)])

    desk.beat("n1", term=TERM, allocations=[running("4-1", "op", 0, 1)])
    desk.beat("n2", term=TERM)
    orders, _ = desk.beat("n2", term=TERM)

    assert desk.operation("op").slots.out() == [JobSlot(0), JobSlot(1)]
    assert orders.start == []


def held_by_two() -> Desk:
    """A job runs on n1, and n2 shows it as well."""
    desk = after_a_restart(former("op", jobs=1), nodes={"n1": False, "n2": False})
    desk.beat("n1", term=TERM, allocations=[running("4-1", "op", 0)])
    return desk


def test_a_job_that_another_allocation_holds_is_taken_back_and_alarmed_once() -> None:
    desk = held_by_two()

    orders, effects = desk.beat("n2", term=TERM, allocations=[running("4-2", "op", 0)])
    _, later = desk.beat("n2", term=TERM, allocations=[running("4-2", "op", 0)])

    assert [one.allocation for one in orders.take_back] == ["4-2"]
    alarm = HeldTwice(NodeName("n2"), AllocationId("4-2"), JobKey(OperationId("op"), 0))
    assert [alarm in effects, alarm in later] == [True, False]
    assert desk.engine.twice_held_jobs == 1


@pytest.mark.parametrize("result", JobResult)
def test_the_end_of_a_job_that_was_taken_back_as_held_twice_is_no_end_of_the_other(result: JobResult) -> None:
    desk = held_by_two()
    desk.beat("n2", term=TERM, allocations=[running("4-2", "op", 0)])
    end = JobEnd(OperationId("op"), 0, 1, AllocationId("4-2"), result)

    orders, effects = desk.beat("n2", term=TERM, ends=[end])

    assert orders.forget.ends == [end.key]
    assert effects == []
    assert desk.operation("op").slots.out() == [JobSlot(0)]


@pytest.mark.parametrize("nodes", [{}, {"n1": False}, {"n1": True, "n2": False}])
def test_without_any_node_the_reason_is_that_and_not_fair_share(nodes: dict[str, bool]) -> None:
    desk = after_a_restart(nodes=nodes, limits_known=False)
    desk.start(an_operation("op", jobs=4))
    desk.tell([a_share("op", 0.0)], total=ZERO)
    first, *others = desk.reasons("op")

    assert not any("fair_share" in words for words in (first, *others))
    assert any("no node takes jobs" in words for words in (first, *others))


def test_nothing_starts_before_the_limits_of_pools_are_known() -> None:
    desk = after_a_restart(nodes={"n1": False}, limits_known=False)
    desk.start(an_operation("op", jobs=4))

    early, _ = desk.beat("n1")
    assert "waits for fair_share to report the limits of pools" in desk.reasons("op")[1]
    # Of a fair_share that has not heard of any node.
    desk.tell([a_share("op", 1.0)], total=ZERO)
    too_early, _ = desk.beat("n1")
    limits = ShareItem(ElementKind.POOL, "p", ROOT_POOL, limits=PartialResources(cpu=200))
    desk.tell([limits], total=cores(4, slots=9))
    orders, _ = desk.beat("n1")

    assert early.start == too_early.start == []
    assert len(orders.start) == 2


def aborted(name: str) -> OperationStateChanged:
    return OperationStateChanged(OperationId(name), OperationState.ABORTING, StateCause.ABORTED_BY_USER, "", 1)


def test_an_operation_that_waits_for_a_lost_node_is_released_when_it_is_aborted() -> None:
    desk = after_a_restart(nodes={"n1": False})
    desk.start(waiting(an_operation("op", jobs=1)))
    desk.beat("n1")
    assert len(desk.operation("op").allocations) == 1
    desk.tick(800.0)
    assert len(desk.operation("op").allocations) == 1

    desk.learn(aborted("op"))

    assert Release([OperationId("op")]) in desk.tick(801.0)


def test_jobs_in_doubt_of_an_operation_that_waits_for_lost_nodes_stay_so_until_the_node_speaks() -> None:
    desk = after_a_restart(waiting(former("op", jobs=2)), nodes={"dead": False})

    effects = desk.tick(800.0)
    assert not [effect for effect in effects if isinstance(effect, Report)]
    assert desk.operation("op").slots.in_doubt() == [JobSlot(0), JobSlot(1)]
    desk.beat("dead", term=TERM, allocations=[running("4-1", "op", 0)])
    desk.tick(801.0)

    assert desk.operation("op").slots.in_doubt() == []
    assert desk.operation("op").slots.is_out(0)


def test_an_operation_whose_jobs_in_doubt_wait_for_a_lost_node_is_released_when_it_is_aborted() -> None:
    desk = after_a_restart(waiting(former("op", jobs=2)), nodes={"dead": False})
    desk.tick(800.0)

    desk.learn(aborted("op"))

    assert Release([OperationId("op")]) in desk.tick(801.0)


def test_jobs_in_doubt_wait_for_no_node_that_was_removed() -> None:
    desk = after_a_restart(waiting(former("op", jobs=2)), nodes={"dead": False})
    desk.tick(800.0)

    desk.engine.on_give_up_node(GiveUpNode(NodeName("dead")), at(800.5))
    effects = desk.tick(801.0)

    assert [len(effect.ends) for effect in effects if isinstance(effect, Report)] == [2]
    assert desk.operation("op").slots.in_doubt() == []
