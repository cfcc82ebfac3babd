"""The functions of every element, built from the operations up, one batch of elements after another.

An operation wants, as its fit factor grows to 1, what it uses, evenly in all resources; from there to 2 the rest of its demand. A gang
wants nothing up to 1, and all at once there. A pool's fit factor is what its children get together. `walk` turns both into functions
of the suggestion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.resources import EPS
from headrace_fair_share.hdrf.arrays import RESOURCES, Bools, BrokenInvariant, Family, Floats, Ints, starts_of
from headrace_fair_share.hdrf.breakpoints import BreakpointStore
from headrace_fair_share.hdrf.by_fit_factor import cut_at_one, sum_of_children, sum_one_move_at_a_time
from headrace_fair_share.hdrf.by_suggestion import functions_by_suggestion
from headrace_fair_share.hdrf.curves import Curves, Functions, FunctionStore
from headrace_fair_share.hdrf.layout import Layout
from headrace_fair_share.hdrf.weights import Offers

__all__ = ["FunctionBuilder", "operation_by_fit_factor"]

#: Points of a batch: what is needed meanwhile stays in the processor's cache.
_BATCH_POINTS: Final = 30_000
_BATCH_OPERATIONS: Final = 4_000


@dataclass(slots=True)
class FunctionBuilder:
    """Builds functions into a store. `breakpoints` is there in the improved mode only."""

    layout: Layout
    store: FunctionStore
    breakpoints: BreakpointStore | None
    fifo: Bools
    offers: Offers
    limits: Floats

    def operations(self, elements: Ints, usage: Floats, demand: Floats, gang: Bools) -> None:
        """Functions of operations."""
        for begin in range(0, len(elements), _BATCH_OPERATIONS):
            batch = elements[begin : begin + _BATCH_OPERATIONS]
            curves = operation_by_fit_factor(usage[:, batch], demand[:, batch], gang[batch])
            nothing = np.zeros((RESOURCES, len(batch)))
            self.store.put(batch, functions_by_suggestion(curves, nothing, self.limits[:, batch]))

    def pools(self, wanted: Bools, guarantees: Floats) -> None:
        """Functions of all pools that are wanted, from the lowest up, with guarantees by element."""
        for level in reversed(self.layout.pool_levels):
            here = level[wanted[level]]
            if len(here):
                self.level(here, here, guarantees[:, here], self.limits[:, here])

    def level(self, elements: Ints, rows: Ints, guarantees: Floats, limits: Floats) -> None:
        """Functions of pools whose children have theirs, put into any rows of the store."""
        has_children = self.layout.end_child[elements] > self.layout.first_child[elements]
        empty = np.flatnonzero(~has_children)
        if len(empty):
            self.store.put(rows[empty], _nothing(len(empty)))
        full = np.flatnonzero(has_children)
        if not len(full):
            return
        counted = starts_of(self.store.count)
        first, end = self.layout.first_child[elements[full]], self.layout.end_child[elements[full]]
        batch = np.cumsum(counted[end] - counted[first]) // _BATCH_POINTS
        for part in np.split(full, np.flatnonzero(np.diff(batch)) + 1):
            self._batch(elements[part], rows[part], guarantees[:, part], limits[:, part])

    def _batch(self, elements: Ints, rows: Ints, guarantees: Floats, limits: Floats) -> None:
        if self.breakpoints is None:
            curves = self._sum(elements)
            _below_limits(curves, limits)
            self.store.put(rows, functions_by_suggestion(curves, guarantees, limits))
            return
        fifo = self.fifo[elements]
        for some, paired in ((np.flatnonzero(fifo), False), (np.flatnonzero(~fifo), True)):
            if len(some):
                curves = self._paired_sum(elements[some]) if paired else self._sum(elements[some])
                _below_limits(curves, limits[:, some])
                self.store.put(rows[some], functions_by_suggestion(curves, guarantees[:, some], limits[:, some]))

    def _sum(self, elements: Ints) -> Curves:
        family, curves = self._scaled_children(elements)
        return sum_of_children(curves, self.offers.ratio[family.children], family.owner, len(elements))

    def _paired_sum(self, elements: Ints) -> Curves:
        family, curves = self._scaled_children(elements)
        summed, breakpoints = sum_one_move_at_a_time(
            curves, self.offers.ratio[family.children], family.owner, len(elements)
        )
        breakpoints.child = family.children[breakpoints.child]
        assert self.breakpoints is not None
        self.breakpoints.put(elements, breakpoints)
        return summed

    def _scaled_children(self, elements: Ints) -> tuple[Family, Curves]:
        """Children's functions over the fit factor of their parents."""
        family = self.layout.children_of(elements)
        kids = family.children
        curves = self.store.curves(kids)
        ratio = self.offers.ratio[kids]
        curves.scale_argument(ratio)
        if (ratio < 1.0).any():
            curves = cut_at_one(curves)
        curves.shift(self.offers.rank[kids])
        return family, curves


def operation_by_fit_factor(usage: Floats, demand: Floats, gang: Bools) -> Curves:
    """What operations want at fit factors from 0 to 2.

    Every curve is chosen from a grid of nine points: the origin; one for each of the five components of the usage, smallest first;
    the end of a usage of nothing; the upper end of a gang's jump; the demand.
    """
    count = usage.shape[1]
    used = np.sort(usage, axis=0)
    most = used[-1]
    uses = (most > 0.0) & ~gang
    x, y = np.zeros((count, 9)), np.zeros((RESOURCES, count, 9))
    there = np.zeros((count, 9), np.bool_)
    x[:, 1:6] = np.where(uses, used / np.where(uses, most, 1.0), 0.0).T
    y[:, :, 1:6] = np.minimum(used.T, usage[:, :, np.newaxis])
    there[:, 1:6] = x[:, 1:6] > x[:, 0:5]
    x[:, 6:8], x[:, 8] = 1.0, 2.0
    y[:, :, 7] = y[:, :, 8] = demand
    there[:, 0] = there[:, 8] = True
    there[:, 6], there[:, 7] = ~uses, gang
    points = np.flatnonzero(there)
    return Curves(x.ravel()[points], np.take(y.reshape(RESOURCES, -1), points, axis=1), starts_of(there.sum(axis=1)))


def _nothing(count: int) -> Functions:
    """Functions of pools without children."""
    ends = np.tile([0.0, 1.0], count)
    return Functions(ends, np.zeros(2 * count), np.zeros((RESOURCES, 2 * count)), np.arange(0, 2 * count + 1, 2))


def _below_limits(curves: Curves, limits: Floats) -> None:
    """A curve begins with what children get at the suggestion 0, for their guarantees: that fits into the limits."""
    if (curves.y[:, curves.start[:-1]] >= limits + EPS).any():
        raise BrokenInvariant("the guarantees of children are larger than the limits of their pool")
