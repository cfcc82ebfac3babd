"""A node speaks for the jobs that it was given, and for no others."""

from __future__ import annotations

import msgspec
import pytest

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.resources import MOST_OF_A_NODE, ZERO, Resources
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobEnd, JobResult, JobSlot, RunningJob
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace_allocator.effects import ForeignClaim, HeldTwice, Report
from tests.support.allocating import TERM, Desk, an_operation, cores, drawn_before

JOBS = 4


def two_nodes() -> Desk:
    """Job 0 runs on n1, which has one core. The jobs behind it wait, and n2 has no room for any."""
    desk = Desk({"n1": cores(1, slots=9), "n2": ZERO})
    desk.start(an_operation("op", jobs=JOBS))
    (start,) = desk.beat("n1")[0].start
    desk.beat("n1", allocations=[shown(start.allocation, 0)])
    desk.beat("n2")
    return desk


def shown(
    name: str, *jobs: int, state: AllocationState = AllocationState.RUNNING, size: Resources | None = None
) -> AllocationReport:
    """An allocation that runs the first of the jobs, and has the others still to run."""
    job = RunningJob(jobs[0], 1, 1, 1) if jobs and state is AllocationState.RUNNING else None
    unstarted = [JobSlot(index) for index in (jobs if job is None else jobs[1:])]
    return AllocationReport(AllocationId(name), OperationId("op"), state, size or cores(1), job, unstarted)


def end_of(index: int, attempt: int = 1, result: JobResult = JobResult.COMPLETED, name: str = "9-f") -> JobEnd:
    return JobEnd(OperationId("op"), index, attempt, AllocationId(name), result)


@pytest.mark.parametrize("result", JobResult)
@pytest.mark.parametrize("end", [end_of(0), end_of(0, 2), end_of(2), end_of(2, 2), end_of(JOBS), end_of(2**31 - 1)])
def test_an_end_of_a_job_that_the_node_was_not_given_changes_nothing_and_is_alarmed(
    end: JobEnd, result: JobResult
) -> None:
    desk = two_nodes()
    end = msgspec.structs.replace(end, result=result)

    orders, effects = desk.beat("n2", ends=[end])
    kept, _ = desk.beat("n1", allocations=[shown(next(iter(desk.node("n1").allocations)), 0)])

    assert orders.forget.ends == [end.key], "the node need not report it again"
    (claim,) = effects
    assert isinstance(claim, ForeignClaim)
    assert (claim.node, claim.claims) == ("n2", 1)
    assert f"attempt {end.attempt} of job {end.index} of operation op" in claim.first
    assert desk.engine.foreign_claims == 1
    slots = desk.operation("op").slots
    assert (slots.out(), slots.ready_count, kept.take_back) == ([JobSlot(0)], JOBS - 1, [])


def test_an_end_in_the_name_of_the_allocation_of_another_node_changes_nothing() -> None:
    desk = two_nodes()
    (theirs,) = desk.node("n1").allocations

    _, effects = desk.beat("n2", ends=[end_of(0, name=theirs)])

    assert [type(one) for one in effects] == [ForeignClaim]
    assert desk.operation("op").slots.out() == [JobSlot(0)]


def test_a_thousand_claims_of_one_heartbeat_are_one_alarm() -> None:
    desk = two_nodes()

    _, effects = desk.beat("n2", ends=[end_of(2, attempt) for attempt in range(1, 401)])

    (claim,) = effects
    assert isinstance(claim, ForeignClaim)
    assert claim.claims == desk.engine.foreign_claims == 400


def test_a_node_that_shows_a_job_which_it_was_not_given_does_not_get_it_and_cannot_end_it() -> None:
    """The claim on a job would make its end the end of its own job."""
    desk = two_nodes()

    orders, effects = desk.beat("n2", allocations=[shown("9-f", 2)])
    _, later = desk.beat("n2", ends=[end_of(2)])

    assert [one.allocation for one in orders.take_back] == ["9-f"]
    assert [type(one) for one in effects] == [ForeignClaim]
    assert later == [], "it was taken back there, and alarmed"
    assert desk.operation("op").slots.ready_count == JOBS - 1


def test_a_node_that_shows_a_job_of_another_node_is_told_to_end_it_and_the_other_goes_on() -> None:
    desk = two_nodes()

    orders, effects = desk.beat("n2", allocations=[shown("9-f", 0)])
    _, later = desk.beat("n2", ends=[end_of(0)])

    assert [one.allocation for one in orders.take_back] == ["9-f"]
    assert [type(one) for one in effects] == [HeldTwice]
    assert later == []
    assert desk.operation("op").slots.out() == [JobSlot(0)]


def test_a_node_cannot_use_up_the_share_of_an_operation() -> None:
    desk = two_nodes()
    held = desk.operation("op").held
    claims = [shown(f"9-{number}", 2, size=MOST_OF_A_NODE) for number in range(5)]

    desk.beat("n2", allocations=claims)
    desk.beat("n2", allocations=[*claims, shown("9-f", size=MOST_OF_A_NODE)])

    assert desk.operation("op").held == held


