"""Which orders an agent obeys, and what becomes of them."""

from __future__ import annotations

import pytest

from headrace.ids import AllocationId
from headrace.wire.heartbeat import AllocationState, Forget, JobSlot, TakeBack, TakeBackReason
from headrace_agent.runner.protocol import Acknowledge, Interrupt, NodeLease, Run
from tests.support.agent_desk import OPERATION, Desk, end_of, extend, job, spec, start, take_back


def test_a_start_whose_room_is_free_hands_its_first_job_to_the_runner() -> None:
    desk = Desk()

    desk.answer(start("a", [3, 4]))

    assert [job(3)] == desk.runs
    desk.next_beat()
    report = desk.report("a")
    assert report is not None
    assert report.state == AllocationState.RUNNING
    assert [JobSlot(4)] == report.unstarted
    assert report.job is not None
    assert (report.job.index, report.job.attempt) == (3, 1)


def test_a_start_without_room_waits_until_an_allocation_has_ended() -> None:
    desk = Desk(cpu=100)
    desk.turn(start("a", [0]), start("b", [1]))

    waiting = desk.report("b")
    desk.ended(end_of(job(0)))

    assert waiting is not None
    assert waiting.state == AllocationState.WAITING
    assert [job(0), job(1)] == desk.runs


def test_a_closing_allocation_holds_its_room_until_its_process_is_gone() -> None:
    desk = Desk(cpu=100)
    desk.turn(start("a", [0]))

    desk.turn(take_back("a"), start("b", [1]))
    while_closing = list(desk.runs)
    desk.ended(end_of(job(0)))

    assert [job(0)] == while_closing
    assert [job(0), job(1)] == desk.runs


def test_waiting_allocations_start_in_the_order_in_which_they_came() -> None:
    desk = Desk(cpu=300)
    desk.turn(start("a", [0], cpu=200), start("wide", [1], cpu=200), start("slim", [2], cpu=100))

    while_full = list(desk.runs)
    desk.ended(end_of(job(0)))

    assert [job(0)] == while_full, "a slim one must not overtake a wide one, or that would wait for ever"
    assert [job(0), job(1), job(2)] == desk.runs


def test_a_start_of_an_unknown_operation_without_its_spec_ends_at_once_and_gives_its_slots_back() -> None:
    desk = Desk()

    desk.turn(start("a", [5, 6], with_spec=False))

    report = desk.report("a")
    assert report is not None
    assert report.state == AllocationState.ENDED
    assert [JobSlot(5), JobSlot(6)] == report.unstarted
    assert desk.runs == []


def test_a_spec_is_known_while_an_allocation_of_its_operation_is_in_the_books() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.turn(start("b", [1], with_spec=False))
    desk.ended(end_of(job(0)))
    desk.ended(end_of(job(1), "b"))
    desk.turn(forget=Forget(allocations=[AllocationId("a"), AllocationId("b")]))
    desk.turn(start("c", [2], with_spec=False))

    assert [job(0), job(1)] == desk.runs
    report = desk.report("c")
    assert report is not None
    assert report.state == AllocationState.ENDED


def test_an_allocation_larger_than_the_host_is_given_back() -> None:
    desk = Desk(cpu=100)

    desk.turn(start("a", [0], cpu=200))

    report = desk.report("a")
    assert report is not None
    assert (AllocationState.ENDED, [JobSlot(0)]) == (report.state, report.unstarted)


def test_an_operation_whose_id_is_none_never_reaches_the_runner() -> None:
    desk = Desk()

    desk.turn(start("a", [0], operation="../../etc"))

    assert desk.runs == []


def test_starting_a_known_allocation_changes_nothing() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))

    desk.turn(start("a", [7]))

    assert [job(0)] == desk.runs
    report = desk.report("a")
    assert report is not None
    assert report.unstarted == []


def test_a_slot_that_is_here_already_does_not_run_twice() -> None:
    desk = Desk()
    desk.turn(start("a", [0, 1]))
    desk.turn(start("b", [0, 1, 2, 2]), extend("a", [1, 3]))
    desk.ended(end_of(job(0)))
    desk.ended(end_of(job(1)))

    assert sorted([job(0), job(1), job(2), job(3)]) == sorted(desk.runs)


def test_the_next_slot_starts_at_the_end_of_a_job_without_asking() -> None:
    desk = Desk()
    desk.turn(start("a", [0, 1]))
    desk.answer()

    desk.ended(end_of(job(0)))

    assert [job(0), job(1)] == desk.runs


