"""Sums of many curves at once, and their functions by suggestion, against the definitions, one curve at a time."""

import random
from collections.abc import Iterable
from functools import reduce

import numpy as np
import pytest

from headrace_fair_share.hdrf.arrays import RESOURCES, starts_of
from headrace_fair_share.hdrf.functions.by_fit_factor import cut_at_one, sum_of_children, sum_one_move_at_a_time
from headrace_fair_share.hdrf.functions.by_suggestion import functions_by_suggestion
from headrace_fair_share.hdrf.functions.curves import Curves, FunctionStore
from tests.reference import plots
from tests.reference.plots import Plot

Point = tuple[float, float]


def a_rising_plot(draw: random.Random, end: float = 1.0) -> list[Point]:
    """Points from (0, 0) to `end`, with level stretches and jumps."""
    x, y, points = 0.0, 0.0, [(0.0, 0.0)]
    for _ in range(draw.randint(1, 6)):
        kind = draw.choice(("tilt", "level", "jump"))
        x += 0.0 if kind == "jump" else draw.choice((0.125, draw.random()))
        y += 0.0 if kind == "level" else draw.choice((0.25, draw.random()))
        points.append((x, y))
    scale = end / x if x else 1.0
    points = [(at * scale, value) for at, value in points] if x else [*points, (end, y)]
    points = [*points, (end, y)] if points[-1][0] < end else [*points[:-1], (end, points[-1][1])]
    return points_in(a_plot(points))


def a_plot(points: Iterable[Point]) -> Plot:
    """The definition's function through the points."""
    return plots.built((x, (y,)) for x, y in points)


def points_in(plot: Plot) -> list[Point]:
    return [(x, y) for x, (y,) in plot.points()]


def as_curves(drawn: list[list[Point]]) -> Curves:
    """One curve for each list of points; every resource gets the value by its place."""
    x = np.array([x for points in drawn for x, _ in points])
    y = np.array([[value * (1 + r) for points in drawn for _, value in points] for r in range(RESOURCES)])
    return Curves(x, y, starts_of(np.array([len(points) for points in drawn])))


def as_plot(curves: Curves, which: int, r: int = 0) -> Plot:
    of = slice(curves.start[which], curves.start[which + 1])
    return a_plot(zip(curves.x[of].tolist(), curves.y[r, of].tolist(), strict=True))


def test_always_the_sum_is_that_of_single_plots() -> None:
    draw = random.Random(3)
    for _ in range(200):
        families = [[a_rising_plot(draw) for _ in range(draw.randint(1, 5))] for _ in range(draw.randint(1, 4))]
        flat = [points for family in families for points in family]
        owner = np.repeat(np.arange(len(families)), [len(family) for family in families])

        sums = sum_of_children(as_curves(flat), np.ones(len(flat)), owner, len(families))

        for which, family in enumerate(families):
            expected = plots.sum_of([a_plot(points) for points in family])
            got = as_plot(sums, which, 2)
            for x in {*expected.xs, *(draw.random() for _ in range(5))}:
                assert 3 * expected.value(x)[0] == pytest.approx(got.value(x)[0], abs=1e-9)
                assert 3 * expected.right_limit(x)[0] == pytest.approx(got.right_limit(x)[0], abs=1e-9)


def test_a_child_of_any_weight_leaves_the_others_as_they_are() -> None:
    """One child has had all that it wants after a stretch so narrow that a slope over it would spoil a plain running sum."""
    ratio = np.array([1.0, 2.0**52, 1.0])
    plain = [(0.0, 0.0), (0.3, 0.1), (1.0, 1.0)]
    curves = as_curves([plain, [(0.0, 0.0), (1.0, 1.0)], plain])
    curves.x /= np.repeat(ratio, [3, 2, 3])

    sums = as_plot(sum_of_children(curves, ratio, np.zeros(3, np.int64), 1), 0)

    assert pytest.approx([0.0, 0.5, 1.0, 1.2, 3.0], abs=1e-14) == [
        sums.value(x)[0] for x in (0.0, 0.5**53, 0.5**52, 0.3, 1.0)
    ]


def test_children_that_jump_at_one_place_jump_one_after_another_when_paired() -> None:
    gang = [(0.0, 0.0), (0.6, 0.0), (0.6, 0.6), (1.0, 0.6)]

    sums, pairs = sum_one_move_at_a_time(as_curves([gang, gang]), np.ones(2), np.array([0, 0]), 1)

    assert pairs.child.tolist() == [0, 1, 0, 1, 0, 1]
    assert points_in(as_plot(sums, 0)) == [(0.0, 0.0), (2.0, 0.0), (2.0, 0.6), (3.0, 0.6), (3.0, 1.2), (5.0, 1.2)]
    assert pairs.left[0].tolist() == [0.0, 0.0, 0.0, 0.6, 1.2, 1.2]
    assert pairs.right[0].tolist() == [0.0, 0.0, 0.6, 1.2, 1.2, 1.2]


