"""Facts about finished runs: what counts, for which person, pool and day, and that each run counts once."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import AllocationId, NodeName, OperationId, PoolName
from headrace.resources import Resources
from headrace.wire import ledger
from headrace.wire.consumption import RunSums
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import JobsEnded, LoggedEnd
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace_admission.consumption import facts
from headrace_admission.consumption.facts import DAY_MS, Consumer, ConsumptionFacts, EndedRun, FormerPool, PoolChain
from tests.support.clocks import at
from tests.unit.admission.desk import TREE, Desk, oid

POOLS: dict[str, Any] = {"team": {}, "research": {"parent": "team"}, "students": {"create_ephemeral_subpools": True}}
PREEMPTED = PreemptionRecord(PreemptionReason.PREEMPTION, OperationId("other"))
GIVEN = Resources(user_slots=1, cpu=250, gpu=2, memory=4_000)


def a_desk(pool: str = "research") -> Desk:
    desk = Desk(POOLS)
    desk.engine.on_attach(ledger.Attach(TREE, 1), at(0, 0))
    desk.started("one", pool=pool, resources=GIVEN, job_count=2)
    return desk


def an_end(began_ms: int, ended_ms: int, **fields: Any) -> JobEnd:
    given: dict[str, Any] = {"result": JobResult.COMPLETED, "index": 0, "attempt": 1} | fields
    return JobEnd(oid("one"), allocation=AllocationId("1-1"), started_at_ms=began_ms, ended_at_ms=ended_ms, **given)


def report(desk: Desk, end: JobEnd, now_ms: int = 10 * DAY_MS) -> None:
    request = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
    desk.now_ms = max(desk.now_ms + 1, now_ms)
    desk.record(desk.engine.on_report(request, at(0, desk.now_ms)).effects)


def told(desk: Desk) -> list[tuple[int, str, str, RunSums]]:
    state = desk.state
    return [(fact.day, state.path(fact.chain), fact.user, fact.sums) for fact in state.consumption.waiting]


def allotted(seconds: float, runs: int = 1, **more: Any) -> RunSums:
    return RunSums(runs, 0, 2.5 * seconds, 4_000 * seconds, 2 * seconds, **more)


def test_a_run_counts_with_what_it_was_given_times_how_long_it_ran() -> None:
    desk = a_desk()
    report(desk, an_end(5_000, 15_000, cpu_ms=7_000, max_rss_bytes=300))

    sums = msgspec.structs.replace(allotted(10, used_core_s=7.0, used_byte_s=3_000.0), measured_runs=1)
    assert told(desk) == [(0, "team/research", "anna", sums)]


def test_a_node_that_lies_about_what_its_jobs_used_does_not_make_the_sums_of_a_year_useless() -> None:
    desk = a_desk()
    report(desk, an_end(5_000, 15_000, cpu_ms=2**53, max_rss_bytes=2**62))
    report(desk, an_end(5_000, 5_000, cpu_ms=2**53, max_rss_bytes=2**62, index=1))

    used = [(sums.used_core_s, sums.used_byte_s) for _, _, _, sums in told(desk)]
    assert used == [(4_096 * 10.0, 2**50 * 10.0), (4_096.0, 0.0)]


LOST = dict(preempted_core_s=25.0, preempted_byte_s=40_000.0, preempted_gpu_s=20.0)
FAILED = dict(failed_core_s=25.0, failed_byte_s=40_000.0, failed_gpu_s=20.0)


@pytest.mark.parametrize(
    ("end", "more"),
    [
        ({"result": JobResult.ABORTED, "preemption": PREEMPTED}, LOST),
        ({"result": JobResult.ABORTED, "preemption": PREEMPTED, "exit_code": 75}, {}),
        ({"result": JobResult.COMPLETED, "preemption": PREEMPTED}, {}),
        ({"result": JobResult.ABORTED}, {}),
        ({"result": JobResult.FAILED, "exit_code": 3}, FAILED),
        ({"result": JobResult.TIMED_OUT}, FAILED),
        ({"result": JobResult.LOST, "preemption": PREEMPTED}, FAILED),
    ],
    ids=["preempted", "saved", "done anyway", "aborted", "failed", "timed out", "lost"],
)
def test_work_is_lost_by_preemption_or_by_failure_and_never_by_both(end: dict[str, Any], more: dict[str, Any]) -> None:
    desk = a_desk()
    report(desk, an_end(5_000, 15_000, **end))

    assert told(desk) == [(0, "team/research", "anna", allotted(10, **more))]


def test_a_run_is_divided_at_midnight_and_counts_on_the_day_of_its_end() -> None:
    desk = a_desk()
    report(desk, an_end(DAY_MS - 4_000, 2 * DAY_MS + 1_000))

    day_s = DAY_MS / 1000
    parts = [(0, allotted(4, 0)), (1, allotted(day_s, 0)), (2, allotted(1))]
    assert [(day, sums) for day, _, _, sums in told(desk)] == parts


def test_a_run_that_ends_at_midnight_is_of_the_day_before() -> None:
    desk = a_desk()
    report(desk, an_end(DAY_MS - 4_000, DAY_MS))

    assert [(day, sums) for day, _, _, sums in told(desk)] == [(0, allotted(4))]


def test_a_run_that_is_moved_is_divided_between_the_pools() -> None:
    desk = a_desk()
    desk.now_ms = 60_000
    desk.move("one", "students")
    (moved_ms,) = (each.until_ms for each in desk.state.operations[oid("one")].former_pools)
    report(desk, an_end(moved_ms - 10_000, moved_ms + 5_000))

    assert [(pool, sums) for _, pool, _, sums in told(desk)] == [
        ("team/research", allotted(10, 0)),
        ("students/students$anna", allotted(5)),
    ]


@pytest.mark.parametrize(
    ("began_ms", "ended_ms", "seconds"),
    [(1, 400 * DAY_MS, 10.0), (0, 5_000, 0.0), (9_000, 5_000, 0.0), (2**50, 2**50 + 3_000, 3.0)],
    ids=["before its operation and after now", "never began", "ended before it began", "clock far ahead"],
)
def test_no_report_makes_a_run_longer_than_its_operation(began_ms: int, ended_ms: int, seconds: float) -> None:
    desk = a_desk()
    desk.state.operations[oid("one")].started_at_ms = 5_000
    report(desk, an_end(began_ms, ended_ms), now_ms=15_000)

    assert [(day, sums) for day, _, _, sums in told(desk)] == [(0, allotted(seconds))]


def test_an_end_that_is_reported_again_counts_once() -> None:
    desk = a_desk()
    report(desk, an_end(5_000, 15_000))
    report(desk, an_end(5_000, 16_000, result=JobResult.FAILED))

    assert [sums for *_, sums in told(desk)] == [allotted(10)]


def test_facts_wait_until_their_entry_is_durable() -> None:
    desk = a_desk()
    request = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), an_end(5_000, 15_000))])
    decided = desk.engine.on_report(request, at(0, DAY_MS)).effects

    assert not desk.state.consumption.waiting
    desk.record(decided)
    assert [fact.sequence for fact in desk.state.consumption.waiting] == [len(desk.entries)]


@pytest.mark.parametrize("pool", ["research", "students"], ids=["configured", "ephemeral"])
def test_the_log_gives_the_same_facts_again(pool: str) -> None:
    desk = a_desk(pool)
    report(desk, an_end(5_000, 15_000))
    again = Desk(POOLS)
    again.engine = desk.replayed()

    assert told(again) == told(desk)
    assert told(desk)[0][1] in ("team/research", "students/students$anna")
    again.state.consumption.drop(len(desk.entries))
    assert told(again) == []


def test_more_facts_than_fit_into_memory_are_counted_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MOST_FACTS", 1)
    desk = a_desk()
    report(desk, an_end(5_000, 15_000))
    report(desk, an_end(5_000, 25_000, index=1))

    assert (told(desk)[0][3], desk.state.consumption.lost_runs) == (allotted(20), 1)


# --- the sum over persons is the integral of usage ---------------------------------------------------------------------

CHAINS = [PoolChain(TREE, (PoolName(name),), is_whole=True) for name in ("a", "b", "c")]
times = st.integers(0, 3 * DAY_MS)
runs = st.lists(
    st.tuples(
        st.sampled_from(["anna", "ben"]),
        st.builds(Resources, cpu=st.integers(0, 10_000), gpu=st.integers(0, 8), memory=st.integers(0, 2**40)),
        st.tuples(times, times).map(sorted),
        st.lists(st.tuples(times, st.sampled_from(CHAINS)), max_size=3).map(
            lambda moves: sorted(moves, key=lambda move: move[0])
        ),
        st.sampled_from(CHAINS),
    ),
    max_size=12,
)


@given(runs)
def test_the_sum_over_persons_is_the_integral_of_usage(
    found: list[tuple[str, Resources, list[int], list[tuple[int, PoolChain]], PoolChain]],
) -> None:
    book = ConsumptionFacts()
    steps: defaultdict[tuple[int, PoolChain], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for user, given_, (began_ms, ended_ms), moves, last in found:
        former = [FormerPool(chain, moved_ms) for moved_ms, chain in moves]
        end = an_end(began_ms or 1, ended_ms)
        consumer = Consumer(oid("one"), user, 0, former)
        event = JobsEnded(oid("one"), [LoggedEnd(end, NodeName("n1"))], 3 * DAY_MS)
        book.note(event, 1, consumer, [EndedRun(end, given_, last)])
        # Usage is a step function: between two edges the run uses its resources in one pool.
        edges = sorted(
            {min(began_ms or 1, ended_ms), ended_ms, *(m for m, _ in moves), *(DAY_MS * n for n in range(4))}
        )
        for low, high in itertools.pairwise(edges):
            if (began_ms or 1) <= low and high <= ended_ms:
                chain = next((chain for moved_ms, chain in moves if low < moved_ms), last)
                for place, amount in enumerate((given_.cpu / 100, given_.memory, given_.gpu)):
                    steps[low // DAY_MS, chain][place] += amount * (high - low) / 1000
    sums: defaultdict[tuple[int, PoolChain], RunSums] = defaultdict(RunSums)
    for fact in book.waiting:
        sums[fact.day, fact.chain] += fact.sums

    for key in {*sums, *steps}:
        counted = sums[key]
        figures = [counted.allotted_core_s, counted.allotted_byte_s, counted.allotted_gpu_s]
        assert figures == pytest.approx(steps[key], rel=1e-9)
    assert sum(each.runs for each in sums.values()) == len(found)
