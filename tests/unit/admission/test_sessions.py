"""Sessions with jobs: who may have them, trees that refuse them, and operations that get a terminal."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import msgspec
import pytest

from headrace.ids import AllocationId, NodeName
from headrace.wire.happenings import SessionStep, happenings_of
from headrace.wire.heartbeat import JobEnd, JobKey, JobResult, SessionSpan
from headrace.wire.ledger import ReportAnswer, ReportedEnd, ReportedSession, ReportEnds
from headrace.wire.log import SessionEnd, SessionNoted
from headrace.wire.logs import AskLogReader, LogReader
from headrace.wire.operations import StartAnswer
from headrace.wire.refusals import BadRequest, NotAllowed
from headrace_admission import disclosure
from headrace_admission.decisions import sessions
from headrace_admission.state.operation import Operation, OperationRecord
from headrace_admission.state.rules import GlobalRules
from headrace_cli.commands.operations.event_lines import happening_words
from tests.support.clocks import at
from tests.unit.admission.desk import TREE, Desk, oid


def asked(desk: Desk, user: str, tree: str = TREE) -> object:
    return disclosure.log_reader(desk.state, AskLogReader(oid("one"), user, session_in=tree))


def test_whoever_may_read_the_output_may_have_a_session() -> None:
    pools = {"a": {"access": {"use": ["anna", "ben"], "manage": ["chris"]}}}
    desk = Desk(pools, everywhere=GlobalRules(administrators=frozenset()))
    desk.started("one", pool="a")

    assert [type(asked(desk, user)) for user in ("anna", "chris")] == [LogReader, LogReader]
    assert isinstance(asked(desk, "ben"), NotAllowed)


def test_a_tree_may_refuse_sessions_but_not_reading() -> None:
    desk = Desk({"a": {}}, enable_interactive=False)
    desk.started("one", pool="a")

    refusal = asked(desk, "anna")

    assert isinstance(refusal, BadRequest)
    assert refusal.text() == (f"tree: tree {TREE} allows no sessions with jobs: its option enable_interactive is off")
    assert isinstance(disclosure.log_reader(desk.state, AskLogReader(oid("one"), "anna")), LogReader)


def test_a_terminal_is_refused_where_the_tree_refuses_sessions() -> None:
    desk = Desk({"a": {}}, enable_interactive=False)

    assert isinstance(desk.start("one", "a", terminal=True), BadRequest)
    assert isinstance(desk.start("two", "a"), StartAnswer)


@pytest.mark.parametrize("wrong", [{"job_count": 2}, {"output": "out"}, {"error": "err"}, {"stdin": "in"}])
def test_an_operation_with_a_terminal_has_one_job_and_no_files_for_its_streams(wrong: dict[str, Any]) -> None:
    assert isinstance(Desk({"a": {}}).start("one", "a", terminal=True, **wrong), BadRequest)


def test_the_terminal_survives_a_restart_and_is_part_of_what_a_repeated_start_must_repeat() -> None:
    desk = Desk({"a": {}})
    desk.start("one", "a", terminal=True)

    assert desk.replayed().state.operations[oid("one")].spec.terminal
    assert not isinstance(desk.start("one", "a"), StartAnswer)


def test_a_former_agent_that_asks_for_a_session_without_its_tree_asks_to_read() -> None:
    data = msgspec.msgpack.encode({"operation": "one", "user": "anna"})

    assert msgspec.msgpack.decode(data, type=AskLogReader).session_in == ""


def span(user: str = "anna", began_at_ms: int = 5, ended_at_ms: int = 0, attempt: int = 1) -> SessionSpan:
    key = JobKey(oid("one"), 0, attempt)
    return SessionSpan(key, AllocationId("1-1"), user, began_at_ms, ended_at_ms, int(ended_at_ms > 0))


def report(desk: Desk, *spans: SessionSpan, node: str = "n1", end: JobEnd | None = None) -> ReportAnswer:
    ends = [] if end is None else [ReportedEnd(NodeName(node), end)]
    reported = ReportEnds(TREE, 1, ends, [ReportedSession(NodeName(node), each) for each in spans])
    outcome = desk.engine.on_report(reported, at(desk.now_ms / 1000))
    desk.record(outcome.effects)
    assert isinstance(outcome.answer, ReportAnswer)
    return outcome.answer


def noted(desk: Desk) -> list[tuple[str, str, int, SessionEnd | None, int]]:
    events = [event for event in desk.events if isinstance(event, SessionNoted)]
    return [(each.user, each.node, each.began_at_ms, each.end, each.ended_at_ms) for each in events]


def a_job() -> Desk:
    desk = Desk({"a": {}})
    desk.started("one", pool="a")
    return desk


def test_a_span_is_recorded_once_when_it_begins_and_once_when_it_ends() -> None:
    desk = a_job()
    for _ in range(3):
        assert report(desk, span()).sessions == 1
    for _ in range(3):
        assert report(desk, span(ended_at_ms=9)).sessions == 1

    assert noted(desk) == [("anna", "n1", 5, None, 0), ("anna", "n1", 5, SessionEnd.CLOSED, 9)]
    assert desk.state.operations[oid("one")].open_sessions == []
    desk.finish("one")
    assert len(noted(desk)) == 2


def test_only_the_node_that_reported_the_beginning_can_report_the_end() -> None:
    desk = a_job()
    report(desk, span())
    report(desk, span(ended_at_ms=9), node="n2")

    assert [end for *_, end, _ in noted(desk)] == [None]


def test_sessions_that_go_on_after_a_restart_of_the_agent_end_at_an_unknown_time_and_begin_anew() -> None:
    desk = a_job()
    report(desk, span("anna", 5), span("ben", 6))
    report(desk, span("anna", 70))

    assert noted(desk)[2:] == [("anna", "n1", 5, SessionEnd.UNKNOWN, 0), ("anna", "n1", 70, None, 0)]


@pytest.mark.parametrize(
    ("result", "expected"),
    [(JobResult.COMPLETED, (SessionEnd.JOB_ENDED, 8)), (JobResult.LOST, (SessionEnd.UNKNOWN, 0))],
)
def test_a_span_ends_with_its_job_if_no_end_was_reported(result: JobResult, expected: tuple[SessionEnd, int]) -> None:
    desk = a_job()
    report(desk, span())
    desk.end_run("one", result, started_at_ms=1, ended_at_ms=8)

    assert noted(desk)[1:] == [("anna", "n1", 5, *expected)]


def test_a_span_that_comes_with_the_last_end_of_its_operation_is_recorded_before_it() -> None:
    desk = a_job()
    end = JobEnd(oid("one"), 0, 1, AllocationId("1-1"), JobResult.COMPLETED, started_at_ms=1, ended_at_ms=8)
    report(desk, span(), end=end)
    report(desk, span(began_at_ms=9))

    assert noted(desk) == [("anna", "n1", 5, None, 0), ("anna", "n1", 5, SessionEnd.JOB_ENDED, 8)]
    happened = [each for event in desk.events for each in happenings_of(event) if isinstance(each, SessionStep)]
    words = [happening_words(each, UTC).partition("  ")[2] for each in happened]
    assert words == [
        "operation-one  session of anna in job 0 on n1 began",
        "operation-one  session of anna in job 0 on n1 ended after 3ms, at the latest with the job",
    ]


def test_an_operation_that_ends_with_open_sessions_says_that_their_ends_are_unknown() -> None:
    desk = a_job()
    report(desk, span())
    desk.abort("one")
    desk.released("one")

    assert [end for *_, end, _ in noted(desk)] == [None, SessionEnd.UNKNOWN]


def test_open_spans_survive_a_checkpoint_and_the_log() -> None:
    desk = a_job()
    report(desk, span())
    operation = desk.state.operations[oid("one")]

    record = msgspec.msgpack.decode(msgspec.msgpack.encode(operation.to_record()), type=OperationRecord)
    restored = Operation.from_record(record)
    replayed = desk.replayed().state.operations[oid("one")]

    for each in (restored, replayed):
        assert (each.open_sessions, each.sessions_recorded) == (operation.open_sessions, 1)


def test_one_operation_cannot_fill_the_log_with_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_SESSIONS_RECORDED", 5)
    monkeypatch.setattr(sessions, "MOST_OPEN_SESSIONS", 2)
    desk = a_job()
    assert report(desk, *(span(f"user{number}") for number in range(4))).sessions == 4
    assert len(noted(desk)) == 2
    for number in range(10):
        report(desk, span("user0", 10 + number), span("user0", 10 + number, 10 + number))

    assert sum(end is None for *_, end, _ in noted(desk)) == 5
