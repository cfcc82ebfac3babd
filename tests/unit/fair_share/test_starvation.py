"""The clocks of starvation and of counted time."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.runtime.engine import Moment
from headrace.wire.codec import decode
from headrace.wire.snapshots import StarvationReason, StarvationStatus
from headrace_fair_share.starvation.clocks import (
    NO_TIME,
    STARVATION,
    STARVATION_REASON,
    Age,
    Ages,
    Clocks,
    CountedTime,
    clocks_of,
    coming,
    step,
)
from headrace_fair_share.starvation.rules import Timeouts

NON_STARVING, STARVING, AGGRESSIVE = STARVATION
BELOW, NORMAL = True, False


def timeouts(
    starving: float = 30, aggressive: float = 120, *, enabled: bool = True, short: float = math.inf
) -> Timeouts:
    """Of one element, in milliseconds."""
    return Timeouts(np.array([starving]), np.array([aggressive]), np.array([enabled]), np.array([short]))


def stepped(clocks: Clocks, now: int, below: bool, limits: Timeouts | None = None, short: bool = False) -> Clocks:
    """The clocks of one element after an update."""
    return step(clocks, now, np.array([below]), np.array([short]), limits or timeouts())


def below_at(*moments: int, limits: Timeouts | None = None) -> Clocks:
    """The clocks of an element that was below its fair share in updates at these moments."""
    clocks = Clocks.none(["x"])
    for now in moments:
        clocks = stepped(clocks, now, BELOW, limits)
    return clocks


def status(clocks: Clocks) -> StarvationStatus:
    return STARVATION[int(clocks.starvation[0])]


def reason(clocks: Clocks) -> StarvationReason:
    return STARVATION_REASON[int(clocks.reason[0])]


@pytest.mark.parametrize("before", [(), (0,), (0, 31), (0, 31, 121)])
def test_what_is_normal_does_not_starve_and_has_no_clock(before: tuple[int, ...]) -> None:
    clocks = stepped(below_at(*before), 200, NORMAL)

    assert (clocks.below_since[0], status(clocks), clocks.since[0]) == (NO_TIME, NON_STARVING, NO_TIME)


def test_the_first_time_below_starts_the_clock_and_nothing_else() -> None:
    clocks = below_at(5)

    assert (clocks.below_since[0], status(clocks)) == (5, NON_STARVING)


@pytest.mark.parametrize(
    ("moments", "expected", "since"),
    [
        ((0, 30), NON_STARVING, NO_TIME),
        ((0, 31), STARVING, 31),
        ((0, 31, 120), STARVING, 31),
        ((0, 31, 121), AGGRESSIVE, 31),
        ((0, 121), AGGRESSIVE, 121),
    ],
)
def test_starvation_begins_strictly_after_its_timeout(
    moments: tuple[int, ...], expected: StarvationStatus, since: int
) -> None:
    clocks = below_at(*moments)

    assert (status(clocks), clocks.since[0], clocks.below_since[0]) == (expected, since, 0)


def test_nothing_starves_aggressively_where_that_is_not_enabled() -> None:
    assert status(below_at(0, 31, 500, limits=timeouts(enabled=False))) is STARVING


def test_switching_aggression_off_turns_it_back_into_starving() -> None:
    clocks = stepped(below_at(0, 31, 121), 122, BELOW, timeouts(enabled=False))

    assert (status(clocks), clocks.since[0]) == (STARVING, 31)


def test_longer_timeouts_do_not_end_starvation() -> None:
    assert status(stepped(below_at(0, 31), 32, BELOW, timeouts(60))) is STARVING
    assert status(stepped(below_at(0, 31, 121), 122, BELOW, timeouts(600, 600))) is AGGRESSIVE


@pytest.mark.parametrize(
    ("moments", "expected"), [((0, 10), NON_STARVING), ((0, 11), STARVING), ((0, 11, 200), STARVING)]
)
def test_a_pool_below_its_guarantee_starves_strictly_after_a_timeout_of_its_own_and_never_aggressively(
    moments: tuple[int, ...], expected: StarvationStatus
) -> None:
    clocks = Clocks.none(["x"])
    for now in moments:
        clocks = stepped(clocks, now, NORMAL, timeouts(short=10), short=True)

    assert status(clocks) is expected
    assert reason(clocks) is (StarvationReason.NONE if expected is NON_STARVING else StarvationReason.MIN_SHARE)
    assert clocks.below_since[0] == NO_TIME


def test_starvation_for_a_guarantee_ends_when_the_pool_is_no_longer_short() -> None:
    limits = timeouts(short=10)
    clocks = stepped(stepped(Clocks.none(["x"]), 0, NORMAL, limits, short=True), 11, NORMAL, limits, short=True)

    assert status(stepped(clocks, 12, NORMAL, limits)) is NON_STARVING
    longer = stepped(clocks, 12, NORMAL, timeouts(short=100), short=True)
    assert status(longer) is STARVING


def test_a_pool_that_is_short_of_both_says_its_guarantee_and_starves_since_the_first() -> None:
    limits = timeouts(short=100)
    clocks = below_at(0, 31, limits=limits)
    for now in (40, 141):
        clocks = stepped(clocks, now, BELOW, limits, short=True)

    assert (status(clocks), reason(clocks), clocks.since[0]) == (AGGRESSIVE, StarvationReason.MIN_SHARE, 31)
    assert reason(stepped(clocks, 142, BELOW, limits)) is StarvationReason.FAIR_SHARE


def test_ages_survive_a_restart_whatever_the_clock_shows_then() -> None:
    saved = [Age("op", 39_000, STARVING, 8_500), Age("/pool", None, NON_STARVING, None, 38_000, 2_000)]

    restored = clocks_of(saved, 0)

    assert restored.below_since.tolist() == [-39_000, NO_TIME]
    assert restored.since.tolist() == [-8_500, -2_000]
    assert restored.ages(0) == saved
    assert restored.ages(500)[0] == Age("op", 39_500, STARVING, 9_000)


def test_ages_that_an_earlier_version_saved_are_read() -> None:
    ages = [["op", 39_000, "starving", 8_500], ["/pool", 38_000, "non_starving", None], ["new", 1, "non_starving"]]
    read = decode(msgspec.msgpack.encode({"ages": ages, "term": 7}), Ages)

    assert read.term == 7
    assert clocks_of(read.ages, 0).below_since.tolist() == [-39_000, -38_000, -1]


def test_clocks_follow_their_elements_to_other_places() -> None:
    before = clocks_of([Age("a", 1, NON_STARVING), Age("b", 2, STARVING, 1), Age("gone", 3, NON_STARVING)], 10)

    after = before.of(["new", "b", "a"], {"new": 0, "b": 1, "a": 2})

    assert after.below_since.tolist() == [NO_TIME, 8, 9]
    assert [STARVATION[code] for code in after.starvation] == [NON_STARVING, STARVING, NON_STARVING]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=30),
    st.floats(0, 200),
    st.floats(0, 200),
    st.floats(0, 200),
)
def test_never_starves_what_is_not_below_and_longer_timeouts_only_make_it_later(
    course: list[tuple[int, bool]], first: float, second: float, third: float
) -> None:
    """Three elements with the same course: shorter and longer timeouts, and a longer aggressive one."""
    quick, slow, slowest = sorted((first, second, third))
    starving, aggressive = np.array([quick, slow, quick]), np.array([slow, slowest, slowest])
    limits = Timeouts(starving, aggressive, np.array([True, True, True]), np.full(3, np.inf))
    clocks, now = Clocks.none(["x", "y", "z"]), 0
    for passed, below in course:
        now += passed
        clocks = step(clocks, now, np.array([below] * 3), np.zeros(3, np.bool_), limits)
        one, longer, longer_aggressive = clocks.starvation.tolist()
        assert below or one == longer == longer_aggressive == 0
        assert longer <= one
        assert longer_aggressive <= one


@given(
    st.floats(0, 60) | st.just(math.inf),
    st.floats(0, 60),
    st.booleans(),
    st.floats(0, 60) | st.just(math.inf),
    st.lists(st.integers(1, 25), max_size=4),
)
def test_the_moment_that_is_foretold_is_the_first_at_which_it_starves(
    starving: float, aggressive: float, enabled: bool, short: float, course: list[int]
) -> None:
    """Updates at each millisecond from the last one on, of an element that is short of both all the time."""
    limits = timeouts(starving, aggressive, enabled=enabled, short=short)
    clocks, now = stepped(Clocks.none(["x"]), 0, BELOW, limits, short=True), 0
    for passed in course:
        now += passed
        clocks = stepped(clocks, now, BELOW, limits, short=True)
    told = coming(clocks, limits)

    def first(holds: Callable[[Clocks], bool]) -> int:
        if holds(clocks):
            return NO_TIME
        later = range(now + 1, 200)
        return next((ms for ms in later if holds(stepped(clocks, ms, BELOW, limits, short=True))), NO_TIME)

    foretold = [int(each[0]) for each in (told.starving, told.aggressive, told.short)]
    # Of what is over already nothing but the next update is to come.
    assert [ms if ms == NO_TIME else max(ms, now + 1) for ms in foretold] == [
        first(lambda after: bool(after.starving[0] > 0)),
        first(lambda after: bool(after.starving[0] == STARVATION.index(AGGRESSIVE))),
        first(lambda after: bool(after.short_starving_since[0] != NO_TIME)),
    ]


def test_nothing_is_foretold_of_an_element_that_is_short_of_nothing() -> None:
    told = coming(Clocks.none(["x"]), timeouts(short=5))

    assert (told.starving[0], told.aggressive[0], told.short[0]) == (NO_TIME, NO_TIME, NO_TIME)


def at(ms: int, wall_ms: int | None = None) -> Moment:
    return Moment(ms * 1_000_000, 1_000_000 + (ms if wall_ms is None else wall_ms))


def test_the_first_update_of_a_life_has_seen_no_time_pass() -> None:
    clock = CountedTime()

    assert clock.on_update(at(5_000), usage_counts=True, complete=True) == 0
    assert clock.now_ms == 0
    assert clock.on_update(at(5_200), usage_counts=True, complete=True) == 200_000
    assert clock.now_ms == 200


def test_time_counts_only_between_two_updates_of_a_complete_picture() -> None:
    clock = CountedTime()
    passed = [
        clock.on_update(at(ms), usage_counts=complete, complete=complete)
        for ms, complete in ((0, True), (100, True), (200, False), (300, False), (400, True), (500, True))
    ]

    assert passed == [0, 100_000, 0, 0, 0, 100_000]
    assert clock.now_ms == 200


def test_moments_of_unix_time_stay_as_told_while_the_clock_runs_and_move_while_it_stands() -> None:
    clock = CountedTime()
    clock.on_update(at(0), usage_counts=True, complete=True)
    since = clock.now_ms
    clock.on_update(at(1_000, wall_ms=1_007), usage_counts=True, complete=True)
    told = since + clock.offset_ms
    clock.on_update(at(4_000), usage_counts=False, complete=True)

    assert told == 1_000_000
    assert since + clock.offset_ms == 1_003_000


def test_a_clock_that_jumps_back_counts_nothing() -> None:
    clock = CountedTime()
    clock.on_update(at(5_000), usage_counts=True, complete=True)

    assert clock.on_update(at(4_000), usage_counts=True, complete=True) == 0
