"""Jobs that wait for the jobs of another operation with the same indexes (`run --after-each`)."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.ids import AllocationId, NodeName, PoolName, TreeName
from headrace.wire import ledger
from headrace.wire import operations as wire
from headrace.wire.codec import decode, encode
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import BlockDrawn, IndexesReturned, IndexRun, JobsEnded
from headrace.wire.operation_spec import LARGEST_JOB_COUNT
from headrace.wire.operations import OperationState
from headrace.wire.refusals import BadRequest, NotFound, WrongState
from headrace_admission import queries
from headrace_admission.decisions.upstream import MOST_FOLLOWERS
from headrace_admission.engine import AdmissionEngine
from headrace_admission.state.index_owners import IndexOwners
from headrace_admission.state.operation import OperationRecord
from headrace_admission.state.rules import rules_of
from headrace_admission.state.state import Page, Restored
from tests.unit.admission.desk import TREE, Desk, oid
from tests.unit.admission.test_run_after import after

PENDING, RUNNING, FAILED = OperationState.PENDING, OperationState.RUNNING, OperationState.FAILED


class Jobs(Desk):
    """A desk with an allocator that leases every job, and ends jobs by their index."""

    def end(self, name: str, *indexes: int, result: JobResult = JobResult.COMPLETED, attempt: int = 1) -> None:
        ends = [JobEnd(oid(name), index, attempt, AllocationId("1-1"), result) for index in indexes]
        reported = [ledger.ReportedEnd(NodeName("n1"), end) for end in ends]
        self._done(self.engine.on_report(ledger.ReportEnds(TREE, 1, reported), self._tick()))

    def draw(self, name: str, more: int = 1_000) -> Any:
        return self._done(self.engine.on_draw(ledger.DrawBlock(TREE, 1, oid(name), more=more), self._tick()))

    def drawn(self, name: str) -> list[int]:
        """The indexes that events leased, in their order."""
        runs = [
            run
            for each in self.events
            if isinstance(each, BlockDrawn) and each.operation == oid(name)
            for run in each.runs
        ]
        return [index for run in runs for index in range(run.first, run.below)]

    def told(self, name: str) -> ledger.LiveOperation:
        page = queries.whole_operations(self.state, ledger.WholeOperationsRequest(TREE, after_pool="~"), 1).operations
        return next(each for each in page if each.operation == oid(name))

    def view(self, name: str) -> wire.OperationView:
        told = queries.get_operation(self.state, wire.GetOperation(oid(name)))
        assert isinstance(told, wire.OperationView)
        return told


@pytest.fixture
def desk() -> Jobs:
    return Jobs({"p": {"max_running_operation_count": 2}})


def test_a_job_may_run_when_the_job_with_its_index_has_completed(desk: Jobs) -> None:
    desk.started("a", pool="p", job_count=4)
    answer = desk.start("b", "p", job_count=4, after_each=oid("a"))
    assert (answer.state, answer.awaiting_jobs, answer.waiting) == (PENDING, 4, [])
    assert desk.counts("p") == (2, 1, 0)

    desk.end("a", 2)
    assert desk.state_of("b") is RUNNING
    assert desk.told("b").free == 1
    assert desk.view("b").awaiting_jobs == 3
    assert desk.draw("b").drawn == 1
    assert desk.drawn("b") == [2]
    desk.end("a", 0, 3)
    desk.draw("b")
    assert desk.drawn("b") == [2, 0, 3]
    assert desk.told("b").done == b"\x02"
    desk.end("b", 2, 0, 3)
    desk.end("a", 1)
    assert desk.state_of("a") is OperationState.COMPLETED
    desk.draw("b")
    desk.end("b", 1)
    assert desk.state_of("b") is OperationState.COMPLETED


def test_the_events_say_how_many_jobs_may_run_besides_those_that_are_leased(desk: Jobs) -> None:
    desk.started("a", job_count=6)
    desk.end("a", 5)
    desk.started("b", job_count=6, after_each=oid("a"))
    live = ledger.started_in(desk.entries[-1][-1], TREE)  # type: ignore[arg-type]
    assert live is not None
    assert (live.free, live.block, live.state) == (1, 0, RUNNING)
    desk.end("a", 0, 1, 3)
    released = next(each for each in desk.entries[-1] if isinstance(each, IndexesReturned))
    assert released == IndexesReturned(oid("b"), TreeName(""), 1, 4, [IndexRun(0, 2), IndexRun(3, 4)])


def test_a_failed_job_lets_nothing_run_until_its_retry_completes(desk: Jobs) -> None:
    desk.started("a", job_count=2)
    desk.started("b", job_count=2, after_each=oid("a"))
    desk.end("a", 0, result=JobResult.FAILED)
    assert desk.state_of("b") is PENDING
    desk.end("a", 0, attempt=2)
    assert desk.state_of("b") is RUNNING


def test_a_job_that_waits_for_none_is_retried_as_usual(desk: Jobs) -> None:
    desk.started("a", job_count=2)
    desk.started("b", job_count=2, after_each=oid("a"))
    desk.end("a", 0)
    desk.draw("b")
    desk.end("b", 0, result=JobResult.FAILED)
    assert desk.told("b").free == 1
    desk.draw("b")
    assert desk.drawn("b") == [0, 0]


def test_it_fails_when_a_job_that_it_follows_will_never_complete(desk: Jobs) -> None:
    desk.started("a", pool="p", job_count=3, max_failed_job_count=1)
    desk.started("b", pool="p", job_count=3, after_each=oid("a"))
    desk.started("c", pool="p", after=after("b"))
    desk.end("a", 0)
    desk.draw("b")
    desk.end("a", 1, result=JobResult.FAILED)
    assert desk.state_of("b") is RUNNING
    desk.released("a")

    assert desk.state_of("b") is OperationState.FAILING
    desk.released("b")
    assert desk.state_of("b") is FAILED
    assert desk.view("b").reason == (
        "upstream failed: operation operation-a is failed, and 2 of the jobs that the jobs of this operation follow did not complete"
    )
    assert desk.state_of("c") is FAILED


def test_only_the_jobs_that_it_follows_must_complete(desk: Jobs) -> None:
    desk.started("a", job_count=3)
    desk.started("b", job_count=2, after_each=oid("a"))
    desk.end("a", 0, 1)
    desk.complete("a")
    desk.released("a")
    assert desk.state_of("b") is RUNNING


@pytest.mark.parametrize(("completed", "state"), [([0, 1], RUNNING), ([0], FAILED)])
def test_after_an_operation_that_has_ended_all_jobs_may_run_or_it_fails(
    desk: Jobs, completed: list[int], state: OperationState
) -> None:
    desk.started("a", job_count=3)
    desk.end("a", *completed)
    desk.abort("a")
    desk.released("a")
    desk.started("b", pool="p", job_count=2, after_each=oid("a"))
    assert desk.state_of("b") is state
    if state is RUNNING:
        assert (desk.told("b").free, desk.view("b").awaiting_jobs) == (2, 0)


def test_it_may_wait_for_other_operations_as_well(desk: Jobs) -> None:
    desk.started("a", job_count=2)
    desk.started("other")
    desk.started("b", job_count=2, after_each=oid("a"), after=after("other"))
    desk.end("a", 0)
    assert desk.state_of("b") is PENDING
    desk.finish("other")
    assert desk.state_of("b") is RUNNING


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({"after_each": oid("nothing")}, NotFound),
        ({"after_each": oid("b")}, BadRequest),
        ({"after_each": oid("a"), "after": after("a")}, BadRequest),
        ({"after_each": oid("a"), "job_count": 5}, BadRequest),
        ({"after_each": oid("a"), "job_count": 2, "is_gang": True}, BadRequest),
        ({"after_each": oid("a"), "pool_trees": [TREE, TreeName("other")]}, BadRequest),
    ],
)
def test_what_cannot_be_followed_is_refused(desk: Jobs, spec: dict[str, Any], kind: type) -> None:
    desk.started("a", job_count=4)
    assert isinstance(desk.start("b", **spec), kind)
    assert oid("b") not in desk.state.operations


def test_one_operation_is_followed_by_a_bounded_number(desk: Jobs) -> None:
    desk.started("a")
    desk.started(*(f"f{number}" for number in range(MOST_FOLLOWERS)), after_each=oid("a"))
    assert isinstance(desk.start("b", after_each=oid("a")), WrongState)
    desk.abort("f3")
    desk.started("b", after_each=oid("a"))


def _records(engine: AdmissionEngine) -> list[OperationRecord]:
    return [each.to_record() for each in engine.state.operations.values()]


@pytest.mark.parametrize("is_from_log", [False, True])
def test_a_restart_keeps_which_jobs_may_run(desk: Jobs, is_from_log: bool) -> None:
    desk.started("a", job_count=9)
    desk.end("a", 8, 1)
    desk.started("b", job_count=9, after_each=oid("a"))
    desk.end("a", 4, 5)
    desk.draw("b", 2)
    if is_from_log:
        engine = desk.replayed()
    else:
        engine = AdmissionEngine(desk.everywhere)
        page = decode(encode(Page(_records(desk.engine))), Page)
        engine.on_restored(page, desk._tick())
        engine.on_restored(Restored(desk.state.sequence), desk._tick())
        engine.on_configuration(TREE, rules_of(desk.trees[TREE]), desk._tick())
    assert _records(engine) == _records(desk.engine)
    desk.engine = engine
    desk.end("a", 0)
    assert desk.told("b").free == 3
    assert desk.view("b").awaiting_jobs == 4


def test_a_successor_lets_jobs_run_of_which_the_log_only_has_that_others_completed(desk: Jobs) -> None:
    desk.started("a", job_count=9)
    desk.started("b", job_count=9, after_each=oid("a"))
    desk.end("a", 8, 1)
    cut = next(at for at, each in enumerate(desk.entries[-1], 1) if isinstance(each, JobsEnded))
    desk.entries[-1] = desk.entries[-1][:cut]
    engine = desk.replayed()
    desk.engine = engine
    desk.record(engine.on_takeover(desk._tick()).effects)
    assert (desk.state_of("b"), desk.told("b").free) == (RUNNING, 2)


def test_a_lost_allocator_of_another_tree_takes_no_job(desk: Jobs) -> None:
    """The jobs of an operation of one tree wait for the allocator of that tree."""
    desk.configure({}, TreeName("other"))
    desk.started("a", job_count=2)
    desk.started("b", job_count=2, after_each=oid("a"))
    desk.end("a", 0)
    desk.draw("b")
    assert desk.state.owning_trees() == []
    desk.record(desk.engine.on_allocator_gone(TREE, desk._tick()).effects)
    assert desk.view("b").lost_jobs == 0


def test_a_million_jobs_take_a_byte_each() -> None:
    completed = bytes([0b10101010]) * (LARGEST_JOB_COUNT // 8)
    owners = IndexOwners(LARGEST_JOB_COUNT, completed)
    assert (owners.size_bytes, owners.free, owners.awaiting) == (1_000_000, 500_000, 500_000)
    assert owners.next_free(3) == [IndexRun(1, 2), IndexRun(3, 4), IndexRun(5, 6)]
    assert owners.waiting_in_vain(b"\x01") == [0]
    owners.release([IndexRun(0, LARGEST_JOB_COUNT)])
    assert (owners.free, owners.awaiting) == (1_000_000, 0)


def test_explain_names_the_operation_that_jobs_follow(desk: Jobs) -> None:
    desk.started("a", pool="p", job_count=3)
    desk.started("b", pool="p", job_count=3, after_each=oid("a"))
    told: Any = queries.explain_operation(desk.state, wire.ExplainOperation(oid("b")))
    assert told.upstream == [wire.AwaitedOperation(oid("a"), None, RUNNING, "anna", PoolName("p"), 3)]
