"""What an allocator holds back after its start, until nodes have spoken."""

from __future__ import annotations

from typing import Any

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobSlot, RunningJob
from headrace.wire.ledger import LiveOperation
from headrace.wire.nodes import NodeRecord
from headrace.wire.operations import OperationState
from headrace_allocator.effects import Release
from headrace_allocator.engine import AllocatorEngine
from tests.support.allocating import TERM, TREE, Desk, an_operation, cores


def after_a_restart(*operations: LiveOperation, nodes: dict[str, bool], size: int = 4) -> Desk:
    """An allocator that has just begun. Each of the nodes is drained or not; none has spoken."""
    desk = Desk(dict.fromkeys(nodes, cores(size, slots=9)))
    desk.engine = AllocatorEngine(TREE, TERM, desk.facts.timing)
    desk.engine.on_operations(operations, desk.moment)
    records = {NodeName(name): NodeRecord(NodeName(name), drained=drained) for name, drained in nodes.items()}
    desk.engine.on_nodes(records, desk.moment)
    desk.refresh()
    return desk


def running(name: str, operation: str, *jobs: int) -> AllocationReport:
    """An allocation that runs the first of the jobs and has the others still to run."""
    job = RunningJob(jobs[0], 1, 1, 1)
    unstarted = [JobSlot(index) for index in jobs[1:]]
    return AllocationReport(
        AllocationId(name), OperationId(operation), AllocationState.RUNNING, cores(1), job, unstarted
    )


def is_complete(desk: Desk) -> bool:
    return desk.engine.on_usage_due(desk.moment).answer.frame.complete


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
    assert desk.operation("op").slots.out == {0: 1}


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
    assert desk.operation("op").slots.in_doubt == {}


def test_an_operation_is_released_while_others_are_in_doubt_and_never_while_its_own_jobs_are() -> None:
    desk = after_a_restart(nodes={"dead": False})
    ending = OperationState.ABORTING

    effects = desk.start(an_operation("op-new", state=ending), former("op-old", jobs=1, state=ending))

    assert list(effects) == [Release([OperationId("op-new")])]
    assert Release([OperationId("op-old")]) not in desk.tick(101.0)
