"""Decisions of admission that need no server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headrace.ids import ROOT_POOL, AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.resources import Resources
from headrace.runtime.engine import Outcome
from headrace.wire import ledger
from headrace.wire.codec import encode
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import EphemeralPoolSet, JobsEnded, OperationStarted, OperationStateChanged
from headrace.wire.nodes import Enrol, NodeRecord, NodeTerms
from headrace.wire.operations import (
    AbortOperation,
    ListOperations,
    OperationList,
    OperationSpec,
    OperationState,
    StartOperation,
)
from headrace.wire.placements import EphemeralPool, TreePlacement
from headrace.wire.refusals import NotFound, StaleTerm, WrongState
from headrace_admission import queries
from headrace_admission.engine import AdmissionEngine
from headrace_admission.log.byte_budget import PAGE_OF_OPERATIONS_BYTES, PAGE_OF_WHOLE_BYTES
from headrace_admission.log.checkpoint import Checkpoint, read_page
from headrace_admission.nodes.enrolment import node_record
from headrace_admission.state.operation import Operation
from headrace_admission.state.rules import PoolRules, TreeRules
from headrace_admission.state.state import Page, Restored
from headrace_admission.state.tree_book import TreeBook
from tests.support.clocks import at
from tests.unit.admission.desk import Desk, oid

TREE = TreeName("default")


def an_engine(keep_finished: int = 10_000) -> AdmissionEngine:
    engine = AdmissionEngine(keep_finished=keep_finished)
    engine.on_configuration(TREE, TreeRules(pools={PoolName("research"): PoolRules()}), at(0, 0))
    return engine


def started(engine: AdmissionEngine, name: str, jobs: int = 2, pool: str = "research", **spec: Any) -> Operation:
    wanted = OperationSpec(PoolName(pool), ["true"], jobs, Resources(user_slots=1, cpu=100), **spec)
    engine.on_start(StartOperation(OperationId(name), wanted), "anna", at(0, 1))
    return engine.state.operations[OperationId(name)]


def ended(engine: AdmissionEngine, name: str, index: int, result: JobResult, attempt: int = 1) -> list[Any]:
    end = JobEnd(OperationId(name), index, attempt, AllocationId("1-1"), result)
    report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
    return list(engine.on_report(report, at(0, 2)).effects)


def test_an_operation_is_completed_by_its_last_job() -> None:
    engine = an_engine()
    operation = started(engine, "operation-1")

    ended(engine, "operation-1", 0, JobResult.COMPLETED)
    assert not engine.state.operations[operation.id].ended_at_ms
    events = ended(engine, "operation-1", 1, JobResult.COMPLETED)

    assert operation.state is OperationState.COMPLETED
    assert [type(event) for event in events] == [JobsEnded, OperationStateChanged]
    assert engine.state.live == {}


def test_what_we_ended_or_lost_counts_against_nobody_and_runs_again() -> None:
    engine = an_engine()
    operation = started(engine, "operation-1", max_failed_job_count=1)

    ended(engine, "operation-1", 0, JobResult.ABORTED)
    ended(engine, "operation-1", 0, JobResult.LOST, attempt=2)

    assert operation.state is OperationState.RUNNING
    assert list(operation.ledger.attempts.items()) == [(0, 3)]


def test_a_job_that_ends_while_its_operation_is_being_aborted_is_not_retried() -> None:
    engine = an_engine()
    operation = started(engine, "operation-1")
    engine.on_abort(AbortOperation(OperationId("operation-1"), "a mistake"), "anna", at(0, 3))

    ended(engine, "operation-1", 0, JobResult.ABORTED)
    engine.on_released(ledger.Released(TREE, 1, [OperationId("operation-1")]), at(0, 4))

    assert not list(operation.ledger.attempts.items())
    assert operation.state is OperationState.ABORTED
    assert operation.reason == "aborted by anna: a mistake"
    assert operation.ended_at_ms == 4


def reported(*ends: JobEnd) -> ledger.ReportEnds:
    return ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end) for end in ends])


def an_end(index: int, result: JobResult, attempt: int = 1) -> JobEnd:
    return JobEnd(OperationId("operation-1"), index, attempt, AllocationId("1-1"), result)


def test_an_end_that_no_attempt_follows_counts_once_however_often_it_is_reported() -> None:
    """Four jobs fail where three are too many, and the report comes three times, the last time after a replay."""
    engine, replayed = an_engine(), an_engine()
    operation = started(engine, "operation-1", jobs=10, max_failed_job_count=3)
    report = reported(*(an_end(index, JobResult.FAILED) for index in range(4)))

    events = [engine.on_report(report, at(0, 2)).effects for _ in range(2)]
    started(replayed, "operation-1", jobs=10, max_failed_job_count=3)
    for event in events[0]:
        replayed.state.apply(event)
    again = replayed.on_report(report, at(0, 2)).effects

    assert operation.ledger.counts[JobResult.FAILED] == 4
    assert (events[1], again) == ([], [])
    assert replayed.state.operations[operation.id].to_record() == operation.to_record()
    assert "4 failed jobs" in operation.reason


def test_a_job_that_was_aborted_with_its_operation_counts_once_after_a_checkpoint_too() -> None:
    engine, restored = an_engine(), an_engine()
    started(engine, "operation-1")
    engine.on_abort(AbortOperation(OperationId("operation-1")), "anna", at(0, 3))
    engine.on_report(reported(an_end(0, JobResult.ABORTED)), at(0, 4))

    restored.on_restored(Page([each.to_record() for each in engine.state.operations.values()]), at(0, 5))
    restored.on_restored(Restored(1, {TREE: 1}), at(0, 5))
    again = restored.on_report(reported(an_end(0, JobResult.ABORTED)), at(0, 6))

    assert again.effects == []
    assert restored.state.operations[OperationId("operation-1")].ledger.counts[JobResult.ABORTED] == 1


def test_an_allocator_that_was_succeeded_is_refused_after_a_restart_too() -> None:
    """Its successor has drawn nothing yet: the attach alone must be remembered."""
    desk = Desk({"research": {}})
    desk.started("a", pool="research", job_count=1_000)
    desk.record(desk.engine.on_attach(ledger.Attach(TREE, 6), at(0, 3)).effects)

    for engine in (desk.engine, desk.replayed()):
        drawn = engine.on_draw(ledger.DrawBlock(TREE, 5, oid("a"), 512), at(0, 4))
        reported = engine.on_report(ledger.ReportEnds(TREE, 5, []), at(0, 4))
        assert drawn == reported == Outcome(StaleTerm(role="allocator.default", known=6, got=5), [])


def test_two_ends_of_one_job_in_one_report_are_taken_in_their_order() -> None:
    engine, replayed = an_engine(), an_engine()
    operation = started(engine, "operation-1", jobs=2)
    started(replayed, "operation-1", jobs=2)
    first, second = an_end(0, JobResult.LOST), an_end(0, JobResult.COMPLETED, attempt=2)

    outcome = engine.on_report(reported(first, first, second), at(0, 2))
    for event in outcome.effects:
        replayed.state.apply(event)

    assert [event.ends[0].end for event in outcome.effects if isinstance(event, JobsEnded)] == [first, second]
    assert (operation.ledger.counts[JobResult.LOST], operation.ledger.done_count) == (1, 1)
    assert replayed.state.operations[operation.id].to_record() == operation.to_record()


def test_ends_of_jobs_that_were_never_out_are_counted_and_change_nothing() -> None:
    engine = an_engine()
    started(engine, "operation-1")
    engine.on_attach(ledger.Attach(TREE, 1), at(0, 2))

    outcome = engine.on_report(reported(an_end(0, JobResult.FAILED, attempt=2)), at(0, 2))

    assert outcome.effects == []
    assert {figure.name: figure.value for figure in engine.figures()}["impossible_ends"] == 1


def test_figures_count_operations_by_their_states() -> None:
    engine = an_engine()
    started(engine, "operation-1")
    started(engine, "operation-2", jobs=1)
    ended(engine, "operation-2", 0, JobResult.COMPLETED)

    figures = {figure.name: figure.value for figure in engine.figures()}

    assert (figures["operations_running"], figures["operations_completed"], figures["waiting"]) == (1, 1, 0)


def test_a_broken_operation_is_told_by_itself() -> None:
    engine = an_engine()
    operation = started(engine, "operation-1", jobs=10)
    started(engine, "operation-2")
    operation.ledger.done_count = 7

    found = [words for check in engine.checks() if (words := check())]

    assert [words[0] for words in found] == ["operation-1: done_count 7 differs from the bits set"]
    assert engine.check() == [words for each in found for words in each]


@pytest.mark.parametrize(
    ("breaks", "told"),
    [
        (lambda book: book.remove(oid("a")), "operation-a is not in tree default as its placement says"),
        (lambda book: book.in_pool["p"].pop(oid("a")), "p counts (3, 1, 0), but it and the pools below have (2, 0, 0)"),
        (lambda book: book.members.pop(oid("a")), "operation-a is listed in p, but is not a member there"),
        (
            lambda book: book.queues.update(p=dict(reversed(book.queues["p"].items()))),
            "not in the order of the tickets",
        ),
        (lambda book: book.queues["p"].pop(oid("b")), "operation-b is not in tree default as its placement says"),
        (
            lambda book: book.ephemeral.put(EphemeralPool(PoolName("e"), ROOT_POOL)),
            "ephemeral pool e is empty",
        ),
        (
            lambda book: book.place(oid("x"), "anna", True, TreePlacement(TREE, PoolName("p"), 9)),
            "operation-x is in p, but is not a live operation of the tree",
        ),
    ],
)
def test_whatever_breaks_in_the_book_of_a_tree_is_told(breaks: Callable[[TreeBook], object], told: str) -> None:
    """Each check looks at one operation or at one pool: at a whole tree of 10,000 operations it kept the loop for 120 ms."""
    desk = Desk({"p": {"max_running_operation_count": 1}})
    desk.started("a", "b", "c", pool="p")

    breaks(desk.state.books[TREE])

    assert any(told in words for words in desk.engine.check()), desk.engine.check()


def test_aborting_twice_is_no_error() -> None:
    engine = an_engine()
    started(engine, "operation-1")
    engine.on_abort(AbortOperation(OperationId("operation-1")), "anna", at(0, 3))

    again = engine.on_abort(AbortOperation(OperationId("operation-1")), "anna", at(0, 4))

    assert again.effects == []


def test_replaying_the_events_gives_the_same_state_and_twice_changes_nothing() -> None:
    engine = an_engine()
    events: list[Any] = []
    spec = OperationSpec(PoolName("research"), ["true"], 3, Resources(user_slots=1, cpu=100))
    events += engine.on_start(StartOperation(OperationId("operation-1"), spec), "anna", at(0, 1)).effects
    events += ended(engine, "operation-1", 0, JobResult.FAILED)
    events += ended(engine, "operation-1", 1, JobResult.COMPLETED)
    events += engine.on_abort(AbortOperation(OperationId("operation-1")), "anna", at(0, 3)).effects

    replayed = an_engine()
    for event in [event for event in events for _ in range(2)]:
        replayed.state.apply(event)

    record = engine.state.operations[OperationId("operation-1")].to_record()
    assert replayed.state.operations[OperationId("operation-1")].to_record() == record
    assert isinstance(events[0], OperationStarted)


def test_the_oldest_finished_operations_are_forgotten_first() -> None:
    engine = an_engine(keep_finished=2)
    for number in range(4):
        started(engine, f"operation-{number}", jobs=1)
        ended(engine, f"operation-{number}", 0, JobResult.COMPLETED)

    assert list(engine.state.operations) == ["operation-2", "operation-3"]


def test_the_operation_that_ended_first_is_forgotten_first_after_a_restart_too() -> None:
    desk = Desk()
    desk.engine = an_engine(keep_finished=2)
    desk.started("long", "short", "other")
    desk.finish("short")
    desk.finish("long")
    saved, desk.engine = Checkpoint(desk.state), an_engine(keep_finished=2)
    for page in saved.pages():
        desk.engine.on_restored(read_page(page), at(0))
    desk.engine.on_restored(Restored(saved.sequence, saved.allocator_terms), at(0))

    desk.finish("other")

    assert list(desk.state.operations) == [oid("long"), oid("other")]


def test_lists_are_newest_first_filtered_and_paged() -> None:
    engine = an_engine()
    for number in range(5):
        started(engine, f"operation-{number}", jobs=1, pool="research" if number % 2 else "other")
    ended(engine, "operation-3", 0, JobResult.COMPLETED)

    first = queries.list_operations(engine.state, ListOperations(limit=2))
    rest = queries.list_operations(engine.state, ListOperations(limit=10, after="operation-3"))
    live = queries.list_operations(engine.state, ListOperations(pool="research", live=True))

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
        page = queries.whole_operations(
            engine.state, ledger.WholeOperationsRequest(TREE, names[-1] if names else ""), 1
        )
        names += [operation.operation for operation in page.operations]
        if not page.more:
            break

    assert names == [f"operation-{number:02}" for number in range(30)]


def test_a_page_for_services_is_brief_and_passes_over_operations_of_other_trees() -> None:
    """People wait for their answers while a page is made: 700 operations at a time kept them for 20 ms."""
    engine = an_engine()
    engine.on_configuration(TreeName("other"), TreeRules(pools={PoolName("research"): PoolRules()}), at(0, 0))
    for number in range(80):
        tree = TREE if number % 2 == 0 and number < 60 else TreeName("other")
        started(engine, f"operation-{number:02}", tree=tree, environment={"LONG": "x" * 8_000})

    names: list[str] = []
    while True:
        page = queries.whole_operations(engine.state, ledger.WholeOperationsRequest(TREE, (names or [""])[-1]), 1)
        assert len(encode(page)) <= PAGE_OF_WHOLE_BYTES + 1_000
        names += [operation.operation for operation in page.operations]
        if not page.more:
            break

    assert names == [f"operation-{number:02}" for number in range(0, 60, 2)]


def test_pages_of_ephemeral_pools_come_before_those_of_operations() -> None:
    """Some 1,100 of them once made a first page that nobody could send: allocator and fair_share never finished starting."""
    pools = [PoolName(f"pool-{number:05}" + "x" * 100) for number in range(3_000)]
    engine = an_engine()
    for number, pool in enumerate(pools):
        engine.state.apply(EphemeralPoolSet(TREE, EphemeralPool(pool, ROOT_POOL)))
        started(engine, f"operation-{number:05}", pool=pool)

    request = ledger.WholeOperationsRequest(TREE)
    told: list[str] = []
    operations: list[str] = []
    while True:
        page = queries.whole_operations(engine.state, request, 1)
        assert len(encode(page)) <= PAGE_OF_OPERATIONS_BYTES + 1_000
        told += [pool.name for pool in page.ephemeral_pools]
        operations += [operation.operation for operation in page.operations]
        if not page.more:
            break
        request = ledger.WholeOperationsRequest(TREE, (operations or [""])[-1], told[-1])

    assert told == pools
    assert operations == [f"operation-{number:05}" for number in range(3_000)]


def test_a_node_stays_in_its_tree_and_keeps_its_drain() -> None:
    known = NodeRecord(NodeName("n1"), TREE, tags=["ssd"], drained=True, enrolled_at_ms=5)

    again = node_record(Enrol(NodeName("n1"), TREE, ["gpu", "gpu"]), known, at(0, 9))
    elsewhere = node_record(Enrol(NodeName("n1"), TreeName("other")), known, at(0, 9))

    assert again == NodeRecord(NodeName("n1"), TREE, tags=["gpu"], drained=True, enrolled_at_ms=5)
    assert isinstance(elsewhere, WrongState)


def test_a_node_that_joined_by_a_token_is_what_that_says_whatever_its_agent_claims() -> None:
    terms = NodeTerms(tags=["gpu"])
    known = NodeRecord(NodeName("n1"), TREE, tags=["gpu"], key="U", terms=terms)

    claimed = node_record(Enrol(NodeName("n1"), TREE, ["fast", "gpu"], "m"), known, at(0, 9))
    elsewhere = node_record(Enrol(NodeName("n1"), TreeName("other"), machine="m"), known, at(0, 9))

    contained = node_record(Enrol(NodeName("n1"), TREE, ["container:podman", "gpu"], "m"), known, at(0, 9))
    assert claimed == msgspec.structs.replace(known, cut_tags=["fast"], machine="m")
    assert contained == msgspec.structs.replace(known, tags=["gpu", "container:podman"], machine="m")
    full = msgspec.structs.replace(known, terms=NodeTerms(tags=[f"t{number}" for number in range(100)]))
    crowded = node_record(Enrol(NodeName("n1"), TREE, ["container:podman"], "m"), full, at(0, 9))
    assert isinstance(crowded, NodeRecord)
    assert len(crowded.tags) == 100
    assert isinstance(elsewhere, WrongState)


def test_a_node_is_as_isolated_as_its_agent_said_last_and_not_if_that_says_nothing() -> None:
    enrol = Enrol(NodeName("n1"), TREE, isolated=True, isolation_detail="jobs have accounts")

    known = node_record(enrol, None, at(0, 9))
    assert isinstance(known, NodeRecord)
    assert (known.isolated, known.isolation_detail) == (True, "jobs have accounts")
    of_token = msgspec.structs.replace(known, terms=NodeTerms(), key="U")
    for record in (known, of_token):
        assert node_record(enrol, record, at(0, 10)) == record
        before = node_record(Enrol(NodeName("n1"), TREE), record, at(0, 10))
        assert before == msgspec.structs.replace(record, isolated=False, isolation_detail="")


def test_an_operation_of_an_unknown_tree_is_refused_with_the_nearest_name() -> None:
    engine = an_engine()
    spec = OperationSpec(PoolName("p"), ["true"], 1, tree=TreeName("defualt"))

    answer = engine.on_start(StartOperation(OperationId("operation-1"), spec), "anna", at(0, 1)).answer

    assert answer == NotFound("tree", "defualt", near=["default"])
