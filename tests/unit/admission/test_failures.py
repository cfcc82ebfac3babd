"""The words of an operation whose jobs fail: on which nodes, and whether any run of it ever began."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import AllocationId, NodeName
from headrace.wire import ledger
from headrace.wire import operations as wire
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.operations import OperationState
from headrace_admission.queries import view_of
from headrace_admission.state.ledger import Ledger
from tests.support.clocks import at
from tests.unit.admission.desk import TREE, Desk, oid

MISSING = "not started: the working directory /no/such: No such file or directory"


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.started("one", job_count=5, max_failed_job_count=5)
    return desk


def failed_on(desk: Desk, *nodes: str, not_started: bool = True, result: JobResult = JobResult.FAILED) -> None:
    """The next attempt of its first job fails on each of these nodes."""
    for node in nodes:
        attempt = desk.state.operations[oid("one")].ledger.attempts[0] or 1
        reason = MISSING if not_started else "it crashed"
        end = JobEnd(oid("one"), 0, attempt, AllocationId("1-1"), result, reason=reason, not_started=not_started)
        report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName(node), end)])
        desk.record(desk.engine.on_report(report, at(0, attempt)).effects)


def view(desk: Desk) -> wire.OperationView:
    return view_of(desk.state.operations[oid("one")])


def test_after_three_nodes_it_says_that_it_never_ran_anywhere(desk: Desk) -> None:
    failed_on(desk, "alpha", "beta", "alpha")
    assert view(desk).reason == ""

    failed_on(desk, "gamma")

    assert view(desk).state is OperationState.RUNNING
    assert view(desk).reason == (
        "no attempt that ended had started: nodes alpha, beta, gamma could not start the command; "
        f"the last failure: job 0 attempt 4 on node gamma: {MISSING}"
    )


@pytest.mark.parametrize("other", [{"not_started": False}, {"not_started": False, "result": JobResult.ABORTED}])
def test_one_run_that_began_is_enough_to_say_nothing(desk: Desk, other: dict[str, Any]) -> None:
    failed_on(desk, "delta", **other)
    failed_on(desk, "alpha", "beta", "gamma")

    assert view(desk).reason == ""


@pytest.mark.parametrize("knows_the_number", [True, False])
def test_a_run_that_began_counts_when_its_failure_is_not_kept_any_more(knows_the_number: bool) -> None:
    desk = Desk()
    desk.started("one", job_count=5, max_failed_job_count=50)
    failed_on(desk, "delta", not_started=False)
    failed_on(desk, *["alpha", "beta", "gamma"] * 4)
    operation = desk.state.operations[oid("one")]
    assert operation.ledger.counts[JobResult.FAILED] == 13
    assert all(end.not_started for end in operation.ledger.failures)
    assert view(desk).reason == ""

    record = operation.ledger.to_record()
    if not knows_the_number:
        record = msgspec.structs.replace(record, not_started=None)

    assert Ledger.from_record(5, record).nodes_without_start() == []


def test_failed_starts_are_told_after_a_restart_and_from_older_records(desk: Desk) -> None:
    failed_on(desk, "alpha", "beta", "gamma")
    record = desk.state.operations[oid("one")].ledger.to_record()

    for each in (record, msgspec.structs.replace(record, not_started=None)):
        assert Ledger.from_record(5, each).nodes_without_start() == ["alpha", "beta", "gamma"]


def test_an_operation_that_fails_so_says_it_whatever_the_number_of_nodes(desk: Desk) -> None:
    failed_on(desk, *["alpha"] * 5)

    reason = view(desk).reason
    assert view(desk).state is OperationState.FAILING
    assert reason.startswith("5 failed jobs, max_failed_job_count is 5; no attempt that ended had started")
    assert (
        "node alpha could not start the command; the last failure: job 0 attempt 5 on node alpha: " + MISSING in reason
    )


def test_a_failure_is_told_with_its_node_and_so_after_a_restart(desk: Desk) -> None:
    failed_on(desk, "alpha", "beta", not_started=False)
    operation = desk.state.operations[oid("one")]

    kept = Ledger.from_record(5, operation.ledger.to_record())

    assert [end.node for end in view(desk).last_failures] == ["alpha", "beta"]
    assert [end.node for end in kept.failures] == ["alpha", "beta"]
    assert [end.node for end in desk.replayed().state.operations[oid("one")].ledger.failures] == ["alpha", "beta"]
