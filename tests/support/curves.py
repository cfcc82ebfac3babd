"""The operations of piecewise-linear functions, each done by the functions that an update of the fair share is made with.

An update never inverts, compares or composes single functions: `functions_by_suggestion` does all three at once, for the largest fit
factor f that a suggestion s allows is the least of the inverses of what each resource takes, and what comes of it is a composition.
So an operation is put here as the question to an element of which its functions are the answer:

    inverse of p                 the fit factor by suggestion, where one resource takes p(f)
    least of p, q, ...           the same, where resource r takes the inverse of the r-th
    p of q                       the share by suggestion of a resource that takes p(f), where another one takes the inverse of q

Functions of an update never fall, and begin and end without a jump. What falls is tilted until it rises, and tilted back in the
answer; ends get a slope before and behind, which is left out of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from headrace_fair_share.hdrf.arrays import RESOURCES, Floats, starts_of
from headrace_fair_share.hdrf.functions.by_fit_factor import sum_of_children
from headrace_fair_share.hdrf.functions.by_suggestion import functions_by_suggestion
from headrace_fair_share.hdrf.functions.curves import Curves, Functions, FunctionStore

__all__ = [
    "Function",
    "Point",
    "compose",
    "curves_of",
    "least_of",
    "points_of",
    "scaled",
    "shifted",
    "sum_of",
    "transposed",
]

Point = tuple[float, float]
_ROW, _MANY_ROWS = np.zeros(1, np.int64), np.zeros(100, np.int64)
_ONCE = np.ones(1)


class Function:
    """A function of one component, kept and read as the functions of elements are."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = list(points)
        self.store = FunctionStore(1)
        x = np.array([x for x, _ in points])
        y = np.array([[y for _, y in points]] * RESOURCES)
        self.store.put(_ROW, Functions(x, x, y, np.array([0, len(points)])))

    @property
    def start(self) -> float:
        return self.points[0][0]

    @property
    def end(self) -> float:
        return self.points[-1][0]

    def value(self, x: float) -> float:
        """The limit from the left, found in each of the ways in which an update finds it."""
        assert self.start <= x <= self.end
        few, many = (self.store.shares_at(rows, np.full(len(rows), x))[0] for rows in (_ROW, _MANY_ROWS))
        assert few[0] == self._limit(x, right=False)
        assert (few[0] == many).all()
        return float(few[0])

    def right_limit(self, x: float) -> float:
        """The limit from the right; at the right end the upper end of a jump there."""
        assert self.start <= x <= self.end
        return self._limit(x, right=True)

    def _limit(self, x: float, *, right: bool) -> float:
        return float(self.store.limits_at(_ROW, _ONCE, np.array([x]), np.array([right]))[0, 0])

    def narrow(self, start: float, end: float) -> Function:
        """The function from `start` to `end` only; a jump at either end stays."""
        inside = [point for point in self.points if start < point[0] < end]
        places = (start, end) if start < end else (start,)
        first, *last = [[(x, self.value(x)), (x, self.right_limit(x))] for x in places]
        return Function(without_repeats([*first, *inside, *(point for pair in last for point in pair)]))


def without_repeats(points: Sequence[Point]) -> list[Point]:
    """Each point once where it follows itself; a single point stands for a function of one place, and is written twice."""
    kept = [points[0], *(after for before, after in pairwise(points) if before != after)]
    return kept if len(kept) > 1 else kept * 2


def curves_of(functions: Sequence[Sequence[Point]], rows: Sequence[int] | None = None) -> Curves:
    """Functions side by side; in all components, or function k in component rows[k] alone."""
    x = np.array([x for points in functions for x, _ in points])
    y = np.zeros((RESOURCES, len(x)))
    begin = 0
    for place, points in enumerate(functions):
        y[slice(None) if rows is None else rows[place], begin : begin + len(points)] = [value for _, value in points]
        begin += len(points)
    return Curves(x, y, starts_of(np.array([len(points) for points in functions])))


def points_of(curves: Curves, which: int = 0, r: int = 0) -> list[Point]:
    """Points of one component of one of the curves."""
    of = slice(curves.start[which], curves.start[which + 1])
    return list(zip(curves.x[of].tolist(), curves.y[r, of].tolist(), strict=True))


def scaled(function: Function, factor: float) -> Function:
    """The function of `factor` times x."""
    curves = curves_of([function.points])
    curves.scale_argument(np.array([factor]))
    return Function(points_of(curves))


