"""Operations with tasks: which starts are refused, and what is counted of each task."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import AllocationId, NodeName, PoolName, TreeName
from headrace.job_tasks import with_tasks
from headrace.resources import ZERO, Resources
from headrace.wire import ledger
from headrace.wire.codec import decode, encode
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import GetOperation, OperationState, OperationView, StartAnswer
from headrace.wire.refusals import BadRequest
from headrace.wire.tasks import Task
from headrace_admission.decisions.job_sizes import fail_never_fitting
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.queries import get_operation, live_operation
from headrace_admission.state.ledger import Ledger, LedgerRecord
from headrace_admission.state.spec_size import spec_bytes, without_command
from tests.unit.admission.desk import TREE, Desk, oid

SERVER = Task("server", ["./serve"], 1, Resources(1, 200, memory=5))
WORKER = Task("worker", ["./work", "--fast"], 3, Resources(1, 100), {"MODE": "fast"})


def fields(*tasks: Task, **more: Any) -> dict[str, Any]:
    """The fields of a start with these tasks."""
    spec = with_tasks(OperationSpec(PoolName(""), ["true"]), tasks)
    return {name: getattr(spec, name) for name in ("argv", "job_count", "resources", "tasks")} | more


def changed(**changes: Any) -> Task:
    return msgspec.structs.replace(WORKER, **changes)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        (fields(SERVER, WORKER, job_count=3), "spec.job_count"),
        (fields(SERVER, WORKER, argv=["true"]), "spec.argv"),
        (fields(SERVER, WORKER, resources=Resources(1, 100)), "spec.resources"),
        (fields(SERVER, changed(name="server")), "spec.tasks.1.name"),
        (fields(SERVER, changed(name="a b")), "spec.tasks.1.name"),
        (fields(SERVER, changed(resources=Resources(0, 100))), "spec.tasks.1.resources.user_slots"),
        (fields(changed(resources=Resources(1))), "spec.tasks.0.resources"),
        (fields(SERVER, WORKER, terminal=True), "spec.terminal"),
        (fields(SERVER, WORKER, indexes="1-4"), "spec.tasks.0.first_index"),
        (fields(changed(first_index=0)), "spec.tasks.0.first_index"),
        (fields(changed(first_index=0), indexes="1-9"), "spec.indexes"),
        (fields(changed(first_index=3, job_count=2), indexes="2,5"), "spec.tasks.0.first_index"),
        (fields(SERVER, WORKER, lines=["a", "b", "c", "d"]), "spec.lines"),
        (fields(SERVER, WORKER, after_each=oid("zero")), "spec.after_each"),
        (fields(SERVER, WORKER, pool_trees=[TREE, TreeName("other")]), "spec.pool_trees"),
        (fields(SERVER, changed(is_gang=True), is_gang=True), "spec.tasks.1"),
        ({"resources": ZERO}, "spec.resources.user_slots"),
    ],
)
def test_a_start_that_cannot_run_as_its_tasks_say_is_refused_with_the_place(given: dict[str, Any], place: str) -> None:
    desk = Desk({"a": {}})
    desk.started("zero", pool="a")

    answer = desk.start("one", "a", **given)

    assert isinstance(answer, BadRequest)
    assert answer.place == place


def test_the_jobs_of_all_tasks_may_be_one_gang() -> None:
    desk = Desk({"a": {}})

    assert isinstance(desk.start("one", "a", **fields(SERVER, WORKER, is_gang=True)), StartAnswer)


def test_the_jobs_of_some_tasks_may_be_a_gang_where_gangs_may_run() -> None:
    desk = Desk({"a": {}, "fifo": {"mode": "fifo"}}, allow_gang_operations_only_in_fifo_pools=True)
    mixed = fields(SERVER, changed(is_gang=True))

    assert isinstance(desk.start("one", "fifo", **mixed), StartAnswer)
    assert "gang operations run only in fifo pools" in str(desk.start("two", "a", **mixed))
    assert isinstance(desk.start("three", "a", **fields(SERVER, WORKER)), StartAnswer)


def fail(desk: Desk, *ends: tuple[int, int]) -> None:
    """These jobs, each with its attempt, fail."""
    made = [JobEnd(oid("one"), index, attempt, AllocationId("1-1"), JobResult.FAILED) for index, attempt in ends]
    report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end) for end in made])
    desk.record(desk.engine.on_report(report, desk._tick()).effects)


def state(desk: Desk) -> tuple[OperationState, str]:
    one = desk.state.operations[oid("one")]
    return one.state, one.reason.partition(";")[0]


@pytest.mark.parametrize("at_once", [True, False])
def test_failed_runs_of_a_gang_are_added_up_and_those_of_other_jobs_are_not(at_once: bool) -> None:
    desk = Desk({"a": {}})
    others, gang = changed(name="others"), changed(is_gang=True)
    desk.started("one", pool="a", **fields(others, gang, tries=2))
    fail(desk, (0, 1), (1, 1), (2, 1))
    assert state(desk) == (OperationState.RUNNING, "")
    for ends in [[(3, 1), (4, 1)]] if at_once else [[(3, 1)], [(4, 1)]]:
        fail(desk, *ends)

    assert state(desk) == (OperationState.FAILING, "the gang failed 2 times, tries is 2")


def test_a_job_beside_a_gang_is_given_up_by_its_own_failed_runs() -> None:
    desk = Desk({"a": {}})
    desk.started("one", pool="a", **fields(changed(name="others"), changed(is_gang=True), tries=2))
    fail(desk, (0, 1), (3, 1))
    assert state(desk)[0] is OperationState.RUNNING
    fail(desk, (0, 2))

    assert state(desk) == (OperationState.FAILING, "1 of 6 jobs failed, tries is 2")


def test_an_allocator_is_told_how_many_jobs_of_the_gang_wait_for_their_retry() -> None:
    desk = Desk({"a": {}})
    desk.started("one", pool="a", **fields(changed(name="others"), changed(is_gang=True), retry_backoff_ms=60_000))
    fail(desk, (0, 1), (1, 1), (3, 1))

    assert live_operation(desk.state.operations[oid("one")], TREE).pausing == 1


def test_the_bounds_of_a_pool_apply_to_the_jobs_of_each_task() -> None:
    desk = Desk({"a": {"max_job_resource_limits": {"cpu": 1.5}}})

    assert desk.start("one", "a", **fields(WORKER, SERVER)).place == "spec.tasks.1.resources.cpu"
    assert isinstance(desk.start("two", "a", **fields(WORKER)), StartAnswer)


def test_a_second_start_with_other_tasks_is_another_operation() -> None:
    desk = Desk({"a": {}})
    desk.started("one", pool="a", **fields(SERVER, WORKER))

    assert desk.start("one", "a", **fields(SERVER, WORKER)).repeated
    assert desk.start("one", "a", **fields(SERVER, changed(argv=["other"]))).where == "with another tasks"


@pytest.mark.parametrize(("limit", "fails"), [(1.5, False), (0.5, True)])
def test_an_operation_fails_only_if_the_jobs_of_no_task_fit_the_limits(limit: float, fails: bool) -> None:
    desk = Desk({"a": {"resource_limits": {"cpu": limit}}})
    desk.started("one", pool="a", **fields(SERVER, WORKER))
    transaction = Transaction(desk.state, desk._tick())
    fail_never_fitting(transaction, 0)
    fail_never_fitting(transaction, 10**9)

    assert (desk.state.operations[oid("one")].state is not OperationState.RUNNING) is fails


def test_ends_are_counted_by_task_and_survive_a_restart_from_log_and_checkpoint() -> None:
    desk = Desk({"a": {}})
    desk.started("one", pool="a", **fields(SERVER, WORKER, tries=5))
    used: dict[str, Any] = {"started_at_ms": 1, "ended_at_ms": 1001, "cpu_ms": 500}
    for index, result in ((0, JobResult.FAILED), (2, JobResult.COMPLETED), (3, JobResult.COMPLETED)):
        end = JobEnd(oid("one"), index, 1, AllocationId("1-1"), result, **used)
        report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
        for _ in range(2):
            desk.record(desk.engine.on_report(report, desk._tick()).effects)

    view = get_operation(desk.state, GetOperation(oid("one")))
    assert isinstance(view, OperationView)
    assert {n: ends.counts for n, ends in view.task_ends.items()} == {
        0: {JobResult.FAILED: 1},
        1: {JobResult.COMPLETED: 2},
    }
    assert view.task_ends[1].used[JobResult.COMPLETED].cpu_ms == 1000
    assert get_operation(desk.replayed().state, GetOperation(oid("one"))).task_ends == view.task_ends  # type: ignore[union-attr]
    record = desk.state.operations[oid("one")].ledger.to_record()
    kept = Ledger.from_record(4, decode(encode(record), LedgerRecord))
    assert kept.task_ends == view.task_ends


def test_tasks_count_towards_the_bytes_of_a_spec_and_their_commands_are_withheld_with_the_command() -> None:
    one, long = (with_tasks(OperationSpec(PoolName("a"), ["x"]), [changed(argv=["w", "x" * n])]) for n in (1, 1001))
    assert spec_bytes(long) - spec_bytes(one) == 1000
    assert spec_bytes(with_tasks(one, [WORKER])) > spec_bytes(with_tasks(one, [changed(environment={})]))

    (withheld,) = without_command(long).tasks
    assert withheld == changed(argv=["w"], environment={})


def test_work_lost_by_a_preemption_is_that_of_a_job_of_the_task() -> None:
    desk = Desk({"a": {}})
    desk.started("one", pool="a", **fields(SERVER, WORKER))
    desk.preempt("one", ran_s=10.0)

    (row,) = (row for row in desk.state.lost_work.rows() if not row.is_sum)
    assert (row.lost.work.cpu, row.lost.work.memory) == (2000, 50)
