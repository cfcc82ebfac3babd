"""Where reading of finished operations goes on: after any position, in the middle of an entry too, each end comes once."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.finished import LogPosition, _finished, _of_this_end, _Reading
from headrace.ids import OperationId, PoolName
from headrace.wire.log import Event, OperationStarted, OperationStateChanged, ParametersChanged, StateCause
from headrace.wire.operations import OperationSpec, OperationState, OperationView
from headrace.wire.replay import ToldEntry
from tests.support.effort import CASES

RUNNING, COMPLETED = OperationState.RUNNING, OperationState.COMPLETED


def over(nth: int) -> OperationStateChanged:
    return OperationStateChanged(OperationId(f"op-{nth}"), COMPLETED, StateCause.JOBS_DONE, "", at_ms=nth)


def started(nth: int) -> OperationStarted:
    spec = OperationSpec(PoolName("first"), ["work"])
    return OperationStarted(OperationId(f"op-{nth}"), "anna", spec, RUNNING, False, 0, 0, at_ms=nth)


@st.composite
def logs(draw: st.DrawFn) -> list[ToldEntry]:
    """Entries in which some operations end; the term grows now and then, and the log may have lost entries before it did."""
    entries, nth, term, sequence = [], 0, 1, 0
    for ends in draw(st.lists(st.integers(0, 3), min_size=1, max_size=8)):
        if draw(st.booleans()):
            term, sequence = term + 1, max(0, sequence - draw(st.integers(0, 2)))
        sequence += 1
        events: list[Event] = []
        for _ in range(ends):
            events += [started(nth), over(nth)]
            nth += 1
        entries.append(ToldEntry(sequence, term, events))
    return entries


@settings(max_examples=CASES, deadline=None)
@given(logs(), st.data())
def test_reading_goes_on_after_any_end(entries: list[ToldEntry], data: st.DataObject) -> None:
    ends = list(_Reading(LogPosition()).ends(entries))
    taken = data.draw(st.integers(0, len(ends)))
    position = ends[taken - 1].position if taken else LogPosition()
    reading = _Reading(LogPosition.parse(str(position), "test"))
    rest = list(reading.ends(entries))

    assert [end.event.operation for end in [*ends[:taken], *rest]] == [f"op-{nth}" for nth in range(len(ends))]
    assert sorted(end.position for end in ends) == [end.position for end in ends]
    # A second look at the same entries finds nothing.
    assert list(reading.ends(entries[-1:])) == []


def test_what_was_read_says_what_admission_has_forgotten() -> None:
    moved = ParametersChanged(OperationId("op-1"), PoolName("second"), 1.0, False, 2)
    (end,) = _Reading(LogPosition()).ends([ToldEntry(1, 1, [started(1), moved]), ToldEntry(2, 1, [over(1)])])
    known = _finished(end, None)
    (bare,) = _Reading(LogPosition()).ends([ToldEntry(2, 1, [over(1)])])

    assert (known.user, known.pool, known.program, known.is_complete) == ("anna", "second", "work", True)
    assert (_finished(bare, None).user, _finished(bare, None).is_complete) == ("", False)


def test_a_view_of_a_later_operation_with_the_same_id_is_not_taken() -> None:
    (end,) = _Reading(LogPosition()).ends([ToldEntry(2, 1, [over(1)])])
    view = OperationView(
        *(
            OperationId("op-1"),
            "ben",
            OperationSpec(PoolName("lab"), ["work"]),
            COMPLETED,
            False,
            False,
            1,
            1,
            1,
            0,
            0,
            0,
            0,
        )
    )
    later = msgspec.structs.replace(view, ended_at_ms=9)

    assert _of_this_end({"op-1": view}, end) is view
    assert _of_this_end({"op-1": later}, end) is None