def shifted(function: Function, right: float, up: float = 0.0) -> Function:
    """The function moved to the right, and up: that is a sum with a constant."""
    curves = curves_of([function.points])
    curves.shift(np.array([right]))
    moved = Function(points_of(curves))
    return sum_of([moved, Function([(moved.start, up), (moved.end, up)])]) if up else moved


def sum_of(functions: Sequence[Function]) -> Function:
    """The sum over the domain that all have in common."""
    parts, slope = _rising(_over_common_domain(functions))
    curves = curves_of([part.points for part in parts])
    children = len(parts)
    summed = sum_of_children(curves, np.ones(children), np.zeros(children, np.int64), 1)
    return _tilted(Function(without_repeats(points_of(summed))), -children * slope)


def least_of(functions: Sequence[Function]) -> Function:
    """The least at every place of the domain that all have in common."""
    parts, slope = _rising(_over_common_domain(functions))
    low, high = min(part.points[0][1] for part in parts), max(part.points[-1][1] for part in parts)
    inverses = [[(y, x) for x, y in _with_slopes(part.points, low, high)] for part in parts]
    family = curves_of(inverses, range(len(parts)))
    together = sum_of_children(family, np.ones(len(parts)), np.zeros(len(parts), np.int64), 1)
    answer = _Answer(together, bound_by=len(parts))
    return _tilted(answer.of(answer.functions.fit, parts[0].start, parts[0].end), -slope)


def transposed(function: Function) -> Function:
    """The inverse of a function that never falls: level stretches become jumps, jumps level."""
    points = function.points
    padded = _with_slopes(points, points[0][1], points[-1][1])
    answer = _Answer(curves_of([padded], [0]), bound_by=1)
    return answer.of(answer.functions.fit, points[0][1], points[-1][1])


def compose(outer: Function, inner: Function) -> Function:
    """`outer` of `inner` of x; neither may fall."""
    points = inner.points
    inverse = [(y, x) for x, y in _with_slopes(points, points[0][1], points[-1][1])]
    family = curves_of([inverse, outer.points], [0, 1])
    # A sum begins where its first part does, and every part is level before it begins and behind its end.
    together = sum_of_children(family, np.ones(2), np.zeros(2, np.int64), 1)
    answer = _Answer(together, bound_by=1)
    return answer.of(answer.functions.shares[1], inner.start, inner.end)


class _Answer:
    """The functions of one element by a suggestion, in the units of the question."""

    def __init__(self, curves: Curves, bound_by: int) -> None:
        self.base = float(curves.y[:bound_by, 0].min())
        #: A power of two, so that nothing is rounded: suggestions go from 0 to 1.
        self.unit = 2.0 ** np.ceil(np.log2(2.0 * (curves.y[:bound_by].max() - self.base)))
        curves.y[:bound_by] = (curves.y[:bound_by] - self.base) / self.unit
        guarantees = curves.y.max(axis=1, keepdims=True)  # what is guaranteed in full binds nobody
        guarantees[:bound_by] = 0.0
        self.functions = functions_by_suggestion(curves, guarantees, np.full((RESOURCES, 1), np.inf))

    def of(self, values: Floats, start: float, end: float) -> Function:
        """One of the functions, over a part of its domain."""
        x = self.base + self.unit * self.functions.suggestion
        for edge in (start, end):
            x[np.abs(x - edge) < 1e-15 * self.unit] = edge  # taking the base away and adding it again has rounded
        return Function(list(zip(x.tolist(), values.tolist(), strict=True))).narrow(start, end)


def _with_slopes(points: Sequence[Point], low: float, high: float) -> list[Point]:
    """The points with a slope up from below `low` before them, and one to above `high` behind them."""
    return [(points[0][0] - 1.0, low - 1.0), *points, (points[-1][0] + 1.0, high + 1.0)]


def _over_common_domain(functions: Sequence[Function]) -> list[Function]:
    start, end = max(function.start for function in functions), min(function.end for function in functions)
    return [function.narrow(start, end) for function in functions]


def _rising(functions: Sequence[Function]) -> tuple[list[Function], float]:
    """All functions plus slope * x, with the least slope with which none falls."""
    slope = 0.0
    for function in functions:
        for (x0, y0), (x1, y1) in pairwise(function.points):
            assert x0 < x1 or y0 <= y1, "a jump down cannot be tilted away"
            slope = max(slope, (y0 - y1) / (x1 - x0) if x0 < x1 else 0.0)
    return [_tilted(function, slope) for function in functions], slope


def _tilted(function: Function, slope: float) -> Function:
    return Function([(x, y + slope * x) for x, y in function.points]) if slope else function
