"""Many piecewise-linear curves at once, and the store of the functions of a whole tree.

The curves follow one another in the same arrays. Their values are vectors with one component per resource. Two points with the same x are a
jump; the value at this x is the value before the jump.

    points (0, 0) (0.6, 0) (0.6, 0.5) (1, 0.5)  have the value 0 at 0.6 and 0.5 at any x above

Section: docs/reference/fair-share-algorithm.md#10-curves
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

import numpy as np

from headrace_fair_share.hdrf.arrays import RESOURCES, Bools, Floats, Ints, between, ranges, starts_of

#: Largest number of functions for which searching them one by one is faster than searching all at once.
_FEW: Final = 16


@dataclass(slots=True)
class Curves:
    """Curves of vectors over one variable: curve k has the points start[k]:start[k + 1]."""

    x: Floats
    #: Shape (5, points).
    y: Floats
    start: Ints

    def __len__(self) -> int:
        return len(self.start) - 1

    def owner(self) -> Ints:
        """Return the curve of each point."""
        return np.arange(len(self)).repeat(self.start[1:] - self.start[:-1])

    def scale_argument(self, factor: Floats) -> None:
        """Replace every curve k, y(x), by y(factor[k] * x)."""
        self.x /= factor.repeat(self.start[1:] - self.start[:-1])

    def shift(self, right: Floats) -> None:
        """Move every curve k by right[k] along its variable."""
        self.x += right.repeat(self.start[1:] - self.start[:-1])


@dataclass(slots=True)
class Functions:
    """Two functions for each of several elements: maximal fit factor by suggestion, and share by suggestion. Both functions have the same
    points.
    """

    suggestion: Floats
    fit: Floats
    #: Shape (5, points).
    shares: Floats
    start: Ints


class _Points(Protocol):
    """Points of several curves, with the same columns as a store. Curve k has the points `start[k]:start[k + 1]`."""

    start: Ints


class PointStore:
    """Stores the points of one curve per row, in columns that a subclass names.

    Stored points are never removed. If a row is stored again, it refers to the new points, and its old points remain unused.
    """

    columns: ClassVar[tuple[str, ...]]

    def __init__(self, rows: int) -> None:
        self.first = np.zeros(rows, np.int64)
        self.count = np.zeros(rows, np.int64)
        self.used = 0

    def put(self, rows: Ints, points: _Points) -> None:
        """Add the points of one curve for each of the rows."""
        begin, end = self.used, self.used + int(points.start[-1])
        for name in self.columns:
            column = getattr(self, name)
            if end > column.shape[-1]:
                longer = np.empty((*column.shape[:-1], end + end // 3 + 1000), column.dtype)
                longer[..., :begin] = column[..., :begin]
                setattr(self, name, longer)
                column = longer
            column[..., begin:end] = getattr(points, name)
        self.first[rows] = begin + points.start[:-1]
        self.count[rows] = points.start[1:] - points.start[:-1]
        self.used = end


class FunctionStore(PointStore):
    """Stores the functions of all elements over suggestions from 0 to 1."""

    columns = ("suggestion", "fit", "shares")

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.suggestion = np.empty(0)
        self.fit = np.empty(0)
        self.shares = np.empty((RESOURCES, 0))

    @property
    def live(self) -> int:
        """The number of points that rows refer to."""
        return int(self.count.sum())

    def curves(self, rows: Ints) -> Curves:
        """Return copies of the shares by suggestion, as curves."""
        points = ranges(self.first[rows], self.count[rows])
        return Curves(self.suggestion[points], self.shares.take(points, axis=1), starts_of(self.count[rows]))

    def at_zero(self, rows: Ints) -> Floats:
        """Return the shares at suggestion 0."""
        return self.shares.take(self.first[rows], axis=1)

    def shares_at(self, rows: Ints, suggestions: Floats) -> Floats:
        """Return the shares at one suggestion per row."""
        place, t = self._locate(rows, suggestions)
        return between(self.shares.take(place, axis=1), self.shares.take(place + 1, axis=1), t)

    def fit_at(self, rows: Ints, suggestions: Floats) -> tuple[Floats, Floats]:
        """Return the maximal fit factors and the shares at one suggestion per row."""
        place, t = self._locate(rows, suggestions)
        shares = between(self.shares.take(place, axis=1), self.shares.take(place + 1, axis=1), t)
        return between(self.fit[place], self.fit[place + 1], t), shares

    def limits_at(self, rows: Ints, ratio: Floats, x: Floats, right: Bools) -> Floats:
        """Return the one-sided limits of the shares at the suggestion ratio * x: from the right where `right` is true, else from the left.

        The suggestions of stored points are divided by the ratio and then compared with `x`: `x` is such a quotient itself, so the
        comparison is exact. A comparison of suggestions with the product `ratio * x` could miss a jump by a rounding error.
        """
        after = self._first_point(rows, ratio, x, right)
        begin, last = self.first[rows], self.first[rows] + self.count[rows] - 1
        here = np.clip(np.where(right, after - 1, after), begin, last)
        before, behind = np.clip(after - 1, begin, last), np.minimum(after, last)
        x0, x1 = self.suggestion[before] / ratio, self.suggestion[behind] / ratio
        wide = x1 > x0
        t = np.where(wide, (x - x0) / np.where(wide, x1 - x0, 1.0), 0.0)
        shares = between(self.shares.take(before, axis=1), self.shares.take(behind, axis=1), np.clip(t, 0.0, 1.0))
        return np.where(self.suggestion[here] / ratio == x, self.shares.take(here, axis=1), shares)

    def _locate(self, rows: Ints, suggestions: Floats) -> tuple[Ints, Floats]:
        """Return the point before each suggestion, and the fraction of the way from there to the next point (0 within a jump)."""
        low, high = self.first[rows] + 1, self.first[rows] + self.count[rows] - 1
        few = len(rows) <= _FEW
        if few:
            for place, (begin, end) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
                low[place] = begin + self.suggestion[begin:end].searchsorted(suggestions[place])
        for _ in range(0 if few else int(self.count[rows].max(initial=0)).bit_length()):
            middle = (low + high) >> 1
            before = (self.suggestion[middle] < suggestions) & (low < high)
            low = np.where(before, middle + 1, low)
            high = np.where(before, high, middle)
        x0, x1 = self.suggestion[low - 1], self.suggestion[low]
        wide = x1 > x0
        return low - 1, np.where(wide, (suggestions - x0) / np.where(wide, x1 - x0, 1.0), 0.0)

    def _first_point(self, rows: Ints, ratio: Floats, x: Floats, right: Bools) -> Ints:
        """Return the first point at x or to the right of it; where `right` is true, the first point to the right of x."""
        low, high = self.first[rows], self.first[rows] + self.count[rows]
        for _ in range(int(self.count[rows].max(initial=0)).bit_length() + 1):
            open_ = low < high
            middle = np.where(open_, (low + high) >> 1, self.first[rows])
            at = self.suggestion[middle] / ratio
            before = open_ & ((at < x) | (right & (at == x)))
            low = np.where(before, middle + 1, low)
            high = np.where(open_ & ~before, middle, high)
        return low