def test_an_allocation_that_a_former_allocator_made_is_as_large_as_the_jobs_of_its_operation() -> None:
    desk = Desk({"n1": cores(1, slots=9)}, recovering=True)
    desk.start(drawn_before(an_operation("op", jobs=JOBS)))

    desk.beat("n1", allocations=[shown("4-1", 0, size=MOST_OF_A_NODE)])

    assert desk.operation("op").held == cores(1)


def test_an_attempt_that_nobody_let_out_is_not_taken_for_one_that_a_former_allocator_let_out() -> None:
    """Nobody could count the attempt behind the last that there is."""
    desk = Desk({"n1": cores(1, slots=9)}, recovering=True)
    desk.start(drawn_before(an_operation("op", jobs=JOBS)))
    report = msgspec.structs.replace(shown("4-1", 0), job=RunningJob(0, 2**31 - 1, 1, 1))

    orders, effects = desk.beat("n1", allocations=[report])

    assert [one.allocation for one in orders.take_back] == ["4-1"]
    assert ForeignClaim in [type(one) for one in effects]
    assert desk.operation("op").slots.attempt(0) == 1


def test_a_node_cannot_end_a_job_by_saying_that_its_place_was_taken_before_it_began() -> None:
    desk = two_nodes()
    record = PreemptionRecord(PreemptionReason.PREEMPTION, OperationId("poor"))
    ended = msgspec.structs.replace(shown("9-f", 2, state=AllocationState.ENDED), preemption=record)

    orders, effects = desk.beat("n2", allocations=[ended])

    assert orders.forget.allocations == ["9-f"]
    assert not [one for one in effects if isinstance(one, Report)]
    assert desk.operation("op").slots.ready_count == JOBS - 1


def test_an_operation_that_is_started_later_gives_no_job_to_a_node_that_guessed_its_id() -> None:
    desk = Desk({"n1": cores(9, slots=9)})
    guessed = [shown("9-f", 0)]
    desk.beat("n1", allocations=guessed)
    desk.start(an_operation("op", jobs=JOBS))

    orders, _ = desk.beat("n1", allocations=guessed, obeyed=False)
    _, effects = desk.beat("n1", ends=[end_of(0)], obeyed=False)

    assert desk.operation("op").slots.attempt(0) == 1
    assert not [one for one in effects if isinstance(one, Report)]
    assert "9-f" in [one.allocation for one in orders.take_back]


def test_ends_that_come_late_are_dropped_without_an_alarm() -> None:
    """One that was acknowledged, one of a job that was given to others, and one of an operation that is over."""
    desk = Desk({"n1": cores(2, slots=9), "n2": cores(2, slots=9)}, node_lease_s=100.0, longest_lease_s=100.0)
    desk.start(an_operation("op", jobs=2))
    first, second = desk.beat("n1")[0].start
    done = end_of(0, name=first.allocation)
    _, effects = desk.beat("n1", allocations=[shown(second.allocation, 1)], ends=[done])
    (report,) = [one for one in effects if isinstance(one, Report)]
    desk.engine.on_recorded(report.ends, desk.now)
    desk.beat("n1", allocations=[shown(second.allocation, 1)], ends=[done])
    lost = [one for one in desk.tick(desk.now_s + 101) if isinstance(one, Report)]
    assert [one.end.result for one in lost[0].ends] == [JobResult.LOST]

    late = end_of(1, name=second.allocation)
    again, more = desk.beat("n1", ends=[done])
    desk.engine.on_recorded(lost[0].ends, desk.now)
    back, and_more = desk.beat("n1", ends=[late])
    desk.start()
    over, and_last = desk.beat("n1", ends=[end_of(0, name="4-1")])

    assert [one.forget.ends for one in (again, back, over)] == [[done.key], [late.key], [done.key]]
    assert [*more, *and_more, *and_last] == []
    assert desk.engine.foreign_claims == 0


def test_a_late_end_is_forgotten_only_after_the_loss_of_its_job_is_recorded() -> None:
    """Were the allocator killed in between, nobody would know that the attempt is over."""
    desk = Desk({"n1": cores(1)}, recovering=True)
    desk.start(drawn_before(an_operation("op", jobs=1)))
    (lost,) = [one for one in desk.tick(desk.now_s + 601) if isinstance(one, Report)]

    early, effects = desk.beat("n1", ends=[end_of(0, name="4-1")])
    desk.engine.on_recorded(lost.ends, desk.now)
    late, _ = desk.beat("n1", ends=[end_of(0, name="4-1")])

    assert (early.forget.ends, effects) == ([], [])
    assert late.forget.ends == [end_of(0, name="4-1").key]


def test_an_end_of_a_job_in_doubt_counts_from_the_node_that_tells_of_it() -> None:
    """A former allocator gave it out, and this one knows nobody else who holds it."""
    desk = Desk({"n1": cores(1), "n2": cores(1)}, recovering=True)
    desk.start(drawn_before(an_operation("op", jobs=1)))

    _, effects = desk.beat("n1", ends=[end_of(0, name="4-1")])

    assert [one.ends[0].node for one in effects if isinstance(one, Report)] == [NodeName("n1")]
    assert desk.engine.foreign_claims == 0
    assert desk.beat("n2", term=TERM)[0].start == []
