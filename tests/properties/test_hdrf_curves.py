"""What must hold of piecewise-linear functions, as an update keeps and makes them, and of the search over doubles."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_fair_share.hdrf.search import double_at, largest, place_of
from tests.support.curves import (
    Function,
    Point,
    compose,
    least_of,
    scaled,
    shifted,
    sum_of,
    transposed,
    without_repeats,
)

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

    line = Function([(start, y0), (end, y1)])
    values = [line.value(x) for x in places]

    assert (values[0], values[-1]) == (y0, y1)
    assert values == sorted(values, reverse=y0 > y1)


@pytest.mark.parametrize("part", BESIDE)
def test_the_diagonal_is_itself(part: float) -> None:
    assert Function([(0.0, 0.0), (1.0, 1.0)]).value(part) == part


@st.composite
def rising(draw: st.DrawFn) -> Function:
    """A function that never falls, with jumps and level stretches."""
    steps = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6))
    x, y = 0.0, draw(st.sampled_from([0.0, 0.25]))
    points = [(x, y)]
    for dx, dy in steps:
        x, y = x + dx / 8, y + dy / 7
        points.append((x, y))
    points.append((x + 0.125, y))
    return Function(merged(points))


def merged(points: list[Point]) -> list[Point]:
    """The points without those within a jump or within a level stretch."""
    kept: list[Point] = []
    for point in without_repeats(points):
        if len(kept) > 1 and any(kept[-2][axis] == kept[-1][axis] == point[axis] for axis in (0, 1)):
            kept.pop()
        kept.append(point)
    return kept


def middles(function: Function) -> list[float]:
    """Every x of a point, and places between."""
    xs = sorted({x for x, _ in function.points})
    return sorted({*xs, *((a + b) / 2 for a, b in pairwise(xs))})


def between_points(function: Function) -> list[float]:
    """Places away from all points, where rounding cannot decide on which side of a jump they are."""
    return [(a + b) / 2 for (a, _), (b, _) in pairwise(function.points) if b - a > 1e-9]


@given(rising())
def test_always_limits_of_a_rising_function_rise(function: Function) -> None:
    limits = [(function.value(x), function.right_limit(x)) for x in middles(function)]

    flat = [value for pair in limits for value in pair]
    assert flat == sorted(flat)


@given(rising(), rising())
def test_always_a_sum_is_the_sum_of_values(one: Function, other: Function) -> None:
    total = sum_of([one, other])

    assert (total.start, total.end) == (max(one.start, other.start), min(one.end, other.end))
    for x in middles(total)[:-1]:
        assert total.value(x) == pytest.approx(one.value(x) + other.value(x), abs=1e-12)
        assert total.right_limit(x) == pytest.approx(one.right_limit(x) + other.right_limit(x), abs=1e-12)


@given(rising(), rising())
def test_always_the_lower_one_is_below_both(one: Function, other: Function) -> None:
    lower = least_of([one, other])

    for x in between_points(lower):
        assert lower.value(x) == pytest.approx(min(one.value(x), other.value(x)), abs=1e-9)


@given(rising())
def test_always_turned_over_twice_is_as_before(function: Function) -> None:
    again = transposed(transposed(function))

    assert (again.start, again.end) == pytest.approx((function.start, function.end))
    for x in between_points(function):
        assert again.value(x) == pytest.approx(function.value(x), abs=1e-9)


@given(rising(), st.floats(0.25, 4.0))
def test_always_scaled_and_moved_functions_have_the_same_values(function: Function, factor: float) -> None:
    slower, moved = scaled(function, factor), shifted(function, 1.0, 2.0)

    assert [y for _, y in slower.points] == [y for _, y in function.points]
    assert [x * factor for x, _ in slower.points] == pytest.approx([x for x, _ in function.points])
    assert (moved.start, moved.end) == (function.start + 1.0, function.end + 1.0)
    for x in middles(function):
        assert moved.value(x + 1.0) - 2.0 == pytest.approx(function.value(x), abs=1e-12)
        assert moved.right_limit(x + 1.0) - 2.0 == pytest.approx(function.right_limit(x), abs=1e-12)


@given(rising(), rising())
def test_always_a_composition_has_the_values_of_both_in_turn(outer: Function, inner: Function) -> None:
    reach = inner.points[-1][1]
    wide = Function([*outer.points, (max(outer.end, reach) + 1.0, outer.points[-1][1])])

    composed = compose(wide, inner)

    assert (composed.start, composed.end) == (inner.start, inner.end)
    for x in middles(composed)[1:-1]:
        near = [wide.start, inner.value(max(x - 1e-9, inner.start)), inner.right_limit(min(x + 1e-9, inner.end))]
        low, high = wide.value(max(near[1] - 1e-9, near[0])), wide.right_limit(near[2] + 1e-9)
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
