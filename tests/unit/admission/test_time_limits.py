"""Time limits: jobs that time out, limits of whole operations, and the defaults and maxima of pools and trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headrace.ids import AllocationId, NodeName, PoolName, TreeName
from headrace.runtime.engine import Moment
from headrace.wire import ledger
from headrace.wire.happenings import OperationChanged, happenings_of
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import ClockMoved, Event, OperationStateChanged, StateCause
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import GetJobs, JobPage, OperationState, OperationView, StartOperation
from headrace.wire.refusals import BadRequest
from headrace.wire.start_plans import StartPlanned
from headrace_admission.decisions import starts
from headrace_admission.engine import AdmissionEngine
from headrace_admission.queries import jobs_of, view_of
from headrace_admission.state.ledger import Ledger
from headrace_admission.state.state import Page, Restored
from tests.support.clocks import at
from tests.unit.admission.desk import TREE, Desk, oid

REACHED = "time limit of 2s reached"


def ended(desk: Desk, index: int, result: JobResult, attempt: int = 1) -> None:
    reason = REACHED if result is JobResult.TIMED_OUT else "it crashed"
    end = JobEnd(oid("one"), index, attempt, AllocationId("1-1"), result, reason=reason)
    report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
    desk.record(desk.engine.on_report(report, at(0, 1)).effects)


def seen(desk: Desk) -> OperationView:
    return view_of(desk.state.operations[oid("one")])


def a_desk(jobs: int = 3, **spec: Any) -> Desk:
    desk = Desk()
    desk.started("one", job_count=jobs, time_limit_ms=2_000, **{"tries": 3, "keep_going": jobs > 1, **spec})
    return desk


def test_the_other_jobs_go_on_and_the_operation_then_fails_with_the_number_of_timed_out_jobs() -> None:
    desk = a_desk()
    ended(desk, 0, JobResult.TIMED_OUT)
    ended(desk, 1, JobResult.COMPLETED)
    view = seen(desk)
    assert (view.state, view.timed_out_jobs, view.given_up_jobs, view.failed_jobs) == (OperationState.RUNNING, 1, 1, 0)
    assert (view.open_jobs, view.pausing_jobs) == (1, 0)

    ended(desk, 2, JobResult.TIMED_OUT)

    assert seen(desk).state is OperationState.FAILING
    assert seen(desk).reason == (
        f"2 of 3 jobs timed out, the time limit is 2s; the last failure: job 2 attempt 1 on node n1: {REACHED}"
    )
    assert [event.cause for event in desk.events if isinstance(event, OperationStateChanged)] == [StateCause.TIME_LIMIT]
    desk.released("one")
    assert seen(desk).state is OperationState.FAILED


@pytest.mark.parametrize(
    "spec", [{"keep_going": False}, {"tries": 0, "keep_going": False}, {"is_gang": True, "keep_going": False}]
)
def test_an_operation_that_does_not_go_on_fails_at_the_first_timed_out_job(spec: dict[str, Any]) -> None:
    desk = a_desk(**spec)
    ended(desk, 1, JobResult.TIMED_OUT)

    assert seen(desk).state is OperationState.FAILING
    assert seen(desk).reason.startswith("1 of 3 jobs timed out, the time limit is 2s")


def test_failed_and_timed_out_jobs_are_told_apart() -> None:
    desk = a_desk(jobs=2, tries=1)
    ended(desk, 0, JobResult.TIMED_OUT)
    ended(desk, 1, JobResult.FAILED)

    reason = seen(desk).reason
    assert reason.startswith("1 of 2 jobs timed out, the time limit is 2s; 1 of 2 jobs failed, tries is 1; ")
    assert [event.cause for event in desk.events if isinstance(event, OperationStateChanged)] == [
        StateCause.TOO_MANY_FAILURES
    ]


def test_a_job_that_failed_before_it_timed_out_counts_once_for_each() -> None:
    desk = a_desk(jobs=1)
    ended(desk, 0, JobResult.FAILED)
    ended(desk, 0, JobResult.TIMED_OUT, attempt=2)

    view = seen(desk)
    assert (view.failed_jobs, view.timed_out_jobs, view.given_up_jobs, view.open_jobs) == (1, 1, 1, 0)
    assert view.reason.startswith("1 of 1 job timed out")
    assert [end.result for end in view.last_failures] == [JobResult.FAILED, JobResult.TIMED_OUT]


def test_each_job_is_listed_with_its_result_also_from_a_checkpoint_and_from_the_log() -> None:
    desk = a_desk()
    ended(desk, 1, JobResult.TIMED_OUT)
    kept = desk.state.operations[oid("one")].ledger
    record = msgspec.msgpack.decode(msgspec.msgpack.encode(kept.to_record()), type=type(kept.to_record()))
    restored = Ledger.from_record(3, record)

    page = jobs_of(desk.replayed().state, GetJobs(oid("one")))
    assert isinstance(page, JobPage)
    expected = [None, JobResult.TIMED_OUT, None]
    assert [row.result for row in page.jobs] == [row.result for row in restored.rows(0, 3)] == expected
    assert (restored.counts, restored.given_up, restored.check()) == (kept.counts, 1, [])


def test_a_release_without_time_limits_can_read_a_checkpoint_in_which_no_job_timed_out() -> None:
    desk = a_desk()
    ended(desk, 1, JobResult.COMPLETED)

    assert set(desk.state.operations[oid("one")].ledger.to_record().counts) == {JobResult.COMPLETED}


def test_the_end_of_a_job_that_timed_out_while_its_operation_was_aborted_changes_no_state() -> None:
    desk = a_desk(jobs=1)
    desk.abort("one")
    ended(desk, 0, JobResult.TIMED_OUT)

    assert (seen(desk).state, seen(desk).timed_out_jobs) == (OperationState.ABORTING, 1)


# --- time limits of whole operations ------------------------------------------------------------------------------------

HOUR = 3_600_000
BEGAN_MS = 100 * HOUR


def limited(limit_ms: int | None = HOUR, pools: dict[str, Any] | None = None, **spec: Any) -> Desk:
    """An operation with a time limit, started at `BEGAN_MS`."""
    desk = Desk(pools)
    desk.now_ms = BEGAN_MS - 1
    desk.started("one", operation_time_limit_ms=limit_ms, **spec)
    return desk


def look(engine: AdmissionEngine, steady_ms: int, wall_ms: int | None = None) -> list[Event]:
    moment = Moment(steady_ms * 1_000_000, steady_ms if wall_ms is None else wall_ms)
    return list(engine.on_time_limits_due(moment).effects)


def test_an_operation_fails_at_its_limit_and_says_so() -> None:
    desk = limited()
    assert seen(desk).ends_by_ms == BEGAN_MS + HOUR
    assert look(desk.engine, BEGAN_MS + HOUR - 1) == []

    desk.record(look(desk.engine, BEGAN_MS + HOUR))

    view = seen(desk)
    assert (view.state, view.ends_by_ms) == (OperationState.FAILING, 0)
    assert view.reason == "the time limit of the operation, 1h, is reached"
    desk.released("one")
    assert (seen(desk).state, seen(desk).reason) == (OperationState.FAILED, view.reason)
    assert not desk.state.limited
    assert look(desk.engine, BEGAN_MS + 3 * HOUR) == []


def test_the_time_counts_from_the_first_running_slot_and_goes_on_while_the_operation_is_suspended() -> None:
    desk = Desk({"a": {"max_running_operation_count": 1}})
    desk.now_ms = BEGAN_MS - 1
    desk.started("zero", pool="a")
    desk.started("one", pool="a", operation_time_limit_ms=HOUR)
    assert (seen(desk).state, seen(desk).ends_by_ms) == (OperationState.PENDING, 0)
    assert look(desk.engine, BEGAN_MS + 2 * HOUR) == []
    desk.now_ms = BEGAN_MS + 2 * HOUR
    desk.finish("zero")
    desk.suspend("one")

    assert seen(desk).ends_by_ms == BEGAN_MS + 3 * HOUR + 1
    desk.record(look(desk.engine, BEGAN_MS + 3 * HOUR + 1))
    assert seen(desk).state is OperationState.FAILING


def test_runs_that_were_preempted_or_failed_count() -> None:
    desk = limited(tries=3)
    desk.preempt("one", ran_s=1800)
    desk.end_run("one", JobResult.FAILED)

    assert seen(desk).ends_by_ms == BEGAN_MS + HOUR


def restored(desk: Desk) -> AdmissionEngine:
    """An engine that has read a checkpoint of the desk's state."""
    record = desk.state.operations[oid("one")].to_record()
    engine = AdmissionEngine(desk.everywhere)
    engine.on_restored(Page([msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=type(record))]), at(0, 0))
    head = Restored(len(desk.entries), {TREE: 1}, desk.state.clock_moved_ms)
    engine.on_restored(head, at(0, 0))
    return engine


