"""Lists of operations by what their runs left unused, and of named operations only."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.wire.heartbeat import JobResult
from headrace.wire.operations import ListOperations, OperationList, OperationOrder
from headrace_admission.queries import list_operations
from tests.unit.admission.desk import Desk, oid

ORDER = OperationOrder.UNUSED_CPU


@pytest.fixture
def desk() -> Desk:
    """Each job has 1 core; the runs use 0.9, 0.1 and 0.5 of it, and nothing is known of the last run."""
    made = Desk()
    for name, cpu_ms in {"busy": 9_000, "idle": 1_000, "half": 5_000, "lost": 0}.items():
        made.started(name)
        made.end_run(name, JobResult.COMPLETED, started_at_ms=5, ended_at_ms=10_005, cpu_ms=cpu_ms)
    return made


def names(desk: Desk, **wishes: Any) -> list[str]:
    answer = list_operations(desk.state, ListOperations(**wishes))
    assert isinstance(answer, OperationList)
    return [each.operation.removeprefix("operation-") for each in answer.operations]


def test_the_most_wasteful_operation_comes_first_and_unmeasured_operations_are_left_out(desk: Desk) -> None:
    assert names(desk, order=ORDER) == ["idle", "half", "busy"]
    assert names(desk, order=OperationOrder.UNUSED_MEMORY) == ["half", "idle", "busy"], "nobody asked for memory"
    assert names(desk) == ["lost", "half", "idle", "busy"]


def test_a_page_in_another_order_begins_after_the_page_before(desk: Desk) -> None:
    assert names(desk, order=ORDER, limit=2) == ["idle", "half"]
    assert names(desk, order=ORDER, limit=2, after=oid("half")) == ["busy"]


def test_named_operations_only_the_newest_first_and_also_filtered(desk: Desk) -> None:
    named = [oid("busy"), oid("unknown"), oid("half")]

    assert names(desk, operations=named) == ["half", "busy"]
    assert names(desk, operations=named, order=ORDER) == ["half", "busy"]
    assert names(desk, operations=named, live=True) == []


def test_views_have_what_the_runs_used_by_result(desk: Desk) -> None:
    answer = list_operations(desk.state, ListOperations(order=ORDER, limit=1))
    assert isinstance(answer, OperationList)

    (view,) = answer.operations
    assert (view.used[JobResult.COMPLETED].cpu_ms, view.used[JobResult.COMPLETED].runs) == (1_000, 1)
