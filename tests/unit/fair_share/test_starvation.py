"""The clocks of starvation and of counted time."""

from __future__ import annotations

from headrace.runtime.engine import Moment
from headrace.wire.snapshots import StarvationStatus
from headrace_fair_share.starvation.clocks import Clock, Timeouts, ages_of, clocks_of, step
from headrace_fair_share.starvation.time_that_counts import TimeThatCounts

TIMEOUTS = Timeouts(starving_ms=30_000, aggressive_ms=120_000, aggressive_enabled=True)


def after(*moments_ms: int, timeouts: Timeouts = TIMEOUTS) -> Clock | None:
    """The clock of an element that was below at each of these moments."""
    clock: Clock | None = None
    for now in moments_ms:
        clock = step(clock, now, timeouts)
    return clock


def test_the_first_time_below_starts_the_clock_and_nothing_else() -> None:
    assert after(5_000) == Clock(below_since=5_000)


def test_starvation_begins_strictly_after_the_timeout() -> None:
    assert after(0, 30_000) == Clock(below_since=0)
    assert after(0, 30_001) == Clock(0, StarvationStatus.STARVING, starving_since=30_001)


def test_it_gets_aggressive_strictly_after_the_longer_timeout_and_only_if_that_is_enabled() -> None:
    starving = after(0, 30_001, 120_000)
    aggressive = after(0, 30_001, 120_001)

    assert starving is not None
    assert starving.starvation is StarvationStatus.STARVING
    assert aggressive == Clock(0, StarvationStatus.AGGRESSIVELY_STARVING, starving_since=30_001)
    patient = after(0, 30_001, 120_001, timeouts=Timeouts())
    assert patient is not None
    assert patient.starvation is StarvationStatus.STARVING


def test_switching_aggression_off_turns_it_back_into_starving() -> None:
    clock = step(after(0, 30_001, 120_001), 120_002, Timeouts())

    assert clock == Clock(0, StarvationStatus.STARVING, starving_since=30_001)


def test_a_longer_timeout_does_not_end_starvation() -> None:
    clock = step(after(0, 30_001), 30_002, Timeouts(starving_ms=60_000))

    assert clock is not None
    assert clock.starvation is StarvationStatus.STARVING


def test_ages_survive_a_restart_whatever_the_clock_shows_then() -> None:
    clocks = {"op": Clock(1_000, StarvationStatus.STARVING, 31_500), "/pool": Clock(2_000)}

    restored = clocks_of(ages_of(clocks, 40_000), 0)

    assert restored["op"] == Clock(-39_000, StarvationStatus.STARVING, -8_500)
    assert ages_of(restored, 0) == ages_of(clocks, 40_000)


def at(ms: int, wall_ms: int | None = None) -> Moment:
    return Moment(ms * 1_000_000, 1_000_000 + (ms if wall_ms is None else wall_ms))


def test_the_first_update_of_a_life_has_seen_no_time_pass() -> None:
    clock = TimeThatCounts()

    assert clock.on_update(at(5_000), usage_counts=True, complete=True) == 0
    assert clock.now_ms == 0
    assert clock.on_update(at(5_200), usage_counts=True, complete=True) == 200_000
    assert clock.now_ms == 200


def test_time_counts_only_between_two_updates_of_a_complete_picture() -> None:
    clock = TimeThatCounts()
    passed = [
        clock.on_update(at(ms), usage_counts=complete, complete=complete)
        for ms, complete in ((0, True), (100, True), (200, False), (300, False), (400, True), (500, True))
    ]

    assert passed == [0, 100_000, 0, 0, 0, 100_000]
    assert clock.now_ms == 200


def test_moments_of_unix_time_stay_as_told_while_the_clock_runs_and_move_while_it_stands() -> None:
    clock = TimeThatCounts()
    clock.on_update(at(0), usage_counts=True, complete=True)
    since = clock.now_ms
    clock.on_update(at(1_000, wall_ms=1_007), usage_counts=True, complete=True)
    told = since + clock.offset_ms
    clock.on_update(at(4_000), usage_counts=False, complete=True)

    assert told == 1_000_000
    assert since + clock.offset_ms == 1_003_000


def test_a_clock_that_jumps_back_counts_nothing() -> None:
    clock = TimeThatCounts()
    clock.on_update(at(5_000), usage_counts=True, complete=True)

    assert clock.on_update(at(4_000), usage_counts=True, complete=True) == 0
