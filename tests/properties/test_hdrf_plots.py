"""What must hold of piecewise-linear functions and of the search over doubles."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_fair_share.hdrf.plots import (
    Plot,
    compose,
    interpolate,
    lower_of,
    plot_of,
    scale_argument,
    shift,
    sum_of,
    transpose,
)
from headrace_fair_share.hdrf.search import double_at, largest, place_of

#: Parts of the way along a stretch, looked at together with their neighbours among the doubles.
PARTS: Final = (
    *(0.0, 5e-324, 1e-9, 0.1, 0.3, math.pi / 10, 0.4, 0.455555555, 0.49999999999, 0.5),
    *(0.5172, 0.6, 0.7123, 0.8, 0.9, 0.999999999999, 1.0),
)
BESIDE: Final = sorted(
    {
        min(max(each, 0.0), 1.0)
        for part in PARTS
        for each in (part, math.nextafter(part, -1.0), math.nextafter(part, 2.0))
    }
)

numbers = st.floats(-1e10, 1e10)
widths = st.one_of(st.sampled_from([1e-16, 1e-9, 0.1, 1.0, 1e10]), st.floats(1e-16, 1e10))


@given(start=st.floats(-1e3, 1e3), width=widths, y0=numbers, y1=numbers)
def test_always_a_line_is_exact_at_both_ends_and_never_turns_back(
    start: float, width: float, y0: float, y1: float
) -> None:
    end = start + width
    if end == start:
        end = math.nextafter(start, math.inf)
    places = sorted({min(max(start + (end - start) * part, start), end) for part in BESIDE})

    values = [interpolate((start, y0), (end, y1), x) for x in places]

    assert (values[0], values[-1]) == (y0, y1)
    assert values == sorted(values, reverse=y0 > y1)


@pytest.mark.parametrize("part", BESIDE)
def test_the_diagonal_is_itself(part: float) -> None:
    assert interpolate((0.0, 0.0), (1.0, 1.0), part) == part


@st.composite
def rising(draw: st.DrawFn, start: float = 0.0, end: float | None = None) -> Plot:
    """A function that never falls, with jumps and levels, on [0, 1], or on any other domain."""
    steps = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6))
    x, y = start, draw(st.sampled_from([0.0, 0.25]))
    points = [(x, y)]
    for dx, dy in steps:
        x, y = x + dx / 8, y + dy / 7
        points.append((x, y))
    points.append((max(x + 0.125, end if end is not None else 0.0), y))
    return plot_of(points)


def middles(plot: Plot) -> list[float]:
    """Every x of the plot and places between."""
    xs = sorted(set(plot.xs))
    return sorted({*xs, *((a + b) / 2 for a, b in pairwise(xs))})


@given(rising())
def test_always_limits_of_a_rising_function_rise(plot: Plot) -> None:
    limits = [(plot.value(x), plot.right_limit(x)) for x in middles(plot)]

    flat = [value for pair in limits for value in pair]
    assert flat == sorted(flat)


@given(rising(), rising())
def test_always_a_sum_is_the_sum_of_values(one: Plot, other: Plot) -> None:
    total = sum_of([one, other])

    assert (total.left, total.right) == (max(one.left, other.left), min(one.right, other.right))
    for x in middles(total):
        assert total.value(x) == pytest.approx(one.value(x) + other.value(x), abs=1e-12)
        assert total.right_limit(x) == pytest.approx(one.right_limit(x) + other.right_limit(x), abs=1e-12)


@given(rising(), rising())
def test_always_the_lower_one_is_below_both(one: Plot, other: Plot) -> None:
    lower = lower_of(one, other)

    for x in middles(lower):
        assert lower.value(x) == pytest.approx(min(one.value(x), other.value(x)), abs=1e-12)
        assert lower.value(x) <= min(one.value(x), other.value(x)) + 1e-12


@given(rising())
def test_always_turned_over_twice_is_as_before(plot: Plot) -> None:
    assert transpose(transpose(plot)) == plot


@given(rising(), st.floats(0.25, 4.0))
def test_always_scaled_and_moved_functions_have_the_same_values(plot: Plot, factor: float) -> None:
    scaled, moved = scale_argument(plot, factor), shift(plot, 1.0, 2.0)

    assert scaled.ys == plot.ys
    assert [x * factor for x in scaled.xs] == pytest.approx(list(plot.xs))
    assert [x - 1.0 for x in moved.xs] == pytest.approx(list(plot.xs))
    assert [y - 2.0 for y in moved.ys] == pytest.approx(list(plot.ys))


@given(rising(), rising())
def test_always_a_composition_has_the_values_of_both_in_turn(outer: Plot, inner: Plot) -> None:
    reach = inner.ys[-1]
    wide = plot_of([*outer.points, (max(outer.right, reach) + 1.0, outer.ys[-1])])

    composed = compose(wide, inner)

    assert (composed.left, composed.right) == (inner.left, inner.right)
    for x in middles(composed)[1:-1]:
        low, high = wide.value(max(inner.value(x) - 1e-9, 0.0)), wide.right_limit(inner.value(x) + 1e-9)
        assert low - 1e-6 <= composed.value(x) <= high + 1e-6


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_always_places_order_doubles_as_their_values_do(one: float, other: float) -> None:
    assert double_at(place_of(one)) == one
    assert (place_of(one) < place_of(other)) == (one < other)
    assert double_at(place_of(one) + 1) == math.nextafter(one, math.inf) or math.isinf(one)


@given(st.data())
def test_always_a_search_finds_the_last_double(data: st.DataObject) -> None:
    low = data.draw(st.floats(-1e300, 1e300))
    high = data.draw(st.floats(low, 1e300))
    threshold = data.draw(st.floats(low, high))

    assert largest(low, high, lambda x: x <= threshold) == threshold
