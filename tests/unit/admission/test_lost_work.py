"""Work that preemption cost: what counts, where it is summed up, and that neither a restart nor a repeated report changes it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.ids import AllocationId, NodeName, OperationId, PoolName
from headrace.resources import Resources
from headrace.wire import ledger
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.integral import Volume
from headrace.wire.lost_work import HOUR_MS, KEPT_HOURS, GetLostWork, LostWork, LostWorkTold
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace.wire.refusals import NotFound
from headrace_admission import queries
from headrace_admission.engine import AdmissionEngine
from headrace_admission.log.checkpoint import Checkpoint, read_page
from headrace_admission.lost_work import LostWorkBook
from headrace_admission.state.state import Page, Restored
from tests.support.clocks import at
from tests.unit.admission.desk import TREE, Desk, oid

PREEMPTED = PreemptionRecord(PreemptionReason.PREEMPTION, OperationId("other"))
POOLS = {"team": {}, "research": {"parent": "team"}, "students": {}}


def an_end(name: str, *, attempt: int = 1, ran_s: float = 10, **fields: Any) -> JobEnd:
    given: dict[str, Any] = {"result": JobResult.ABORTED, "preemption": PREEMPTED, "started_at_ms": 5} | fields
    return JobEnd(oid(name), 0, attempt, AllocationId("1-1"), ended_at_ms=5 + int(1000 * ran_s), **given)


def report(desk: Desk, end: JobEnd) -> None:
    request = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
    desk.now_ms += 1
    desk.record(desk.engine.on_report(request, at(0, desk.now_ms)).effects)


def lost(engine: AdmissionEngine, pool: str = "<Root>", since_ms: int = 0, until_ms: int = 10**13) -> list[LostWork]:
    told = queries.lost_work(engine.state, GetLostWork(PoolName(pool), since_ms, until_ms, TREE))
    assert isinstance(told, LostWorkTold)
    return told.lost


def a_desk() -> Desk:
    desk = Desk(POOLS)
    desk.engine.on_attach(ledger.Attach(TREE, 1), at(0, 0))
    desk.started("one", pool="research")
    return desk


def test_a_preempted_run_counts_with_what_it_was_given_times_how_long_it_ran() -> None:
    desk = a_desk()
    report(desk, an_end("one", ran_s=10))
    report(desk, an_end("one", attempt=2, ran_s=2.5))

    assert lost(desk.engine) == [
        LostWork(0, PreemptionReason.PREEMPTION, 2, Volume(user_slots=12.5, cpu=1250), first_ms=3)
    ]


@pytest.mark.parametrize(
    "end",
    [
        an_end("one", preemption=None),
        an_end("one", result=JobResult.COMPLETED),
        an_end("one", result=JobResult.TIMED_OUT),
        an_end("one", exit_code=75),
        an_end("one", started_at_ms=0),
    ],
    ids=["nobody took its place", "done anyway", "timed out", "saved", "never began"],
)
def test_what_was_not_lost_does_not_count(end: JobEnd) -> None:
    desk = a_desk()
    report(desk, end)

    assert lost(desk.engine) == []


def test_an_end_that_is_reported_again_counts_once() -> None:
    desk = a_desk()
    for _ in range(3):
        report(desk, an_end("one"))

    assert [each.runs for each in lost(desk.engine)] == [1]


def test_a_pool_counts_with_all_below_it_and_with_no_other() -> None:
    desk = a_desk()
    desk.started("two", pool="students")
    report(desk, an_end("one"))
    report(desk, an_end("two", preemption=PreemptionRecord(PreemptionReason.RESOURCE_LIMITS_VIOLATED)))

    assert [each.reason.value for each in lost(desk.engine, "team")] == ["preemption"]
    assert [each.reason.value for each in lost(desk.engine, "students")] == ["resource_limits_violated"]
    assert len(lost(desk.engine)) == 2
    assert lost(desk.engine, "nobody") == []


def test_the_whole_tree_counts_with_pools_that_are_gone() -> None:
    desk = a_desk()
    report(desk, an_end("one"))
    desk.abort("one")
    desk.released("one")
    desk.configure({"students": {}})

    assert [each.runs for each in lost(desk.engine)] == [1]


def test_an_unknown_tree_is_refused() -> None:
    request = GetLostWork(PoolName("research"), 0, 1)
    assert isinstance(queries.lost_work(AdmissionEngine().state, request), NotFound)


def test_hours_are_told_of_which_a_part_is_in_the_time() -> None:
    desk = a_desk()
    for hour, attempt in ((0, 1), (1, 2), (5, 3)):
        desk.now_ms = hour * HOUR_MS + 60_000
        report(desk, an_end("one", attempt=attempt))

    assert [each.hour_ms // HOUR_MS for each in lost(desk.engine)] == [0, 1, 5]
    assert [each.hour_ms // HOUR_MS for each in lost(desk.engine, since_ms=2 * HOUR_MS - 1)] == [1, 5]
    assert [each.hour_ms // HOUR_MS for each in lost(desk.engine, since_ms=2 * HOUR_MS, until_ms=5 * HOUR_MS)] == []


def test_the_log_alone_and_a_checkpoint_with_the_rest_of_the_log_tell_the_same() -> None:
    desk = a_desk()
    report(desk, an_end("one"))
    pages = [read_page(page) for page in Checkpoint(desk.state, page_bytes=100).pages()]
    covered = len(desk.entries)
    report(desk, an_end("one", attempt=2, ran_s=3))
    restored = AdmissionEngine()
    operations = [record for page in pages for record in page.operations]
    rows = [row for page in pages for row in page.lost_work]
    restored.on_restored(Page(operations, [], rows), at(0, 0))
    restored.on_restored(Restored(covered, {TREE: 1}), at(0, 0))
    desk.replay(restored, first=covered)

    assert restored.state.lost_work.rows() == desk.state.lost_work.rows() == desk.replayed().state.lost_work.rows()
    assert {row.lost.runs for row in rows} == {1}
    figures = {each.name: each.value for each in restored.state.lost_work.picture([TREE])()}
    assert figures["pool_lost_work_cpu_preemption_default_research"] == 1300


def test_hours_older_than_a_week_are_forgotten_and_sums_stay() -> None:
    book = LostWorkBook()
    for hour in (0, 1, KEPT_HOURS):
        book.note(TREE, PoolName("research"), an_end("one"), Resources(cpu=100), hour * HOUR_MS)

    assert [each.hour_ms // HOUR_MS for each in book.told(TREE, None, 0, 10**13)] == [1, KEPT_HOURS]
    assert book.kept_since_ms == HOUR_MS
    assert {each.value for each in book.picture([])() if each.name.startswith("pool_lost_work_cpu")} == {3000}
