"""Spending and refilling, with figures worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import PoolName
from headrace.resources import ZERO, Resources
from headrace.wire.integral import PoolFlow, Volume
from headrace_integral.volumes import EMPTY, advance, capacity_of, ratio_volume, round_half_away

SECOND = 1_000_000
DAY_S = 86_400.0
#: 100 cores and 1000 bytes.
TOTAL = Resources(cpu=10_000, memory=1_000)


def a_flow(flow: float = 0.1, grant: float = 0.0, *, accepts: bool = True) -> PoolFlow:
    return PoolFlow(PoolName("a"), flow, 0.5, grant, "burst", accepts)


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
    assert round_half_away(value) == expected


def test_the_flow_comes_in() -> None:
    after = advance(EMPTY, a_flow(), TOTAL, 60 * SECOND, DAY_S).volume

    assert after == Volume(cpu=60 * 1_000, memory=6_000.0)


def test_what_was_granted_is_charged_for_the_whole_time() -> None:
    after = advance(Volume(cpu=500_000, memory=50_000.0), a_flow(0.0, 0.1), TOTAL, 10 * SECOND, DAY_S).volume

    assert after == Volume(cpu=490_000, memory=49_000.0)


def test_nothing_is_owed_below_zero() -> None:
    after = advance(Volume(cpu=10), a_flow(0.0, 1.0), TOTAL, 10 * SECOND, DAY_S).volume

    assert after == EMPTY


def test_savings_stop_at_what_flows_in_during_the_saturation_period() -> None:
    full = advance(EMPTY, a_flow(), TOTAL, 100 * SECOND, 60.0)

    assert full.volume == Volume(cpu=60_000, memory=6_000.0)
    assert full.overflow == Volume(cpu=40_000, memory=4_000.0)
    assert full.acceptable == EMPTY


def test_savings_above_a_lowered_capacity_are_kept_but_do_not_grow() -> None:
    rich = Volume(cpu=70_000, memory=7_000.0)

    assert advance(rich, a_flow(), TOTAL, 10 * SECOND, 60.0).volume == rich


def test_what_could_still_be_taken_is_told_unless_the_pool_takes_none() -> None:
    assert advance(EMPTY, a_flow(), TOTAL, 20 * SECOND, 60.0).acceptable == Volume(cpu=40_000, memory=4_000.0)
    assert advance(EMPTY, a_flow(accepts=False), TOTAL, 20 * SECOND, 60.0).acceptable == EMPTY


def test_a_thousandth_of_a_second_of_a_hundredth_of_a_hundred_cores_rounds_to_nothing() -> None:
    tiny = Resources(cpu=100, memory=1_000)

    after = advance(EMPTY, a_flow(0.01), tiny, 1_000, DAY_S).volume

    assert after == Volume(cpu=0, memory=0.01)


def test_the_ratio_is_that_of_the_resource_with_least() -> None:
    assert ratio_volume(Volume(cpu=20_000, memory=3_000.0), TOTAL) == 2.0
    assert ratio_volume(Volume(cpu=20_000), ZERO) == 0.0


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
    settings = a_flow(flow, grant)
    capacity = capacity_of(settings, total, saturation_s)

    after = advance(old, settings, total, dt_us, saturation_s).volume

    for name in ("user_slots", "cpu", "gpu", "memory", "network"):
        assert 0 <= getattr(after, name) <= max(getattr(old, name), getattr(capacity, name))
    assert isinstance(after.cpu, int)


@given(volumes, totals, st.floats(0, 2), st.floats(1, 1e6))
def test_always_no_time_changes_nothing(old: Volume, total: Resources, flow: float, saturation_s: float) -> None:
    assert advance(old, a_flow(flow), total, 0, saturation_s).volume == old
