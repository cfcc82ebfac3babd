"""Piecewise-linear functions of one variable: the notions that fair share is defined with.

A plot is a list of points, left to right; two points with one x are a jump, and the value there is the limit from the left.
Updates of whole trees work on thousands of curves at once (`curves`, `summing`, `walk`); this is the same notion for one curve at a
time, in the words of the definition. It is what pictures and explanations are drawn from.

Invariants: x never falls from point to point, no x has more than two points, no value stands at more than two points in a row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby, pairwise
from operator import itemgetter

from headrace_fair_share.hdrf.arrays import BrokenInvariant
from headrace_fair_share.hdrf.search import largest

__all__ = [
    "Plot",
    "compose",
    "extend_right",
    "interpolate",
    "lower_of",
    "lowest_of",
    "narrow",
    "plot_of",
    "scale_argument",
    "shift",
    "sum_of",
    "transpose",
    "trim",
    "trim_left",
]

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Plot:
    """A function by its points."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]

    @property
    def left(self) -> float:
        return self.xs[0]

    @property
    def right(self) -> float:
        return self.xs[-1]

    @property
    def points(self) -> list[Point]:
        return list(zip(self.xs, self.ys, strict=True))

    def value(self, x: float) -> float:
        """The function at x: its limit from the left."""
        return self._limit(x, bisect_left(self.xs, x))

    def right_limit(self, x: float) -> float:
        """The limit at x from the right; at the right end the upper end of a jump there."""
        after = bisect_right(self.xs, x)
        return self._limit(x, after - 1 if self.xs[after - 1] == x else after)

    def _limit(self, x: float, at: int) -> float:
        if not self.left <= x <= self.right:
            raise BrokenInvariant(f"{x} lies outside of {self.left} to {self.right}")
        if self.xs[at] == x:
            return self.ys[at]
        return interpolate((self.xs[at - 1], self.ys[at - 1]), (self.xs[at], self.ys[at]), x)


def interpolate(start: Point, end: Point, x: float) -> float:
    """The value at x on the line between two points; exact at both, never turning back between them."""
    (x0, y0), (x1, y1) = start, end
    t = (x - x0) / (x1 - x0)
    return y0 + (y1 - y0) * t if t < 0.5 else y1 - (y1 - y0) * (1.0 - t)


def plot_of(points: Iterable[Point]) -> Plot:
    """The plot through the points. Those within a jump, or within a level stretch, are left out."""
    kept: list[Point] = []
    for point in points:
        if kept and point[0] < kept[-1][0]:
            raise BrokenInvariant(f"a plot goes from left to right, but {point[0]} follows {kept[-1][0]}")
        if kept and point == kept[-1]:
            continue
        if len(kept) > 1 and any(kept[-2][axis] == kept[-1][axis] == point[axis] for axis in (0, 1)):
            kept.pop()
        kept.append(point)
    return Plot(tuple(x for x, _ in kept), tuple(y for _, y in kept))


def sum_of(plots: Sequence[Plot]) -> Plot:
    """The sum, where all of them are defined."""
    points: list[Point] = []
    for x in _common_grid(plots):
        points.append((x, _in_order(plot.value(x) for plot in plots)))
        points.append((x, _in_order(plot.right_limit(x) for plot in plots)))
    return plot_of(points)


def lower_of(one: Plot, other: Plot) -> Plot:
    """The lesser of two, where both are defined."""
    points: list[Point] = []
    grid = _common_grid((one, other))
    for x, following in zip(grid, [*grid[1:], None], strict=True):
        points.append((x, min(one.value(x), other.value(x))))
        points.append((x, min(one.right_limit(x), other.right_limit(x))))
        if following is not None:
            points += _crossing(one, other, x, following)
    return plot_of(points)


def lowest_of(plots: Sequence[Plot]) -> Plot:
    """The least of several, where all are defined."""
    return reduce(lower_of, plots)


def scale_argument(plot: Plot, factor: float) -> Plot:
    """The function of `factor` times x."""
    return Plot(tuple(x / factor for x in plot.xs), plot.ys)


