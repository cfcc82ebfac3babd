"""Sessions with jobs: who may have them, trees that refuse them, and operations that get a terminal."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.wire.logs import AskLogReader, LogReader
from headrace.wire.operations import StartAnswer
from headrace.wire.refusals import BadRequest, NotAllowed
from headrace_admission import disclosure
from headrace_admission.state.rules import GlobalRules
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
    assert refusal.text() == (
        f"tree: {TREE} cannot be used; expected a tree that allows sessions with jobs: its option enable_interactive is off"
    )
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
