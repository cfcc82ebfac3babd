"""The largest double with something."""

import math
import random

import numpy as np
import pytest

from headrace_fair_share.hdrf.arrays import BrokenInvariant, Floats
from headrace_fair_share.hdrf.search import double_at, largest, largest_each, largest_of_many, place_of


def test_places_order_doubles_as_their_values_do() -> None:
    doubles = [-math.inf, -1e300, -1.0, -5e-324, 0.0, 5e-324, 1e-9, 1.0, math.nextafter(1.0, 2.0), 1e300, math.inf]
    places = [place_of(number) for number in doubles]

    assert sorted(places) == places
    assert doubles == [double_at(place) for place in places]
    assert place_of(-0.0) == 0


def test_the_answer_is_the_last_double_that_holds() -> None:
    draw = random.Random(1)
    for _ in range(300):
        threshold = draw.choice((draw.uniform(-2, 2), draw.random() * 10.0 ** draw.randint(-300, 0)))
        assert threshold == largest(-3.0, 3.0, threshold.__ge__)


def test_bounds_are_answers_too() -> None:
    assert largest(1.0, 1.0, lambda _: False) == 1.0
    assert largest(0.0, 1.0, lambda _: True) == 1.0


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (math.nan, 1.0), (0.0, 1.0)])
def test_a_search_that_cannot_begin_is_refused(low: float, high: float) -> None:
    with pytest.raises(BrokenInvariant):
        largest(low, high, lambda x: x > 0.5)


def test_many_searches_at_once_find_what_single_ones_find() -> None:
    draw = random.Random(2)
    most = np.array([draw.random() * 10.0 ** draw.randint(-30, 1) for _ in range(50)])
    high = np.array([draw.choice((1.0, 7.0, 0.0)) for _ in most])

    found = largest_each(high, lambda x: np.asarray(x <= most))

    assert np.minimum(most, high).tolist() == found.tolist()


def test_what_never_holds_gives_zero() -> None:
    assert largest_each(np.ones(1), lambda x: np.asarray(x < 0.0)).tolist() == [0.0]


@pytest.mark.parametrize("tries", [1, 2, 3, 15, 100])
def test_tries_of_many_at_a_time_find_what_single_ones_find(tries: int) -> None:
    draw = random.Random(tries)
    for _ in range(50):
        bound, slope = draw.choice((0.0, draw.uniform(0.0, 2.0), draw.uniform(0.0, 1e-300))), draw.uniform(0.1, 9.0)

        def room(each: Floats, bound: float = bound, slope: float = slope) -> Floats:
            return bound - slope * each

        found = largest_of_many(1.0, (bound, bound - slope), room, tries)

        assert found == largest(0.0, 1.0, lambda each, bound=bound, slope=slope: slope * each <= bound)  # type: ignore[misc]


def test_what_never_holds_gives_zero_of_many_too() -> None:
    assert largest_of_many(1.0, (-1.0, -2.0), lambda each: -1.0 - each, 15) == 0.0


@pytest.mark.parametrize("tries", [3, 15])
def test_where_room_falls_in_lines_and_jumps_a_few_times_are_enough(tries: int) -> None:
    draw = random.Random(tries)
    asked = []
    for _ in range(50):
        bends = np.sort([0.0, *(draw.random() for _ in range(6)), 1.0])
        values = np.cumsum([0.0, *(draw.choice((0.0, draw.random())) for _ in range(7))])
        most, jump, height = draw.uniform(0.1, values[-1] + 0.1), draw.random(), draw.choice((0.0, 0.3))

        def room(
            each: Floats,
            bends: Floats = bends,
            values: Floats = values,
            m: float = most,
            j: float = jump,
            h: float = height,
        ) -> Floats:
            asked.append(len(each))
            return m - (np.interp(each, bends, values) + h * (each > j))

        found = largest_of_many(1.0, room(np.array([0.0, 1.0])).tolist(), room, tries)

        assert found == largest(0.0, 1.0, lambda each: bool(room(np.array([each]))[0] >= 0.0))
    calls = sum(1 for many in asked if many == tries)
    assert calls < 50 * (64 // tries.bit_length())
