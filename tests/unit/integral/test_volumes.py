"""Spending and refilling, with figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.resources import ZERO, Resources
from headrace.wire.integral import Volume
from headrace_integral.volumes import Refill, Refilled, keeps_bounds, ratio_volumes, refilled, rounded
from tests.unit.integral.columns import columns, volumes_of

DAY_S = 86_400.0
#: 100 cores and 1000 bytes.
TOTAL = Resources(cpu=10_000, memory=1_000)
EMPTY = Volume()


def passed(
    old: Volume,
    seconds: float,
    *,
    flow: float = 0.1,
    grant: float = 0.0,
    accepts: bool = True,
    total: Resources = TOTAL,
    saturation_s: float = DAY_S,
) -> Refilled:
    """One pool after a time."""
    refill = Refill(total, seconds, saturation_s, np.array([flow]), np.array([grant]), np.array([accepts]))
    return refilled(columns(old), refill)


def volume(*arguments: object, **options: object) -> Volume:
    (after,) = volumes_of(passed(*arguments, **options).volume)  # type: ignore[arg-type]
    return after


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, 1),
        (-0.5, -1),
        (1.5, 2),
        (2.5, 3),
        (0.49999999999999994, 0),
        (-2.4, -2),
        (4503599627370497.5, 4503599627370498),
    ],
)
def test_halves_are_rounded_away_from_zero(value: float, expected: int) -> None:
    assert rounded(np.array([value])).tolist() == [expected]


def test_the_flow_comes_in() -> None:
    assert volume(EMPTY, 60.0) == Volume(cpu=60 * 1_000, memory=6_000.0)


def test_what_was_granted_is_charged_for_the_whole_time() -> None:
    rich = Volume(cpu=500_000, memory=50_000.0)

    assert volume(rich, 10.0, flow=0.0, grant=0.1) == Volume(cpu=490_000, memory=49_000.0)


def test_nothing_is_owed_below_zero() -> None:
    assert volume(Volume(cpu=10), 10.0, flow=0.0, grant=1.0) == EMPTY


def test_savings_stop_at_what_flows_in_during_the_saturation_period() -> None:
    full = passed(EMPTY, 100.0, saturation_s=60.0)

    assert volumes_of(full.volume) == [Volume(cpu=60_000, memory=6_000.0)]
    assert volumes_of(full.overflow) == [Volume(cpu=40_000, memory=4_000.0)]
    assert volumes_of(full.acceptable) == [EMPTY]


def test_savings_above_a_lowered_capacity_are_kept_but_do_not_grow() -> None:
    rich = Volume(cpu=70_000, memory=7_000.0)

    assert volume(rich, 10.0, saturation_s=60.0) == rich


def test_what_could_still_be_taken_is_told_unless_the_pool_takes_none() -> None:
    room = Volume(cpu=40_000, memory=4_000.0)

    assert volumes_of(passed(EMPTY, 20.0, saturation_s=60.0).acceptable) == [room]
    assert volumes_of(passed(EMPTY, 20.0, saturation_s=60.0, accepts=False).acceptable) == [EMPTY]


def test_a_thousandth_of_a_second_of_a_hundredth_of_a_hundred_cores_rounds_to_nothing() -> None:
    tiny = Resources(cpu=100, memory=1_000)

    assert volume(EMPTY, 0.001, flow=0.01, total=tiny) == Volume(cpu=0, memory=0.01)


def test_the_ratio_is_that_of_the_resource_with_least() -> None:
    assert ratio_volumes(columns(Volume(cpu=20_000, memory=3_000.0)), TOTAL).tolist() == [2.0]
    assert ratio_volumes(columns(Volume(cpu=20_000)), ZERO).tolist() == [0.0]


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (Volume(cpu=10), Volume(cpu=60_000), True),
        (Volume(cpu=10), Volume(cpu=60_001), False),
        (Volume(cpu=70_000), Volume(cpu=70_000), True),
        (Volume(cpu=70_000), Volume(cpu=70_001), False),
        (Volume(cpu=10), Volume(memory=-1.0), False),
        # Filling a gap may round up by the last bit.
        (EMPTY, Volume(memory=6_000.000000000001), True),
    ],
)
def test_bounds_are_zero_and_the_capacity_or_what_was_there(before: Volume, after: Volume, kept: bool) -> None:
    capacity = columns(Volume(cpu=60_000, memory=6_000.0))

    assert keeps_bounds(columns(before), columns(after), capacity).tolist() == [kept]


volumes = st.builds(
    Volume,
    user_slots=st.floats(0, 1e15),
    cpu=st.integers(0, 10**15),
    gpu=st.floats(0, 1e15),
    memory=st.floats(0, 1e20),
    network=st.floats(0, 1e15),
)
totals = st.builds(Resources, user_slots=st.integers(0, 10**6), cpu=st.integers(0, 10**9), memory=st.integers(0, 2**53))


@given(volumes, totals, st.floats(0, 2), st.floats(0, 2), st.integers(0, 10**12), st.floats(1, 1e6))
def test_never_negative_and_never_above_capacity_unless_it_was_and_did_not_grow(
    old: Volume, total: Resources, flow: float, grant: float, dt_us: int, saturation_s: float
) -> None:
    result = passed(old, dt_us / 1e6, flow=flow, grant=grant, total=total, saturation_s=saturation_s)

    assert (result.volume >= 0.0).all()
    assert (result.volume <= np.maximum(columns(old), result.capacity)).all()
    assert volumes_of(result.volume)


@given(volumes, totals, st.floats(0, 2), st.floats(1, 1e6))
def test_always_no_time_changes_nothing(old: Volume, total: Resources, flow: float, saturation_s: float) -> None:
    assert volume(old, 0.0, flow=flow, total=total, saturation_s=saturation_s) == old
