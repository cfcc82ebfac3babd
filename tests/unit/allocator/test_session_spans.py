"""A node reports sessions with the jobs that it has, and with no others."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.wire.heartbeat import JobEnd, JobKey, JobResult, SessionSpan
from headrace.wire.ledger import ReportedSession
from headrace_allocator.effects import ForeignClaim, Report
from tests.support.allocating import Desk, an_operation, cores
from tests.unit.allocator.test_foreign_claims import shown


def a_desk() -> tuple[Desk, Any]:
    """Job 0 runs on n1; n2 is empty."""
    desk = Desk({"n1": cores(1, slots=9), "n2": cores(1)})
    desk.start(an_operation("op", jobs=1))
    (start,) = desk.beat("n1")[0].start
    return desk, shown(start.allocation, 0)


def span(allocation: str, index: int = 0, attempt: int = 1, ended_at_ms: int = 0) -> SessionSpan:
    key = JobKey(OperationId("op"), index, attempt)
    return SessionSpan(key, AllocationId(allocation), "anna", 5, ended_at_ms, int(ended_at_ms > 0))


def reported(effects: Any) -> list[ReportedSession]:
    return [one for effect in effects if isinstance(effect, Report) for one in effect.sessions]


def test_a_span_is_reported_until_it_is_recorded_and_then_forgotten() -> None:
    desk, running = a_desk()
    one = span(running.id)

    for _ in range(2):
        orders, effects = desk.beat("n1", allocations=[running], sessions=[one])
        assert reported(effects) == [ReportedSession(NodeName("n1"), one)]
        assert orders.forget.sessions == []
    desk.engine.on_sessions_recorded(reported(effects), desk.now)
    orders, effects = desk.beat("n1", allocations=[running], sessions=[one])

    assert (orders.forget.sessions, reported(effects)) == ([one], [])
    desk.beat("n1", allocations=[running])
    assert desk.node("n1").sessions == {}


@pytest.mark.parametrize(("index", "attempt"), [(0, 1), (0, 2), (1, 1)])
def test_a_span_with_a_job_that_the_node_was_not_given_is_alarmed_and_not_reported(index: int, attempt: int) -> None:
    desk, running = a_desk()
    desk.beat("n1", allocations=[running])
    forged = span(running.id, index, attempt)

    orders, effects = desk.beat("n2", sessions=[forged])

    assert reported(effects) == []
    assert orders.forget.sessions == [forged]
    (claim,) = [effect for effect in effects if isinstance(effect, ForeignClaim)]
    assert "has sessions with" in claim.first


def test_a_span_that_comes_with_the_end_of_its_job_is_reported_and_so_is_its_repetition() -> None:
    desk, running = a_desk()
    desk.beat("n1", allocations=[running])
    one = span(running.id)
    end = JobEnd(OperationId("op"), 0, 1, running.id, JobResult.COMPLETED)

    _, effects = desk.beat("n1", ends=[end], sessions=[one])
    _, later = desk.beat("n1", ends=[end], sessions=[one])

    assert reported(effects) == reported(later) == [ReportedSession(NodeName("n1"), one)]
    assert desk.engine.foreign_claims == 0


def test_the_end_of_a_span_is_left_to_the_ledger_since_the_job_may_be_gone() -> None:
    desk, _ = a_desk()
    one = span("9-f", ended_at_ms=9)

    _, effects = desk.beat("n2", sessions=[one])

    assert reported(effects) == [ReportedSession(NodeName("n2"), one)]
