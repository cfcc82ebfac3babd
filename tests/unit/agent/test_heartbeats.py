"""When a heartbeat goes, and what it says."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from headrace.ids import NodeName
from headrace.resources import Resources
from headrace.runtime.engine import NS_PER_MS, Moment
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, encode
from headrace.wire.heartbeat import MOST_ENDS_PER_HEARTBEAT, AllocationState, Forget, HeartbeatReason, JobResult, Nudge
from headrace_agent.effects import Trouble
from headrace_agent.engine import MOST_UNRECORDED_ENDS
from headrace_agent.heartbeat_timing import Pulse
from headrace_agent.host_faults import HostFaults
from headrace_agent.runner.protocol import Ended
from tests.support.agent_desk import NODE, Desk, end_of, job, spec, start


def test_no_heartbeat_goes_before_the_picture_of_the_runner_is_known() -> None:
    desk = Desk(picture=False)
    desk.enrolled()
    desk.advance(60_000)

    silent = list(desk.beats)
    desk.picture()

    assert silent == []
    assert len(desk.beats) == 1


def test_the_first_heartbeat_says_who_is_there_and_what_it_offers() -> None:
    desk = Desk(cpu=1200)

    assert desk.enrolments == [0]
    assert (
        desk.beat.node,
        desk.beat.incarnation,
        desk.beat.seq,
        desk.beat.applied,
        desk.beat.term,
    ) == (NODE, "life-1", 1, 0, 0)
    assert Resources(user_slots=100, cpu=1200) == desk.beat.total
    assert desk.beat.isolation == "rlimit"
    assert desk.beat.trouble == ""


def test_without_an_enrolment_the_first_heartbeat_goes_nevertheless() -> None:
    """Admission may be away while the allocator knows the node, and the leases of running jobs must be renewed."""
    desk = Desk(picture=False)
    desk.picture()

    desk.advance(1_000)

    assert len(desk.beats) == 1


def test_one_heartbeat_is_in_flight_whatever_happens() -> None:
    desk = Desk()
    desk.turn(start("a", [0, 1]))

    before = len(desk.beats)
    desk.ended(end_of(job(0)))
    desk.do(desk.engine.on_nudge(Nudge(NODE, 1), desk.now()))
    desk.advance(60_000)

    assert before == len(desk.beats)


def test_the_next_heartbeat_goes_when_the_allocator_said() -> None:
    desk = Desk()
    desk.answer(next_ms=700)

    desk.advance(699)
    early = len(desk.beats)
    desk.advance(1)

    assert (early, len(desk.beats)) == (1, 2)
    assert desk.beat.reason == HeartbeatReason.PERIOD
    assert desk.beat.applied == 1


def test_an_end_while_a_heartbeat_is_in_flight_goes_with_the_next_at_once() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.ended(end_of(job(0)))
    desk.answer(next_ms=1_000)

    desk.advance(20)

    assert [job(0)] == [end.key for end in desk.beat.ends]
    assert desk.beat.reason == HeartbeatReason.JOB_ENDED


def test_the_end_of_the_last_job_is_told_at_once_and_one_beside_others_with_what_follows_it() -> None:
    """A node with room for two short jobs would else stand idle for most of its time."""
    desk = Desk()
    desk.turn(start("a", [0]), start("b", [1]))
    desk.answer(next_ms=100)
    desk.advance(1)
    before = len(desk.beats)

    desk.ended(end_of(job(0)))
    beside_another = len(desk.beats) - before
    desk.ended(end_of(job(1)))

    assert beside_another == 0
    assert [job(0), job(1)] == [end.key for end in desk.beat.ends]
    assert len(desk.beats) == before + 1


def test_a_node_of_one_short_job_comes_no_more_often_than_an_allocator_under_load_can_take() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.answer(next_ms=15_000)
    before = len(desk.beats)

    desk.ended(end_of(job(0)))
    desk.advance(149)
    too_soon = len(desk.beats) - before
    desk.advance(1)

    assert too_soon == 0
    assert len(desk.beats) == before + 1


def test_the_end_of_the_last_job_ends_no_pause_after_a_lost_heartbeat() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.lose()
    before = len(desk.beats)

    desk.ended(end_of(job(0)))
    desk.advance(100)

    assert len(desk.beats) == before


def test_a_nudge_brings_a_heartbeat_at_once() -> None:
    desk = Desk()
    desk.answer(next_ms=60_000)
    desk.advance(100)

    desk.do(desk.engine.on_nudge(Nudge(NODE, 1), desk.now()))

    assert desk.beat.reason == HeartbeatReason.NUDGED


def test_a_nudge_right_after_a_heartbeat_brings_the_next_one_all_the_same() -> None:
    desk = Desk()
    desk.answer(next_ms=60_000)
    before = len(desk.beats)

    desk.do(desk.engine.on_nudge(Nudge(NODE, 1), desk.now()))

    assert len(desk.beats) == before + 1


def test_ends_of_an_allocation_with_many_jobs_ahead_are_told_together_and_its_last_ones_soon() -> None:
    desk = Desk()
    desk.turn(start("a", range(50)))
    desk.answer(next_ms=1_000)
    ended_before_beat: list[int] = []
    for index in range(50):
        desk.ended(end_of(job(index)))
        desk.advance(5)
        if desk.engine.pulse.in_flight:
            ended_before_beat.append(index + 1)
            desk.answer(forget=Forget([end.key for end in desk.beat.ends]), next_ms=1_000)
    desk.advance(10)

    # One each 100 ms, then one each 10 ms, as eight jobs or fewer are left.
    assert ended_before_beat == [20, 40, 42, 44, 46, 48, 50]
    assert [job(49)] == [end.key for end in desk.beat.ends][-1:]


def test_nudges_of_a_lower_term_or_for_others_are_void() -> None:
    desk = Desk()
    desk.term = 3
    desk.turn()
    desk.answer(next_ms=60_000)
    desk.advance(100)
    before = len(desk.beats)

    desk.do(desk.engine.on_nudge(Nudge(NODE, 2), desk.now()))
    desk.do(desk.engine.on_nudge(Nudge(NodeName("node-2"), 3), desk.now()))

    assert before == len(desk.beats)
    assert desk.engine.void == 2


def test_a_lost_heartbeat_is_followed_by_the_whole_picture_anew() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    lost = desk.beat
    desk.lose()

    again = desk.next_beat()

    assert (lost.seq + 1, lost.applied) == (again.seq, again.applied)
    assert [found.id for found in lost.allocations] == [found.id for found in again.allocations]


def test_while_nobody_answers_the_pauses_grow_whatever_ends() -> None:
    desk = Desk(cpu=10_000)
    desk.turn(start("a", range(50)))
    sent: list[int] = []
    for index in range(12):
        sent.append(desk.now_ns // 1_000_000)
        desk.lose(unit=0.5)
        desk.ended(end_of(job(index)))
        desk.next_beat()

    pauses = [later - earlier for earlier, later in itertools.pairwise(sent)]
    assert all(pause >= 480 for pause in pauses)
    assert pauses == sorted(pauses)
    assert 5_000 <= pauses[-1] <= 5_020


def test_the_pause_after_a_loss_is_spread_over_the_nodes() -> None:
    pauses = []
    for unit in (0.0, 0.999):
        desk = Desk()
        desk.lose(unit)
        before_ns = desk.now_ns
        desk.next_beat()
        pauses.append((desk.now_ns - before_ns) // 1_000_000)

    assert 250 <= pauses[0] < 300
    assert 740 <= pauses[1] < 780


def test_a_nudge_ends_the_pause_since_somebody_is_there_again() -> None:
    desk = Desk()
    for _ in range(8):
        desk.lose()
        desk.next_beat()
    desk.lose()
    before = len(desk.beats)

    desk.do(desk.engine.on_nudge(Nudge(NODE, 1), desk.now()))
    desk.advance(10)

    assert before + 1 == len(desk.beats)


def test_more_ends_than_a_heartbeat_holds_are_told_in_several() -> None:
    desk = Desk()
    for index in range(MOST_ENDS_PER_HEARTBEAT + 3):
        desk.ended(end_of(job(index)))

    told = desk.turn()

    assert [job(index) for index in range(MOST_ENDS_PER_HEARTBEAT)] == [end.key for end in told.ends]
    assert told.ends_waiting == 3


def test_thousands_of_ends_of_one_person_do_not_delay_the_end_of_another_persons_job() -> None:
    desk = Desk()
    flood = [msgspec.structs.replace(spec(f"flood-{each}"), user="ann") for each in (1, 2)]
    lone = msgspec.structs.replace(spec("lone"), user="ben")
    desk.turn(*(start(each.operation, [0], operation=each.operation, told=each) for each in (*flood, lone)))
    for each in flood:
        for index in range(MOST_ENDS_PER_HEARTBEAT):
            desk.ended(end_of(job(index, each.operation), each.operation))
    desk.ended(end_of(job(0, "lone"), "lone"))

    told = desk.turn().ends
    rest = desk.turn(forget=Forget(ends=[end.key for end in told])).ends

    assert told[1].key == job(0, "lone")
    assert [end.key for end in (told[0], *told[2:])] == [job(i, "flood-1") for i in range(MOST_ENDS_PER_HEARTBEAT - 1)]
    assert [end.key for end in rest[:2]] == [job(MOST_ENDS_PER_HEARTBEAT - 1, "flood-1"), job(0, "flood-2")]


def test_ends_with_long_last_words_never_make_a_heartbeat_too_large_to_be_sent() -> None:
    desk = Desk()
    for index in range(400):
        desk.ended(end_of(job(index), result=JobResult.FAILED, tail="é" * 2_048))

    told = desk.turn()

    assert len(encode(told)) <= LARGEST_MESSAGE_BYTES
    assert 50 < len(told.ends) < 400
    assert len(told.ends) + told.ends_waiting == 400


def test_with_too_many_unrecorded_ends_no_further_job_starts_and_the_heartbeat_says_why() -> None:
    desk = Desk()
    desk.turn(start("a", [0, 1]))
    for index in range(10, 10 + MOST_UNRECORDED_ENDS):
        desk.ended(end_of(job(index)))

    desk.ended(end_of(job(0)))
    desk.turn()
    told = desk.turn(start("b", [2]))

    assert [job(0)] == desk.runs
    assert f"{MOST_UNRECORDED_ENDS + 1} ends of jobs are not recorded yet" in told.trouble
    assert [found.state for found in told.allocations] == [AllocationState.ENDED] * 2


def test_trouble_is_told_at_once_and_keeps_jobs_from_starting_until_it_is_over() -> None:
    desk = Desk()
    desk.answer(next_ms=10_000)
    desk.advance(100)

    desk.do(desk.engine.on_trouble(Trouble.LOGS, "the disk is full", desk.now()))
    troubled = desk.beat
    desk.turn(start("a", [0]))
    desk.do(desk.engine.on_trouble(Trouble.LOGS, "", desk.now()))
    desk.turn(start("b", [1]))

    assert troubled.trouble == "the disk is full"
    assert [job(1)] == desk.runs
    assert desk.beat.trouble == ""


def test_after_a_fault_of_the_host_nothing_starts_for_a_while_and_longer_with_each_in_a_row() -> None:
    """The next job would have failed as the one before, and there was always a next one."""
    desk = Desk()
    pauses_s = []
    for number in range(3):
        desk.turn(start(f"a{number}", [2 * number, 2 * number + 1]))
        fault = msgspec.structs.replace(end_of(job(2 * number)), reason="no space left on device")
        desk.do(desk.engine.on_runner(Ended(fault, is_host_fault=True), desk.now()))
        began_ns = desk.now_ns
        desk.turn()
        assert desk.beat.trouble == "no space left on device"
        while desk.beat.trouble:
            desk.turn()
        pauses_s.append((desk.now_ns - began_ns) // 10**9)

    assert pauses_s == [5, 10, 20]
    assert desk.runs == [job(0), job(2), job(4)]


def test_a_start_makes_the_next_pause_short_again() -> None:
    faults = HostFaults()
    faults.note(at_s(0))
    assert faults.end_pause(at_s(5))
    faults.on_started()
    faults.note(at_s(10))
    faults.on_started()

    assert not faults.end_pause(at_s(14))
    assert faults.end_pause(at_s(15))
    assert not faults.end_pause(at_s(16))
    faults.note(at_s(20))
    assert faults.until_ns == at_s(30).steady_ns


def at_s(seconds: int) -> Moment:
    return Moment(seconds * 10**9, 0)


def test_without_any_runner_the_node_is_heard_and_says_so() -> None:
    desk = Desk(picture=False)
    desk.enrolled()

    desk.do(desk.engine.on_trouble(Trouble.NO_RUNNER, "no runner can be started", desk.now()))

    assert "no runner can be started" in desk.beat.trouble


def test_waiting_for_a_runner_that_may_hold_jobs_the_node_is_silent() -> None:
    desk = Desk(picture=False)
    desk.enrolled()

    desk.do(desk.engine.on_trouble(Trouble.RUNNER_AWAY, "the runner is running, but does not listen", desk.now()))
    desk.advance(60_000)

    assert desk.beats == []


@pytest.mark.parametrize(
    ("told_ms", "pauses_ms"), [(1_000, [500, 1_000, 2_000, 4_000, 5_000]), (16_000, [2_000, 4_000, 8_000, 16_000])]
)
def test_nothing_is_told_again_sooner_than_an_allocator_that_asked_for_time_can_take_it(
    told_ms: int, pauses_ms: list[int]
) -> None:
    pulse = Pulse()
    pulse.open()
    pulse.begin_heartbeat(0)
    pulse.answered(told_ms, 0)

    for pause_ms in [*pauses_ms, pauses_ms[-1]]:
        pulse.want(HeartbeatReason.JOB_ENDED)
        now_ns = pulse.next_ns() or 0
        assert pulse.begin_heartbeat(now_ns)
        pulse.lost(0.5, now_ns, stopping=False)
        assert pulse.next_ns() == now_ns + pause_ms * NS_PER_MS
