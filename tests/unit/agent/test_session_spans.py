"""What an agent reports of the sessions of people with its jobs."""

from __future__ import annotations

import random

import pytest

from headrace.ids import AllocationId
from headrace.runtime.engine import NS_PER_MS, Moment
from headrace.wire.heartbeat import MOST_SESSION_SPANS, Forget, JobKey, SessionSpan
from headrace.wire.refusals import Busy
from headrace.wire.sessions import SessionTurn
from headrace_agent.session_spans import AnsweredTurn, SessionSpans
from tests.support.agent_desk import OPERATION, Desk, job, start

GRACE_MS = 10_000
JOB, ALLOCATION = job(0), AllocationId("a")


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000

    @property
    def now(self) -> Moment:
        return Moment(self.ms * NS_PER_MS, self.ms)


class Book:
    """The spans of an agent, and a service that records what it reports."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.spans = SessionSpans(GRACE_MS)
        self.jobs = {JOB}
        self.recorded: list[SessionSpan] = []

    def begin(self, session: str, user: str = "anna", key: JobKey = JOB) -> bool:
        return self.spans.on_begun(session, key, ALLOCATION, user, self.clock.now)

    def turn(self, session: str, *, is_over: bool = False) -> bool:
        return self.spans.on_turn(session, self.clock.now, is_over=is_over)

    def wait(self, ms: int) -> None:
        """Let time pass from each due time to the next."""
        until_ms = self.clock.ms + ms
        while (due_ns := self.spans.next_ns()) is not None and due_ns <= until_ms * NS_PER_MS:
            self.clock.ms = max(self.clock.ms, due_ns // NS_PER_MS)
            self.spans.on_time(self.jobs, self.clock.now)
            next_ns = self.spans.next_ns()
            assert next_ns is None or next_ns > self.clock.now.steady_ns, "the agent would never sleep"
        self.clock.ms = until_ms
        self.spans.on_time(self.jobs, self.clock.now)

    def record(self) -> list[SessionSpan]:
        """What is reported until everything is recorded."""
        told: list[SessionSpan] = []
        while report := self.spans.report():
            told += report
            self.spans.forget(report)
        self.recorded += told
        return told


def test_a_session_is_reported_when_it_begins_and_again_when_it_has_ended() -> None:
    book = Book()

    assert book.begin("s1")
    began = SessionSpan(JOB, ALLOCATION, "anna", 1_000)
    assert book.spans.report() == [began], "until it is recorded"
    assert book.record() == [began]
    book.clock.ms = 3_000
    assert book.turn("s1", is_over=True)

    assert book.record() == [SessionSpan(JOB, ALLOCATION, "anna", 1_000, 3_000, 1)]
    assert not book.turn("s1"), "a late turn begins nothing"


def test_an_end_is_reported_only_after_its_beginning_is_recorded() -> None:
    book = Book()
    book.begin("s1")
    book.turn("s1", is_over=True)

    first = book.spans.report()
    assert [each.ended_at_ms for each in first] == [0]
    assert book.spans.forget(first)
    assert [each.ended_at_ms for each in book.spans.report()] == [1_000]


def test_the_next_span_of_the_same_person_is_reported_only_after_the_end_of_the_former_is_recorded() -> None:
    book = Book()
    for session in ("s1", "s2"):
        book.begin(session)
        book.turn(session, is_over=True)
        book.clock.ms += 10

    told = book.record()

    assert [(each.began_at_ms, each.ended_at_ms) for each in told] == [(1_000, 0), (1_000, 1_000), (1_010, 0)]


def test_sessions_at_the_same_time_are_one_span() -> None:
    book = Book()
    book.begin("s1")
    assert not book.begin("s2")
    assert not book.turn("s1", is_over=True)
    assert book.turn("s2", is_over=True)

    assert [(each.ended_at_ms, each.sessions) for each in book.record()] == [(0, 0), (1_000, 2)]


def test_a_loop_of_commands_causes_one_span_a_minute() -> None:
    book = Book()
    for number in range(1_200):
        book.begin(f"s{number}")
        book.wait(100)
        book.turn(f"s{number}", is_over=True)
        book.wait(400)
        book.record()
    book.wait(120_000)
    book.record()
    book.wait(1)

    ended = [each for each in book.recorded if each.ended_at_ms]
    # 600 s of commands: the first command, and then one span for each minute.
    assert 10 <= len(ended) <= 12
    assert sum(each.sessions for each in ended) == 1_200
    assert len(book.recorded) == 2 * len(ended)
    assert book.spans.next_ns() is None, "nothing is remembered for ever"


@pytest.mark.parametrize("is_job_over", [False, True])
def test_a_session_without_turns_ends_after_the_grace_time_or_with_its_job(is_job_over: bool) -> None:
    book = Book()
    book.begin("s1")
    book.record()
    if is_job_over:
        book.jobs.clear()
        book.wait(1)
    book.wait(GRACE_MS + 6_000)

    ((ended_at_ms, sessions),) = [(each.ended_at_ms, each.sessions) for each in book.record()]
    assert sessions == 1
    assert ended_at_ms == (1_001 if is_job_over else 1_000 + GRACE_MS + 5_000)


def test_a_node_that_can_report_no_more_refuses_new_sessions_and_continues_the_others() -> None:
    book = Book()
    for number in range(MOST_SESSION_SPANS):
        assert book.spans.refusal() is None
        book.begin(f"s{number}", user=f"user{number}")

    assert isinstance(book.spans.refusal(), Busy)
    assert book.spans.knows("s0")
    assert not book.spans.knows("other")


@pytest.mark.parametrize("seed", range(8))
def test_each_session_is_in_exactly_one_recorded_span_whatever_happens(seed: int) -> None:
    draw = random.Random(seed)
    book, began, open_sessions = Book(), 0, [""] * 0
    jobs = [job(0), job(1)]
    book.jobs = set(jobs)
    for _ in range(400):
        match draw.randrange(4):
            case 0 if book.spans.refusal() is None:
                began += 1
                open_sessions.append(f"s{began}")
                book.begin(f"s{began}", draw.choice(["anna", "ben"]), draw.choice(jobs))
            case 1 if open_sessions:
                session = open_sessions.pop(draw.randrange(len(open_sessions)))
                book.turn(session, is_over=draw.random() < 0.8)
            case 2:
                book.wait(draw.choice([10, 1_000, 30_000]))
            case 3:
                told = book.spans.report()
                lost = draw.random() < 0.3
                if not lost:
                    book.spans.forget(told)
                    book.recorded += told
    book.wait(200_000)
    book.record()

    begun = [each.began_at_ms for each in book.recorded if not each.ended_at_ms]
    ended = [each for each in book.recorded if each.ended_at_ms]
    assert sum(each.sessions for each in ended) == began
    assert sorted(begun) == sorted(each.began_at_ms for each in ended)
    assert len({(each.job, each.user, each.began_at_ms) for each in ended}) == len(ended)
    for run in {(each.job, each.user) for each in ended}:
        of_run = [each for each in book.recorded if (each.job, each.user) == run]
        assert [bool(each.ended_at_ms) for each in of_run] == [False, True] * (len(of_run) // 2)


def test_heartbeats_carry_spans_until_the_allocator_says_that_they_are_recorded() -> None:
    desk = Desk()
    desk.enrolled()
    desk.turn(start("a", [0]))
    session = SessionTurn("0" * 32, OPERATION, 0, 1)
    desk.do(desk.engine.on_session(AnsweredTurn(session, "anna", is_over=False), desk.now()))
    desk.do(
        desk.engine.on_session(AnsweredTurn(SessionTurn("1" * 32, OPERATION, 7, 1), "anna", is_over=False), desk.now())
    )

    (span,) = desk.turn().sessions
    assert (span.job, span.user, span.ended_at_ms) == (job(0), "anna", 0)
    assert desk.turn().sessions == [span], "it is repeated"
    assert desk.turn(forget=Forget(sessions=[span])).sessions == []
    desk.do(desk.engine.on_session(AnsweredTurn(session, "anna", is_over=True), desk.now()))
    assert [each.sessions for each in desk.turn().sessions] == [1]
    assert desk.engine.check() == []
