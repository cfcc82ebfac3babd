"""Jobs that are retried with more memory after they ran out of memory, in admission's ledger."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import BadInput
from headrace.ids import PoolName, TreeName
from headrace.job_tasks import with_tasks
from headrace.resources import LARGEST_AMOUNT, Resources
from headrace.retry_rules import check_memory_on_oom, sizes_of_retries
from headrace.wire.heartbeat import MOST_MEMORY_STEPS, JobResult, Retry
from headrace.wire.ledger import WholeOperations, WholeOperationsRequest
from headrace.wire.log import JobsEnded, JobsRetried
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import GetJobs, JobPage
from headrace.wire.tasks import Task
from headrace_admission import queries
from headrace_admission.queries import jobs_of
from tests.support.clocks import at
from tests.unit.admission.desk import TREE, Desk, oid
from tests.unit.admission.test_retry_rules import OOM, a_desk, ended, restarted, seen

MIB = 2**20
SIZE = Resources(1, 100, memory=8 * MIB)


def a_raising_desk(**spec: Any) -> Desk:
    return a_desk(**{"memory_on_oom": "x2", "resources": SIZE, "tries": 20, **spec})


def retries(desk: Desk) -> list[Retry | None]:
    """The retries that the log names, in its order."""
    found: list[Retry | None] = []
    for event in desk.events:
        if isinstance(event, JobsEnded):
            found += [one.retry for one in event.ends]
        elif isinstance(event, JobsRetried):
            found += event.slots
    return found


def test_each_end_by_out_of_memory_raises_the_memory_and_no_other_end_does() -> None:
    desk = a_raising_desk()
    ended(desk, 1, **OOM)
    ended(desk, 2, exit_code=1)
    ended(desk, 3, result=JobResult.LOST)
    ended(desk, 4, **OOM)
    ended(desk, 1, index=1, exit_code=1)

    assert retries(desk) == [Retry(0, 2, 1), Retry(0, 3, 1), Retry(0, 4, 1), Retry(0, 5, 2), Retry(1, 2)]


def test_the_number_of_raises_survives_a_restart_and_reaches_the_allocator() -> None:
    desk = a_raising_desk()
    ended(desk, 1, **OOM)
    ended(desk, 2, **OOM)
    desk = restarted(desk)
    told = queries.whole_operations(desk.state, WholeOperationsRequest(TREE), 1)
    assert isinstance(told, WholeOperations)
    assert told.operations[0].attempts == [Retry(0, 3, 2)]

    ended(desk, 3, **OOM)
    page = jobs_of(desk.state, GetJobs(oid("one")))
    assert isinstance(page, JobPage)
    assert [row.memory_step for row in page.jobs] == [3, 0]


def test_a_retry_after_a_pause_has_more_memory_too() -> None:
    desk = restarted(a_raising_desk(retry_backoff_ms=1_000))
    ended(desk, 1, **OOM)
    desk = restarted(desk)
    desk.record(desk.engine.on_retries_due(at(5, 5_000)).effects)

    assert retries(desk)[-1] == Retry(0, 2, 1)


def test_an_amount_raises_the_memory_once_and_a_factor_a_bounded_number_of_times() -> None:
    for rule, most in (("16M", 1), ("x2", MOST_MEMORY_STEPS)):
        desk = a_raising_desk(memory_on_oom=rule, max_failed_job_count=99)
        for attempt in range(1, MOST_MEMORY_STEPS + 3):
            ended(desk, attempt, **OOM)
        assert desk.state.operations[oid("one")].ledger.memory_steps[0] == most


def test_a_job_that_ran_out_of_memory_is_retried_whatever_retry_on_says_until_its_tries_are_used() -> None:
    desk = a_raising_desk(retry_on="75", tries=2, keep_going=True)
    ended(desk, 1, **OOM)
    ended(desk, 2, **OOM)

    assert retries(desk) == [Retry(0, 2, 1), None]
    assert seen(desk).out_of_memory_runs == 2


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"memory_on_oom": "2"}, "spec.memory_on_oom"),
        ({"memory_on_oom": "x1"}, "spec.memory_on_oom"),
        ({"memory_on_oom": "8M"}, "spec.memory_on_oom"),
        ({"resources": Resources(1, 100)}, "spec.resources.memory"),
        ({"no_retry_on": "2,oom"}, "spec.no_retry_on"),
        ({"is_gang": True, "keep_going": False}, "spec.is_gang"),
        ({"pool_trees": [TREE, TreeName("other")]}, "spec.pool_trees"),
        ({"tasks": [Task("a", ["true"])]}, "spec.tasks"),
        ({"after_each": oid("other")}, "spec.after_each"),
    ],
)
def test_what_cannot_be_raised_is_refused(changes: dict[str, Any], place: str) -> None:
    spec = OperationSpec(PoolName("a"), ["true"], **{"memory_on_oom": "x2", "resources": SIZE, **changes})
    if spec.tasks:
        spec = with_tasks(spec, spec.tasks)
    with pytest.raises(BadInput) as refused:
        check_memory_on_oom(spec)

    assert refused.value.place == place


def test_sizes_grow_by_the_factor_up_to_the_largest_amount() -> None:
    spec = OperationSpec(PoolName("a"), ["true"], resources=SIZE, memory_on_oom="x1.5")
    assert [size.memory // MIB for size in sizes_of_retries(spec)[:4]] == [8, 12, 18, 27]

    large = OperationSpec(PoolName("a"), ["true"], resources=Resources(1, 100, memory=2**50), memory_on_oom="x100")
    assert sizes_of_retries(large)[-1] == Resources(1, 100, memory=LARGEST_AMOUNT)