def replayed(desk: Desk) -> AdmissionEngine:
    """An engine that has read the desk's log."""
    engine = AdmissionEngine(desk.everywhere)
    desk.replay(engine)
    return engine


@pytest.mark.parametrize("restart", [restored, replayed])
def test_the_limit_holds_for_the_next_process(restart: Callable[[Desk], AdmissionEngine]) -> None:
    engine = restart(limited())

    assert look(engine, BEGAN_MS + HOUR - 1) == []
    [event] = look(engine, BEGAN_MS + HOUR)
    assert isinstance(event, OperationStateChanged)
    assert (event.state, event.cause) == (OperationState.FAILING, StateCause.TIME_LIMIT)


@pytest.mark.parametrize("moved_ms", [40 * HOUR, -HOUR // 2, 1_500])
@pytest.mark.parametrize("restart", [restored, replayed, lambda desk: desk.engine])
def test_a_clock_that_is_set_ends_nothing_early_or_late(
    moved_ms: int, restart: Callable[[Desk], AdmissionEngine]
) -> None:
    desk = limited()
    [moved] = look(desk.engine, BEGAN_MS, BEGAN_MS + moved_ms)
    desk.record([moved])
    assert moved == ClockMoved(moved_ms, BEGAN_MS + moved_ms)
    assert seen(desk).ends_by_ms == BEGAN_MS + HOUR + moved_ms

    engine = restart(desk)

    assert look(engine, BEGAN_MS + HOUR - 1, BEGAN_MS + HOUR - 1 + moved_ms) == []
    assert [type(event) for event in look(engine, BEGAN_MS + HOUR, BEGAN_MS + HOUR + moved_ms)] == [
        OperationStateChanged
    ]


def test_an_operation_that_starts_right_after_the_clock_was_set_has_its_whole_time() -> None:
    desk = limited()
    set_forward = Moment(BEGAN_MS * 1_000_000, BEGAN_MS + 40 * HOUR)
    desk.record(desk.engine.on_start(StartOperation(oid("two"), a_spec()), "anna", set_forward).effects)

    assert seen(desk).ends_by_ms == view_of(desk.state.operations[oid("two")]).ends_by_ms == BEGAN_MS + 41 * HOUR


def test_a_clock_that_drifts_slowly_is_followed_too() -> None:
    desk = limited()
    for minute in range(60):
        desk.record(look(desk.engine, BEGAN_MS + minute * 60_000, BEGAN_MS + minute * 60_500))

    assert seen(desk).state is OperationState.RUNNING
    assert seen(desk).ends_by_ms == pytest.approx(BEGAN_MS + HOUR + 29_500, abs=1_000)


def test_without_time_limits_a_moved_clock_is_not_recorded() -> None:
    desk = limited(limit_ms=None)

    assert look(desk.engine, BEGAN_MS, BEGAN_MS + HOUR) == []


def a_spec() -> OperationSpec:
    return OperationSpec(PoolName(""), ["true"], operation_time_limit_ms=HOUR)


# --- defaults and maxima of pools and trees -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "above", "own", "asked_ms", "expected_ms"),
    [
        ({}, {}, {}, None, None),
        ({}, {}, {}, 5_000, 5_000),
        ({"default_time_limit": "3s"}, {}, {}, None, 3_000),
        ({"default_time_limit": "3s"}, {"default_time_limit": "2s"}, {}, None, 2_000),
        ({}, {"default_time_limit": "2s"}, {"default_time_limit": "9s"}, None, 9_000),
        ({}, {"default_time_limit": "2s"}, {"default_time_limit": "9s"}, 1_000, 1_000),
        ({"max_time_limit": "3s"}, {}, {}, None, 3_000),
        ({"max_time_limit": "3s"}, {}, {"max_time_limit": "4s"}, None, 3_000),
        ({"max_time_limit": "3s"}, {}, {"default_time_limit": "9s"}, None, 3_000),
        ({"max_time_limit": "3s"}, {}, {}, 3_000, 3_000),
    ],
)
@pytest.mark.parametrize("kind", ["", "operation_"])
def test_the_nearest_default_applies_up_to_the_lowest_maximum(
    tree: dict[str, Any],
    above: dict[str, str],
    own: dict[str, str],
    asked_ms: int | None,
    expected_ms: int | None,
    kind: str,
) -> None:
    tree, above, own = (
        {key.replace("time_limit", f"{kind}time_limit"): value for key, value in each.items()}
        for each in (tree, above, own)
    )
    desk = Desk({"a": above, "b": {"parent": "a"} | own}, **tree)
    desk.started("one", pool="b", **{f"{kind}time_limit_ms": asked_ms})

    assert getattr(desk.state.operations[oid("one")].spec, f"{kind}time_limit_ms") == expected_ms
    assert getattr(desk.replayed().state.operations[oid("one")].spec, f"{kind}time_limit_ms") == expected_ms


@pytest.mark.parametrize(
    ("tree", "pools", "where"),
    [
        ({"max_time_limit": "2h"}, {"a": {}, "b": {"parent": "a"}}, "tree default"),
        ({}, {"a": {"max_time_limit": "2h"}, "b": {"parent": "a"}}, "pool a in tree default"),
        ({}, {"a": {}, "b": {"parent": "a", "max_time_limit": "2h"}}, "pool b in tree default"),
    ],
)
def test_a_longer_limit_is_refused_with_the_level(tree: dict[str, Any], pools: dict[str, Any], where: str) -> None:
    answer = Desk(pools, **tree).start("one", "b", time_limit_ms=3 * HOUR)

    assert answer == BadRequest("time_limit", "3h", f"at most 2h, max_time_limit of {where}")


def test_an_ephemeral_pool_has_the_limits_of_the_pool_above_it() -> None:
    desk = Desk({"a": {"create_ephemeral_subpools": True, "max_operation_time_limit": "2h"}})
    desk.started("one", pool="a")

    assert desk.state.operations[oid("one")].spec.operation_time_limit_ms == 2 * HOUR
    assert isinstance(desk.start("two", "a", operation_time_limit_ms=3 * HOUR), BadRequest)


def test_in_several_trees_the_shortest_limit_applies() -> None:
    desk = Desk({"a": {"default_time_limit": "3s"}})
    other = TreeName("other")
    desk.configure({"a": {"default_time_limit": "2s"}}, other)
    desk.started("one", pool="a", pool_trees=[TREE, other])

    assert desk.state.operations[oid("one")].spec.time_limit_ms == 2_000


def test_a_dry_run_tells_the_limits() -> None:
    desk = Desk(default_time_limit="2s", max_operation_time_limit="5s")
    told = starts.plan(desk.state, StartOperation(oid("one"), OperationSpec(PoolName(""), ["true"])), "anna")

    assert isinstance(told, StartPlanned)
    assert (told.time_limit_ms, told.operation_time_limit_ms) == (2_000, 5_000)


# --- changes of a live operation ----------------------------------------------------------------------------------------


def test_the_limit_of_a_running_operation_can_be_changed_and_taken_away() -> None:
    desk = limited()
    assert isinstance(desk.update("one", operation_time_limit_ms=2 * HOUR), OperationView)
    assert seen(desk).ends_by_ms == BEGAN_MS + 2 * HOUR
    assert seen(desk) == view_of(desk.replayed().state.operations[oid("one")])
    changes = [each for event in desk.events for each in happenings_of(event) if isinstance(each, OperationChanged)]
    assert [each.operation_time_limit_ms for each in changes] == [2 * HOUR]

    desk.update("one", operation_time_limit_ms=0)

    assert (seen(desk).ends_by_ms, seen(desk).spec.operation_time_limit_ms) == (0, None)
    assert look(desk.engine, BEGAN_MS + 3 * HOUR) == []
    assert not desk.replayed().state.limited


@pytest.mark.parametrize(
    ("asked_ms", "wrong"), [(3 * HOUR, "3h cannot be used; expected"), (0, "the limit is missing. Set")]
)
def test_a_changed_limit_must_be_within_the_maximum(asked_ms: int, wrong: str) -> None:
    desk = limited(pools={"a": {"max_operation_time_limit": "2h"}}, pool="a")

    answer = desk.update("one", operation_time_limit_ms=asked_ms)

    assert isinstance(answer, BadRequest)
    most = "at most 2h, max_operation_time_limit of pool a in tree default"
    assert answer.text() == f"operation_time_limit: {wrong} {most}"
    assert seen(desk).spec.operation_time_limit_ms == HOUR


def test_an_operation_does_not_move_to_a_pool_whose_maximum_is_shorter_than_its_limit() -> None:
    desk = Desk({"a": {}, "b": {"max_time_limit": "2h"}})
    desk.started("one", pool="a", time_limit_ms=3 * HOUR)
    desk.started("two", pool="a")
    desk.started("three", pool="a", time_limit_ms=HOUR)

    expected = "at most 2h, max_time_limit of pool b in tree default"
    assert desk.move("one", "b") == BadRequest("time_limit", "3h", expected)
    assert desk.move("two", "b") == BadRequest.because("time_limit", f"the limit is missing. Set {expected}")
    assert isinstance(desk.move("three", "b"), OperationView)


def test_a_lower_maximum_concerns_later_starts_only() -> None:
    desk = limited(pools={"a": {}}, pool="a")
    desk.configure({"a": {"max_operation_time_limit": "1s"}})

    assert seen(desk).spec.operation_time_limit_ms == HOUR
    assert isinstance(desk.update("one", weight=2.0), OperationView)