def test_an_allocation_without_a_slot_left_ends_and_a_heartbeat_says_so_at_once() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.answer(next_ms=10_000)

    desk.advance(100)
    before = len(desk.beats)
    desk.ended(end_of(job(0)))

    assert before + 1 == len(desk.beats)
    report = desk.report("a")
    assert report is not None
    assert report.state == AllocationState.ENDED
    assert [job(0)] == [end.key for end in desk.beat.ends]


def test_extending_a_running_allocation_adds_slots() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.turn(extend("a", [1, 2]))

    desk.ended(end_of(job(0)))

    assert [job(0), job(1)] == desk.runs


@pytest.mark.parametrize("over", [True, False], ids=["ended", "closing"])
def test_slots_for_an_allocation_that_starts_nothing_any_more_are_given_back(over: bool) -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.turn(take_back("a"))
    if over:
        desk.ended(end_of(job(0)))

    desk.turn(extend("a", [1]))

    report = desk.report("a")
    assert report is not None
    assert AllocationState.ENDED if over else report.state == AllocationState.CLOSING
    assert [JobSlot(1)] == report.unstarted
    assert [job(0)] == desk.runs


def test_orders_that_would_overfill_an_allocation_are_void_as_a_whole() -> None:
    desk = Desk()
    desk.turn(start("a", range(60)))

    desk.answer(extend("a", range(60, 64)), extend("a", range(64, 68)), start("b", [100]))

    assert desk.engine.void == 1
    assert [job(0)] == desk.runs


def test_taking_back_interrupts_the_job_and_gives_the_other_slots_back() -> None:
    desk = Desk()
    desk.turn(start("a", [0, 1, 2]))

    desk.turn(take_back("a", timeout_ms=700))
    report = desk.report("a")
    desk.ended(end_of(job(0)))

    assert [(job(0), 700)] == [(order.job, order.timeout_ms) for order in desk.told(Interrupt)]
    assert report is not None
    assert (AllocationState.CLOSING, [JobSlot(1), JobSlot(2)]) == (report.state, report.unstarted)
    assert [job(0)] == desk.runs
    last = desk.turn()
    assert [(AllocationState.ENDED, [JobSlot(1), JobSlot(2)])] == [(a.state, a.unstarted) for a in last.allocations]


def test_the_end_of_a_job_says_in_plain_words_why_its_place_was_taken_back() -> None:
    desk = Desk()
    desk.turn(start("a", [0]), start("b", [1]))

    over = TakeBack(AllocationId("a"), TakeBackReason.OPERATION_ENDED, 50)
    desk.turn(over, take_back("b", detail="for serve, which starves"))

    assert [order.reason for order in desk.told(Interrupt)] == [
        "operation ended",
        "preempted: for serve, which starves",
    ]


def test_taking_back_without_a_timeout_lets_the_job_end_by_itself_until_somebody_is_in_a_hurry() -> None:
    desk = Desk()
    desk.turn(start("a", [0, 1]))

    desk.turn(take_back("a", timeout_ms=None))
    gently = list(desk.told(Interrupt))
    desk.turn(take_back("a", timeout_ms=50))

    assert gently == []
    assert [order.timeout_ms for order in desk.told(Interrupt)] == [50]


def test_taking_back_a_waiting_allocation_ends_it() -> None:
    desk = Desk(cpu=100)
    desk.turn(start("a", [0]), start("b", [1, 2]))

    desk.turn(take_back("b"))

    report = desk.report("b")
    assert report is not None
    assert (AllocationState.ENDED, [JobSlot(1), JobSlot(2)]) == (report.state, report.unstarted)
    assert desk.told(Interrupt) == []


def test_ended_allocations_and_ends_stay_in_the_picture_until_they_are_forgotten() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.ended(end_of(job(0)))
    desk.turn()
    unforgotten = desk.turn()

    forgotten = desk.turn(forget=Forget(ends=[job(0)], allocations=[AllocationId("a")]))

    assert ([job(0)], ["a"]) == ([e.key for e in unforgotten.ends], [a.id for a in unforgotten.allocations])
    assert (forgotten.ends, forgotten.allocations) == ([], [])
    assert [Acknowledge([job(0)])] == desk.told(Acknowledge)


def test_an_allocation_that_lives_is_not_forgotten() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))

    last = desk.turn(forget=Forget(allocations=[AllocationId("a")]))

    assert [found.id for found in last.allocations] == ["a"]


