"""Decisions of admission that need no server."""

from __future__ import annotations

from typing import Any

from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.resources import Resources
from headrace.wire import ledger
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import JobsEnded, OperationStarted, OperationStateChanged
from headrace.wire.nodes import Enrol, NodeRecord
from headrace.wire.operations import (
    AbortOperation,
    ListOperations,
    OperationList,
    OperationSpec,
    OperationState,
    StartOperation,
)
from headrace.wire.refusals import NotFound, WrongState
from headrace_admission.engine import AdmissionEngine
from headrace_admission.state.operation import Operation
from headrace_admission.state.rules import PoolRules, TreeRules

TREE = TreeName("default")


def an_engine(keep_finished: int = 10_000) -> AdmissionEngine:
    engine = AdmissionEngine(keep_finished=keep_finished)
    engine.on_pools(TREE, TreeRules(pools={PoolName("research"): PoolRules()}), 0)
    return engine


def started(engine: AdmissionEngine, name: str, jobs: int = 2, pool: str = "research", **spec: Any) -> Operation:
    wanted = OperationSpec(PoolName(pool), ["true"], jobs, Resources(user_slots=1, cpu=100), **spec)
    engine.on_start(StartOperation(OperationId(name), wanted), "anna", 1)
    return engine.operations[OperationId(name)]


def ended(engine: AdmissionEngine, name: str, index: int, result: JobResult, attempt: int = 1) -> list[Any]:
    end = JobEnd(OperationId(name), index, attempt, AllocationId("1-1"), result)
    report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
    return engine.on_report(report, 2).events


def test_an_operation_is_completed_by_its_last_job() -> None:
    engine = an_engine()
    operation = started(engine, "operation-1")

    ended(engine, "operation-1", 0, JobResult.COMPLETED)
    assert not engine.operations[operation.id].ended_at_ms
    events = ended(engine, "operation-1", 1, JobResult.COMPLETED)

    assert operation.state is OperationState.COMPLETED
    assert [type(event) for event in events] == [JobsEnded, OperationStateChanged]
    assert engine.live == {}


def test_what_we_ended_or_lost_counts_against_nobody_and_runs_again() -> None:
    engine = an_engine()
    operation = started(engine, "operation-1", max_failed_job_count=1)

    ended(engine, "operation-1", 0, JobResult.ABORTED)
    ended(engine, "operation-1", 0, JobResult.LOST, attempt=2)

    assert operation.state is OperationState.RUNNING
    assert operation.ledger.attempts == {0: 3}


def test_a_job_that_ends_while_its_operation_is_being_aborted_is_not_retried() -> None:
    engine = an_engine()
    operation = started(engine, "operation-1")
    engine.on_abort(AbortOperation(OperationId("operation-1"), "a mistake"), "anna", 3)

    ended(engine, "operation-1", 0, JobResult.ABORTED)
    engine.on_released(ledger.Released(TREE, 1, [OperationId("operation-1")]), 4)

    assert operation.ledger.attempts == {}
    assert operation.state is OperationState.ABORTED
    assert operation.reason == "aborted by anna: a mistake"
    assert operation.ended_at_ms == 4


def test_aborting_twice_is_no_error() -> None:
    engine = an_engine()
    started(engine, "operation-1")
    engine.on_abort(AbortOperation(OperationId("operation-1")), "anna", 3)

    again = engine.on_abort(AbortOperation(OperationId("operation-1")), "anna", 4)

    assert again.events == []


def test_replaying_the_events_gives_the_same_state_and_twice_changes_nothing() -> None:
    engine = an_engine()
    events: list[Any] = []
    spec = OperationSpec(PoolName("research"), ["true"], 3, Resources(user_slots=1, cpu=100))
    events += engine.on_start(StartOperation(OperationId("operation-1"), spec), "anna", 1).events
    events += ended(engine, "operation-1", 0, JobResult.FAILED)
    events += ended(engine, "operation-1", 1, JobResult.COMPLETED)
    events += engine.on_abort(AbortOperation(OperationId("operation-1")), "anna", 3).events

    replayed = an_engine()
    for event in [event for event in events for _ in range(2)]:
        replayed.apply(event)

    record = engine.operations[OperationId("operation-1")].to_record()
    assert replayed.operations[OperationId("operation-1")].to_record() == record
    assert isinstance(events[0], OperationStarted)


def test_the_oldest_finished_operations_are_forgotten_first() -> None:
    engine = an_engine(keep_finished=2)
    for number in range(4):
        started(engine, f"operation-{number}", jobs=1)
        ended(engine, f"operation-{number}", 0, JobResult.COMPLETED)

    assert list(engine.operations) == ["operation-2", "operation-3"]


def test_lists_are_newest_first_filtered_and_paged() -> None:
    engine = an_engine()
    for number in range(5):
        started(engine, f"operation-{number}", jobs=1, pool="research" if number % 2 else "other")
    ended(engine, "operation-3", 0, JobResult.COMPLETED)

    first = engine.on_list(ListOperations(limit=2))
    rest = engine.on_list(ListOperations(limit=10, after="operation-3"))
    live = engine.on_list(ListOperations(pool="research", live=True))

    assert isinstance(first, OperationList)
    assert isinstance(rest, OperationList)
    assert isinstance(live, OperationList)
    assert ([view.operation for view in first.operations], first.more) == (["operation-4", "operation-3"], True)
    assert [view.operation for view in rest.operations] == ["operation-2", "operation-1", "operation-0"]
    assert [view.operation for view in live.operations] == ["operation-1"]


def test_pages_of_live_operations_follow_each_other_by_id() -> None:
    engine = an_engine()
    for number in range(30):
        started(engine, f"operation-{number:02}", environment={"LONG": "x" * 50_000})

    names: list[str] = []
    while True:
        page = engine.on_whole(ledger.WholeOperationsRequest(TREE, names[-1] if names else ""), 1, 1)
        names += [operation.operation for operation in page.operations]
        if not page.more:
            break

    assert names == [f"operation-{number:02}" for number in range(30)]


def test_a_node_stays_in_its_tree_and_keeps_its_drain() -> None:
    engine = an_engine()
    known = NodeRecord(NodeName("n1"), TREE, tags=["ssd"], drained=True, enrolled_at_ms=5)

    again = engine.on_enrol(Enrol(NodeName("n1"), TREE, ["gpu", "gpu"]), known, 9)
    elsewhere = engine.on_enrol(Enrol(NodeName("n1"), TreeName("other")), known, 9)

    assert again == NodeRecord(NodeName("n1"), TREE, tags=["gpu"], drained=True, enrolled_at_ms=5)
    assert isinstance(elsewhere, WrongState)


def test_an_operation_of_an_unknown_tree_is_refused_with_the_nearest_name() -> None:
    engine = an_engine()
    spec = OperationSpec(PoolName("p"), ["true"], 1, tree=TreeName("defualt"))

    answer = engine.on_start(StartOperation(OperationId("operation-1"), spec), "anna", 1).answer

    assert answer == NotFound("tree", "defualt", near=["default"])
