"""Piecewise-linear functions as lists of points, left-continuous, with jumps where two neighbouring points have one x.

A value is a tuple of components; functions of one component are those that can be transposed, cut and composed with.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from tests.reference.search import largest_double
from tests.reference.values import Values, ensure, smaller, total_of

__all__ = [
    "Builder",
    "Plot",
    "component",
    "compose",
    "compress",
    "extend_right",
    "interpolate",
    "is_rising",
    "level",
    "lower_of",
    "narrow",
    "scale_argument",
    "shift",
    "sum_of",
    "transpose",
    "trim",
    "trim_left",
]

#: Chords that miss a point by no more than this leave it out.
MERGED: float = 1e-15


class Plot(msgspec.Struct, frozen=True):
    """x of every point, in order, and its value."""

    xs: list[float]
    ys: list[Values]

    @property
    def start(self) -> float:
        return self.xs[0]

    @property
    def end(self) -> float:
        return self.xs[-1]

    def value(self, x: float) -> Values:
        """The limit from the left."""
        self._inside(x)
        at = bisect_left(self.xs, x)
        return self.ys[at] if self.xs[at] == x else self._between(at, x)

    def right_limit(self, x: float) -> Values:
        self._inside(x)
        at = bisect_right(self.xs, x)
        return self.ys[at - 1] if self.xs[at - 1] == x else self._between(at, x)

    def stretch_after(self, x: float) -> tuple[float, Values, float, Values]:
        """The stretch that begins at x, or within which x lies."""
        at = bisect_right(self.xs, x)
        return self.xs[at - 1], self.ys[at - 1], self.xs[at], self.ys[at]

    def points(self) -> list[tuple[float, Values]]:
        return list(zip(self.xs, self.ys, strict=True))

    def _inside(self, x: float) -> None:
        ensure(self.start <= x <= self.end, f"{x} lies outside [{self.start}, {self.end}]")

    def _between(self, at: int, x: float) -> Values:
        x0, x1 = self.xs[at - 1], self.xs[at]
        y0, y1 = self.ys[at - 1], self.ys[at]
        return tuple(interpolate(x0, a, x1, b, x) for a, b in zip(y0, y1, strict=True))


class Builder:
    """Puts a plot together from the left, leaving out points that say nothing new."""

    def __init__(self) -> None:
        self._xs: list[float] = []
        self._ys: list[Values] = []

    def add(self, x: float, y: Values) -> None:
        xs, ys = self._xs, self._ys
        if xs:
            ensure(x >= xs[-1], f"a plot goes to the right: {x} after {xs[-1]}")
            if x == xs[-1] and y == ys[-1]:
                return
        if len(xs) > 1 and (xs[-2] == xs[-1] == x or ys[-2] == ys[-1] == y):
            xs[-1], ys[-1] = x, y
            return
        xs.append(x)
        ys.append(y)

    def add_limits(self, x: float, left: Values, right: Values) -> None:
        self.add(x, left)
        self.add(x, right)

    def plot(self) -> Plot:
        return Plot(self._xs, self._ys)


def interpolate(x0: float, y0: float, x1: float, y1: float, x: float) -> float:
    """The line through both points at x; exact at both, and monotone between them."""
    t = (x - x0) / (x1 - x0)
    if t < 0.5:
        return y0 + (y1 - y0) * t
    return y1 - (y1 - y0) * (1 - t)


def built(points: Iterable[tuple[float, Values]]) -> Plot:
    """The points as a plot, with what says nothing left out."""
    builder = Builder()
    for x, y in points:
        builder.add(x, y)
    return builder.plot()


def level(y: Values, start: float, end: float) -> Plot:
    return Plot([start, end], [y, y])


def is_rising(plot: Plot) -> bool:
    """True when no component ever falls."""
    return all(a <= b for one, other in pairwise(plot.ys) for a, b in zip(one, other, strict=True))


def component(plot: Plot, r: int) -> Plot:
    return Plot(plot.xs, [(y[r],) for y in plot.ys])


def sum_of(functions: Sequence[Plot]) -> Plot:
    """The sum over the domain that all have in common."""
    start, end = max(f.start for f in functions), min(f.end for f in functions)
    zero = (0.0,) * len(functions[0].ys[0])
    builder = Builder()
    for x in sorted({start, end, *(x for f in functions for x in f.xs if start < x < end)}):
        builder.add_limits(
            x,
            total_of((f.value(x) for f in functions), zero),
            total_of((f.right_limit(x) for f in functions), zero),
        )
    return builder.plot()


def lower_of(f: Plot, g: Plot) -> Plot:
    """The lesser of two functions of one component, over the domain that they have in common."""
    start, end = max(f.start, g.start), min(f.end, g.end)
    grid = sorted({start, end, *(x for h in (f, g) for x in h.xs if start < x < end)})
    builder = Builder()
    for at, x in enumerate(grid):
        builder.add_limits(x, smaller(f.value(x), g.value(x)), smaller(f.right_limit(x), g.right_limit(x)))
        if at + 1 < len(grid):
            _add_crossing(builder, f, g, x, grid[at + 1])
    return builder.plot()


def _add_crossing(builder: Builder, f: Plot, g: Plot, x0: float, x1: float) -> None:
    """Where the lesser of both ceases to be so between two neighbouring x."""
    at_left, at_right = (f.right_limit(x0)[0], g.right_limit(x0)[0]), (f.value(x1)[0], g.value(x1)[0])
    if at_left[0] < at_left[1] and at_right[0] > at_right[1]:
        low, high = f, g
    elif at_left[0] > at_left[1] and at_right[0] < at_right[1]:
        low, high = g, f
    else:
        return

    def on(plot: Plot, x: float) -> float:
        a, (ya,), b, (yb,) = plot.stretch_after(x0)
        return interpolate(a, ya, b, yb, x)

    x = largest_double(x0, x1, lambda x: on(low, x) <= on(high, x))
    builder.add(x, (min(on(low, x), on(high, x)),))


def scale_argument(plot: Plot, factor: float) -> Plot:
    """The function of `factor` times x."""
    return Plot([x / factor for x in plot.xs], plot.ys)


def shift(plot: Plot, dx: float, dy: float = 0.0) -> Plot:
    return Plot([x + dx for x in plot.xs], [tuple(v + dy for v in y) for y in plot.ys] if dy else plot.ys)


def transpose(plot: Plot) -> Plot:
    """The inverse of a function that never falls; levels become jumps."""
    return Plot([y for (y,) in plot.ys], [(x,) for x in plot.xs])


def narrow(plot: Plot, start: float, end: float) -> Plot:
    """The function on [start, end]; a jump at either end stays."""
    builder = Builder()
    for x in sorted({start, end, *(x for x in plot.xs if start < x < end)}):
        builder.add_limits(x, plot.value(x), plot.right_limit(x))
    return builder.plot()


def trim_left(plot: Plot) -> Plot:
    """Without a jump at the left end."""
    drop = 1 if len(plot.xs) > 1 and plot.xs[0] == plot.xs[1] else 0
    return Plot(plot.xs[drop:], plot.ys[drop:])


def trim(plot: Plot) -> Plot:
    """Without a jump at the right end."""
    keep = len(plot.xs) - (1 if len(plot.xs) > 1 and plot.xs[-1] == plot.xs[-2] else 0)
    return Plot(plot.xs[:keep], plot.ys[:keep])


def extend_right(plot: Plot, end: float) -> Plot:
    """Goes on level up to `end`, at the height of the last point."""
    if plot.end >= end:
        return plot
    return built([*plot.points(), (end, plot.ys[-1])])


def compose(outer: Plot, inner: Plot) -> Plot:
    """outer(inner(x)) over the inner function's domain."""
    ensure(is_rising(inner), "the inner function of a composition must not fall")
    points = [(x, y) for x, (y,) in inner.points()]
    for (x0, (y0,)), (x1, (y1,)) in pairwise(inner.points()):
        if x0 < x1 and y0 < y1:
            low, high = bisect_right(outer.xs, y0), bisect_left(outer.xs, y1)
            points += [(interpolate(y0, x0, y1, x1, v), v) for v in outer.xs[low:high]]
    points.sort()
    builder = Builder()
    at = 0
    while at < len(points):
        x, first = points[at]
        while at + 1 < len(points) and points[at + 1][0] == x:
            at += 1
        last = points[at][1]
        goes_on = at + 1 < len(points) and points[at + 1][1] > last
        builder.add_limits(x, outer.value(first), outer.right_limit(last) if goes_on else outer.value(last))
        at += 1
    return trim(builder.plot())