def shift(plot: Plot, right: float, up: float = 0.0) -> Plot:
    """The plot moved to the right and up."""
    return Plot(tuple(x + right for x in plot.xs), tuple(y + up for y in plot.ys))


def transpose(plot: Plot) -> Plot:
    """The inverse of a function that never falls: level stretches become jumps, jumps level."""
    return Plot(plot.ys, plot.xs)


def narrow(plot: Plot, left: float, right: float) -> Plot:
    """The function from `left` to `right` only; a jump at either end stays."""
    points: list[Point] = []
    for x in sorted({left, right, *(x for x in plot.xs if left < x < right)}):
        points += [(x, plot.value(x)), (x, plot.right_limit(x))]
    return plot_of(points)


def trim_left(plot: Plot) -> Plot:
    """Without a jump at the left end: beginning at its upper end."""
    jumps = len(plot.xs) > 1 and plot.xs[0] == plot.xs[1]
    return Plot(plot.xs[1:], plot.ys[1:]) if jumps else plot


def trim(plot: Plot) -> Plot:
    """Without a jump at the right end: ending at its lower end."""
    jumps = len(plot.xs) > 1 and plot.xs[-1] == plot.xs[-2]
    return Plot(plot.xs[:-1], plot.ys[:-1]) if jumps else plot


def extend_right(plot: Plot, right: float) -> Plot:
    """Level from the last point on as far as `right`."""
    return plot if plot.right >= right else plot_of([*plot.points, (right, plot.ys[-1])])


def compose(outer: Plot, inner: Plot) -> Plot:
    """`outer` of `inner` of x, where `inner` is defined; `inner` must not fall."""
    if any(y0 > y1 for y0, y1 in pairwise(inner.ys)):
        raise BrokenInvariant("the inner one of two composed functions must not fall")
    stops = inner.points
    for start, end in pairwise(inner.points):
        if start[0] < end[0] and start[1] < end[1]:
            stops += [
                (interpolate(start[::-1], end[::-1], v), v)
                for v in outer.xs[bisect_right(outer.xs, start[1]) : bisect_left(outer.xs, end[1])]
            ]
    stops.sort()
    groups = [[v for _, v in group] for _, group in groupby(stops, key=itemgetter(0))]
    places = sorted({x for x, _ in stops})
    following = [*(group[0] for group in groups[1:]), None]
    points: list[Point] = []
    for x, group, after in zip(places, groups, following, strict=True):
        points.append((x, outer.value(group[0])))
        rises = after is not None and after > group[-1]
        points.append((x, outer.right_limit(group[-1]) if rises else outer.value(group[-1])))
    return trim(plot_of(points))


def _in_order(figures: Iterable[float]) -> float:
    """The sum from first to last; `sum` of newer Pythons rounds otherwise."""
    return reduce(lambda total, figure: total + figure, figures, 0.0)


def _common_grid(plots: Sequence[Plot]) -> list[float]:
    """Every x of any plot within what they have in common, and its bounds."""
    left, right = max(plot.left for plot in plots), min(plot.right for plot in plots)
    return sorted({left, right, *(x for plot in plots for x in plot.xs if left < x < right)})


def _crossing(one: Plot, other: Plot, left: float, right: float) -> list[Point]:
    """The point between two neighbouring places of the grid up to which the lower function stays the lower one."""
    at_left = one.right_limit(left) - other.right_limit(left)
    at_right = one.value(right) - other.value(right)
    if not (at_left < 0.0 < at_right or at_right < 0.0 < at_left):
        return []
    lower, upper = (one, other) if at_left < 0.0 else (other, one)

    def line(plot: Plot, x: float) -> float:
        at = bisect_right(plot.xs, left)
        return interpolate((plot.xs[at - 1], plot.ys[at - 1]), (plot.xs[at], plot.ys[at]), x)

    x = largest(left, right, lambda x: line(lower, x) <= line(upper, x))
    return [(x, min(line(lower, x), line(upper, x)))]
