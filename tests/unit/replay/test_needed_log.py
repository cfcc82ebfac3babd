"""Of a long log only what a replay of a short time needs is kept, and the replay is the same."""

from __future__ import annotations

import pytest

from headrace.errors import BadInput
from headrace.ids import OperationId
from headrace.wire.log import OperationStateChanged, StateCause
from headrace.wire.operations import OperationState
from headrace.wire.replay import Replay
from headrace_cli.replay.needed_log import NeededLog
from headrace_simulator.comparison import replayed
from tests.support.recorded_day import NOON_MS, Day, a_tree

HOUR_S = 3_600


def done(day: Day, name: str, at_s: float) -> None:
    """The operation is over."""
    cause = StateCause.JOBS_DONE
    day.add(OperationStateChanged(OperationId(name), OperationState.COMPLETED, cause, "", NOON_MS + round(at_s * 1000)))


def a_long_day() -> Day:
    """An operation of a hundred jobs each hour, and one that runs from the first hour into the second."""
    day = Day()
    day.start("over-night", "research", 2, 0)
    for hour in range(3):
        name, began_s = f"of-hour-{hour}", hour * HOUR_S
        day.start(name, "adhoc", 100, began_s)
        for index in range(100):
            day.end(name, index, began_s + index, began_s + index + 1)
        if hour == 1:
            for index in range(2):
                day.end("over-night", index, 0, began_s + 200)
            done(day, "over-night", began_s + 200)
        done(day, name, began_s + 101)
    return day


def of_second_hour(most_runs: int) -> NeededLog:
    since_ms = NOON_MS + HOUR_S * 1000
    return NeededLog(since_ms, since_ms + 600_000, most_runs)


@pytest.mark.long
def test_the_replay_of_an_hour_is_the_same_without_what_was_over_and_what_came_later() -> None:
    day, log = a_long_day(), of_second_hour(1_000)
    log.add(day.entries)
    log.cut()
    task = day.task(a_tree(adhoc=1, research=1), HOUR_S, HOUR_S + 600)
    answers = [
        replayed(each, lambda _: None)
        for each in (task, day.task(a_tree(adhoc=1, research=1), HOUR_S, HOUR_S + 600, entries=log.entries))
    ]

    assert isinstance(answers[0], Replay)
    assert answers[0].job_runs == 102
    assert answers[1] == answers[0]
    assert (log.first_ms, log.tells) == (NOON_MS, True)
    assert sum(len(entry.events) for entry in log.entries) == 1 + 2 + 1 + 1 + 100 + 1


def add_in_pages(log: NeededLog) -> None:
    entries = a_long_day().entries
    for at in range(0, len(entries), 50):
        log.add(entries[at : at + 50])


def test_more_runs_than_can_be_replayed_are_refused_where_the_time_itself_has_them() -> None:
    add_in_pages(of_second_hour(250))

    with pytest.raises(BadInput, match="more than 101 runs of jobs"):
        add_in_pages(of_second_hour(101))


def test_a_log_that_tells_nothing_of_the_time_says_so() -> None:
    log = NeededLog(NOON_MS + 20 * HOUR_S * 1000, NOON_MS + 21 * HOUR_S * 1000)
    empty = NeededLog(0, NOON_MS)
    log.add(a_long_day().entries)

    assert not log.tells
    assert empty.first_ms == 0