def compress(plot: Plot) -> Plot:
    """Without the points that lie, to within `MERGED`, on the line between their neighbours."""
    points = plot.points()
    if len(points) < 3:
        return plot
    kept = [points[0]]
    start, end = points[0], points[1]
    top, bottom = _chords(start, end)
    for point in points[2:]:
        above, below = _chords(start, point)
        dx = point[0] - start[0]
        merges = True
        for r, (value, base) in enumerate(zip(point[1], start[1], strict=True)):
            if _cross(above[r], top[r]) > 0:
                top[r] = above[r]
            if _cross(below[r], bottom[r]) < 0:
                bottom[r] = below[r]
            straight = (dx, value - base)
            if _cross(bottom[r], straight) <= 0 or _cross(top[r], straight) >= 0:
                merges = False
                break
        if not merges:
            kept.append(end)
            start = end
            top, bottom = _chords(start, point)
        end = point
    kept.append(end)
    return Plot([x for x, _ in kept], [y for _, y in kept])


_Chord = tuple[float, float]


def _chords(start: tuple[float, Values], point: tuple[float, Values]) -> tuple[list[_Chord], list[_Chord]]:
    """From the start to just above and to just below the point, in every component."""
    dx = point[0] - start[0]
    pairs = list(zip(point[1], start[1], strict=True))
    return [(dx, (y + MERGED) - base) for y, base in pairs], [(dx, (y - MERGED) - base) for y, base in pairs]


def _cross(a: _Chord, b: _Chord) -> float:
    return a[0] * b[1] - b[0] * a[1]