def test_orders_for_another_node_life_or_heartbeat_are_void() -> None:
    desk = Desk()
    desk.turn()
    for wrong in (
        {"node": "node-2"},
        {"incarnation": "life-0"},
        {"seq": desk.beat.seq - 1},
        {"seq": desk.beat.seq + 1},
    ):
        effects = desk.answer(start("a", [0]), **wrong)

        assert [getattr(effect, "event", effect) for effect in effects] == ["void orders"]
    assert desk.engine.void == 4
    assert desk.runs == []


def test_orders_of_a_lower_term_are_void() -> None:
    desk = Desk()
    desk.term = 5
    desk.turn()
    desk.term = 4

    desk.answer(start("a", [0]))

    assert desk.runs == []
    assert desk.engine.term == 5
    assert desk.engine.void == 1


def test_jobs_for_a_node_that_is_not_enrolled_are_void() -> None:
    """They would come without a lease."""
    desk = Desk()
    desk.turn()

    desk.answer(start("a", [0]), enrolled=False)

    assert desk.runs == []
    assert desk.engine.void == 1


def test_the_same_answer_a_second_time_is_void() -> None:
    desk = Desk()
    desk.answer(start("a", [0, 1]))

    desk.answer(extend("a", [7]))

    assert desk.engine.void == 1
    desk.next_beat()
    report = desk.report("a")
    assert report is not None
    assert [JobSlot(1)] == report.unstarted


def test_an_answer_that_comes_after_the_heartbeat_was_given_up_is_void() -> None:
    desk = Desk()
    desk.lose()

    desk.answer(start("a", [0]))

    assert desk.runs == []
    assert desk.next_beat().applied == 0


def test_the_lease_counts_from_the_sending_of_the_heartbeat() -> None:
    desk = Desk()
    sent_ns = desk.now_ns
    desk.advance(1_500)

    desk.answer(lease_ms=600_000)

    assert [NodeLease(sent_ns + 590_000 * 1_000_000, since_boottime_ns=sent_ns)] == desk.told(NodeLease)


def test_a_lease_says_since_when_leases_have_followed_one_another() -> None:
    desk = Desk()
    first_ns = desk.now_ns
    desk.answer(lease_ms=4_000)
    desk.next_beat()
    desk.answer(lease_ms=4_000)
    desk.advance(60_000)
    desk.lose()
    desk.next_beat()
    last_ns = desk.now_ns
    desk.answer(lease_ms=4_000)

    assert [lease.since_boottime_ns for lease in desk.told(NodeLease)] == [first_ns, first_ns, last_ns]


def test_a_short_lease_is_kept_half_and_an_endless_one_is_one_that_the_runner_can_read() -> None:
    desk = Desk()
    sent_ns = desk.now_ns
    desk.answer(lease_ms=4_000)
    desk.next_beat()
    desk.answer(lease_ms=2**53)

    assert [lease.until_boottime_ns for lease in desk.told(NodeLease)] == [sent_ns + 2_000 * 1_000_000, 2**62]


@pytest.mark.parametrize("lease_ms", [600_000, 10_000, 8_000, 2_000])
def test_a_job_that_ignores_its_interruption_is_killed_before_others_may_run_it(lease_ms: int) -> None:
    desk = Desk()
    sent_ns = desk.now_ns
    desk.answer(lease_ms=lease_ms)

    [lease] = desk.told(NodeLease)
    killed_ns = lease.until_boottime_ns + lease.timeout_ms * 1_000_000
    assert killed_ns < sent_ns + lease_ms * 1_000_000


def test_a_node_that_the_allocator_does_not_know_enrols_again_and_gets_no_lease() -> None:
    desk = Desk()
    desk.advance(400)

    desk.answer(enrolled=False)

    assert desk.enrolments == [0, 600], "not before a second after it was enrolled"
    assert desk.told(NodeLease) == []


def test_a_job_of_an_operation_knows_what_it_is_and_nothing_of_the_agent() -> None:
    desk = Desk()
    lies = spec(HOME="/elsewhere", HEADRACE_NODE="mine", OWN="yes")

    desk.answer(start("a", [7], told=lies))

    environment = desk.told(Run)[0].environment
    assert environment == {
        "PATH": "/bin",
        "HOME": "/elsewhere",
        "OWN": "yes",
        "HEADRACE_OPERATION_ID": OPERATION,
        "HEADRACE_JOB_INDEX": "7",
        "HEADRACE_ATTEMPT": "1",
        "HEADRACE_JOB_COUNT": "1000",
        "HEADRACE_ALLOCATION_ID": "a",
        "HEADRACE_NODE": "node-1",
        "HEADRACE_POOL": "research",
    }