def test_a_pool_has_no_trace_of_a_resource_that_only_the_pools_before_take() -> None:
    """A resource of which a pool is guaranteed nothing must not keep it from what it is guaranteed of others."""
    draw = random.Random(5)
    for _ in range(100):
        families = [[a_rising_plot(draw) for _ in range(draw.randint(1, 5))] for _ in range(4)]
        counts = [len(family) for family in families]
        children = as_curves([points for family in families for points in family])
        # Demands lie far apart, and so do slopes.
        children.y *= np.repeat([10 ** draw.uniform(-12, 0) for _ in range(len(children))], np.diff(children.start))
        children.y[2, children.start[sum(counts[:3])] :] = 0.0

        sums, _ = sum_one_move_at_a_time(children, np.ones(sum(counts)), np.repeat(np.arange(4), counts), 4)

        assert not sums.y[2, sums.start[3] :].any()


def test_nothing_stays_beyond_one() -> None:
    cut = cut_at_one(as_curves([[(0.0, 0.0), (4.0, 1.0)], [(0.0, 0.0), (0.5, 0.5), (1.0, 0.5)]]))

    assert points_in(as_plot(cut, 0)) == [(0.0, 0.0), (1.0, 0.25)]
    assert points_in(as_plot(cut, 1)) == [(0.0, 0.0), (0.5, 0.5), (1.0, 0.5)]


def by_definition(component: Plot, guarantee: float, limit: float) -> Plot:
    """The largest fit factor that a suggestion allows, turned round and cut step by step."""
    low, high = component.ys[0][0], component.ys[-1][0]
    ceiling = min(max(limit, low), high)
    floor = min(max(guarantee, low), ceiling)
    narrowed = plots.narrow(plots.transpose(component), floor, ceiling)
    return plots.trim(plots.extend_right(plots.shift(plots.trim_left(narrowed), -floor), 1.0))


def test_always_the_walk_gives_what_the_definition_gives() -> None:
    draw = random.Random(4)
    for _ in range(300):
        drawn = [a_rising_plot(draw, 2.0)]
        curves = as_curves(drawn)
        curves.y /= 4 * curves.y.max(axis=1, keepdims=True) + 1e-3
        curves.y *= np.array([draw.choice((0.0, 1.0, 2.5)) for _ in range(RESOURCES)])[:, np.newaxis]
        if (curves.x[-2:] == curves.x[-1]).all() or (curves.x[:2] == 0.0).all():
            continue  # no function that is walked along begins or ends with a jump
        guarantees = np.array([[draw.choice((0.0, 0.1))] for _ in range(RESOURCES)])
        limits = np.array([[draw.choice((1.0, 0.3))] for _ in range(RESOURCES)])
        components = [as_plot(curves, 0, r) for r in range(RESOURCES)]
        inverses = [
            by_definition(component, float(guarantees[r, 0]), float(limits[r, 0]))
            for r, component in enumerate(components)
            if component.ys[-1][0] > 0.0
        ]
        expected = reduce(plots.lower_of, [a_plot([(0.0, 2.0), (1.0, 2.0)]), *inverses])
        store = FunctionStore(1)
        store.put(np.zeros(1, np.int64), functions_by_suggestion(curves, guarantees, limits))
        for s in [0.0, 1.0, *(draw.random() / 2 for _ in range(20))]:
            fit, shares = store.fit_at(np.zeros(1, np.int64), np.array([s]))
            assert expected.value(s)[0] == pytest.approx(fit[0], abs=1e-7)
            for r, component in enumerate(components):
                assert component.value(expected.value(s)[0])[0] == pytest.approx(shares[r, 0], abs=1e-6)


def test_a_resource_that_hardly_rises_is_not_divided_by_its_rise() -> None:
    """Its meeting with the resource above it lies further away than a float can say."""
    rises = [(0.0, 0.5, 1.0), (0.0, 1e-310, 1.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)]
    curves = Curves(np.array([0.0, 0.5, 1.0]), np.array(rises), np.array([0, 3]))
    guarantees = np.array([[0.25], [0.5], [0.0], [0.0], [0.0]])
    store = FunctionStore(1)
    store.put(np.zeros(1, np.int64), functions_by_suggestion(curves, guarantees, np.ones((RESOURCES, 1))))

    assert store.fit_at(np.zeros(1, np.int64), np.array([0.0]))[0].tolist() == [0.25]
    assert store.fit_at(np.zeros(1, np.int64), np.array([0.25]))[0].tolist() == [0.5]
