"""Lists of operations in the order of their starts: both directions, and pages while operations start, end and are forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.resources import Resources
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.ledger import ReportedEnd, ReportEnds
from headrace.wire.log import LogBatch
from headrace.wire.operations import (
    AbortOperation,
    ListOperations,
    OperationList,
    OperationOrder,
    OperationSpec,
    OperationState,
    StartOperation,
)
from headrace.wire.refusals import BadRequest
from headrace_admission.engine import AdmissionEngine, Decision
from headrace_admission.queries import list_operations
from headrace_admission.state.rules import PoolRules, TreeRules
from tests.support.clocks import at

TREE = TreeName("default")
OLDEST, NEWEST = OperationOrder.OLDEST, OperationOrder.STARTED


class Desk:
    """An admission that starts one operation a second, runs two at a time, and remembers the last two that ended."""

    def __init__(self) -> None:
        self.engine = AdmissionEngine(keep_finished=2)
        self.sequence = 0
        self.now_s = 100
        rules = TreeRules(pools={PoolName("p"): PoolRules(max_running_operation_count=2)})
        self.engine.on_configuration(TREE, rules, at(0))

    def start(self, *names: str) -> None:
        for name in names:
            self.now_s += 1
            spec = OperationSpec(PoolName("p"), ["true"], 1, Resources(user_slots=1, cpu=100))
            self._record(self.engine.on_start(StartOperation(OperationId(name), spec), "anna", at(self.now_s)))

    def end(self, *names: str) -> None:
        """An operation that runs completes, and one that waits is aborted."""
        for name in map(OperationId, names):
            if self.engine.state.operations[name].state is OperationState.PENDING:
                self._record(self.engine.on_abort(AbortOperation(name), "anna", at(self.now_s)))
            else:
                end = JobEnd(name, 0, 1, AllocationId("1-1"), JobResult.COMPLETED)
                report = ReportEnds(TREE, 1, [ReportedEnd(NodeName("n"), end)])
                self._record(self.engine.on_report(report, at(self.now_s)))

    def _record(self, decision: Decision) -> None:
        if decision.effects:
            self.sequence += 1
            self.engine.on_recorded(LogBatch(1, list(decision.effects)).events, self.sequence, at(self.now_s))

    def page(self, **wanted: Any) -> OperationList:
        answer = list_operations(self.engine.state, ListOperations(**wanted))
        assert isinstance(answer, OperationList)
        return answer


def names(page: OperationList) -> Sequence[str]:
    return [each.operation for each in page.operations]


def after(page: OperationList) -> dict[str, Any]:
    last = page.operations[-1]
    return {"after": last.operation, "after_started_at_ms": last.started_at_ms}


@pytest.fixture
def desk() -> Desk:
    made = Desk()
    made.start(*"abcdef")
    return made


def test_the_oldest_operation_comes_first_also_among_those_that_wait(desk: Desk) -> None:
    assert names(desk.page(order=OLDEST)) == [*"abcdef"]
    assert names(desk.page(order=OLDEST, state="waiting", limit=3)) == [*"cde"]
    assert names(desk.page(order=NEWEST, state="waiting", limit=3)) == [*"fed"]
    named = [OperationId(name) for name in "ebx"]
    assert names(desk.page(order=OLDEST, operations=named)) == [*"be"]
    assert names(desk.page(order=NEWEST, operations=named)) == [*"eb"]


@pytest.mark.parametrize(("order", "expected"), [(OLDEST, "abcdef"), (NEWEST, "fedcba")])
def test_pages_of_any_length_make_up_the_whole_list(desk: Desk, order: OperationOrder, expected: str) -> None:
    for limit in range(1, 8):
        page = desk.page(order=order, limit=limit)
        seen = [*names(page)]
        while page.more:
            page = desk.page(order=order, limit=limit, **after(page))
            seen += names(page)
        assert seen == [*expected]


def test_operations_that_start_and_end_meanwhile_move_no_page(desk: Desk) -> None:
    oldest, newest = desk.page(order=OLDEST, limit=2), desk.page(limit=2)
    waiting = desk.page(order=OLDEST, limit=2, state="waiting")
    assert (names(oldest), names(newest), names(waiting)) == ([*"ab"], [*"fe"], [*"cd"])
    desk.start("g")
    desk.end("a")  # and c gets its slot

    assert names(desk.page(order=OLDEST, **after(oldest))) == [*"cdefg"]
    assert names(desk.page(**after(newest))) == [*"dcba"]
    assert names(desk.page(order=OLDEST, state="waiting", **after(waiting))) == [*"efg"]
    assert names(desk.page(order=OLDEST, state="waiting", after="c", after_started_at_ms=1)) == [*"defg"]


@pytest.mark.parametrize(("order", "last", "rest"), [(OLDEST, "c", "def"), (NEWEST, "e", "db")])
def test_a_list_goes_on_although_the_last_operation_of_its_page_was_forgotten(
    desk: Desk, order: OperationOrder, last: str, rest: str
) -> None:
    page = desk.page(order=order, limit=3 if order is OLDEST else 2)
    assert names(page)[-1] == last
    # Two ended operations are remembered.
    desk.end(*("c", "a", "b") if order is OLDEST else ("a", "c", "e", "d", "b"))
    assert OperationId(last) not in desk.engine.state.operations

    assert names(desk.page(order=order, **after(page))) == [*rest]


def test_operations_of_the_same_millisecond_are_repeated_and_not_lost() -> None:
    desk = Desk()
    desk.start("a")
    desk.now_s -= 1
    desk.start("b")
    desk.start("c", "d", "e")
    page = desk.page(order=OLDEST, limit=1)
    desk.end("a", "d", "e")

    assert names(desk.page(order=OLDEST, live=True, **after(page))) == [*"bc"]


@pytest.mark.parametrize("order", OperationOrder)
def test_without_the_time_of_its_start_a_forgotten_operation_is_refused(desk: Desk, order: OperationOrder) -> None:
    since_ms = 0 if order.is_by_start else 5
    answer = list_operations(desk.engine.state, ListOperations(after="gone", order=order, after_started_at_ms=since_ms))
    assert isinstance(answer, BadRequest)
    assert (answer.place, answer.value) == ("after", "gone")
    assert "ask for the first page again" in answer.text()
