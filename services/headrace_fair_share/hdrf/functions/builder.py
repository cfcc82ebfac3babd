"""Builds the functions of elements, in batches: first the functions of operations, then those of pools, level by level upwards.

Section: docs/reference/fair-share-algorithm.md#13-what-is-kept-between-updates
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.resources import EPS
from headrace_fair_share.hdrf.arrays import RESOURCES, Bools, BrokenInvariant, Family, Floats, Ints, starts_of
from headrace_fair_share.hdrf.functions.by_fit_factor import (
    BreakpointStore,
    cut_at_one,
    operation_by_fit_factor,
    sum_of_children,
    sum_one_move_at_a_time,
)
from headrace_fair_share.hdrf.functions.by_suggestion import functions_by_suggestion
from headrace_fair_share.hdrf.functions.curves import Curves, Functions, FunctionStore
from headrace_fair_share.hdrf.input_arrays import Layout
from headrace_fair_share.hdrf.weights import Offers

#: Number of points after which a batch of pools ends, so that the data of a batch stay in the processor's cache.
_BATCH_POINTS: Final = 30_000
#: Largest number of operations in a batch.
_BATCH_OPERATIONS: Final = 4_000


@dataclass(slots=True)
class FunctionBuilder:
    """Builds functions into a store. `breakpoints` is None unless the tree is in improved mode."""

    layout: Layout
    store: FunctionStore
    breakpoints: BreakpointStore | None
    fifo: Bools
    offers: Offers
    limits: Floats

    def operations(self, elements: Ints, usage: Floats, demand: Floats, gang: Bools) -> None:
        """Build the functions of operations."""
        for begin in range(0, len(elements), _BATCH_OPERATIONS):
            batch = elements[begin : begin + _BATCH_OPERATIONS]
            curves = operation_by_fit_factor(usage[:, batch], demand[:, batch], gang[batch])
            nothing = np.zeros((RESOURCES, len(batch)))
            self.store.put(batch, functions_by_suggestion(curves, nothing, self.limits[:, batch]))

    def pools(self, wanted: Bools, guarantees: Floats) -> None:
        """Build the functions of the pools for which `wanted` is True, from the lowest level up. `guarantees` is by element."""
        for level in reversed(self.layout.pool_levels):
            here = level[wanted[level]]
            if len(here):
                self.level(here, here, guarantees[:, here], self.limits[:, here])

    def level(self, elements: Ints, rows: Ints, guarantees: Floats, limits: Floats) -> None:
        """Build the functions of pools into the given rows of the store. The functions of the pools' children must have been built
        before.
        """
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

    def by_fit_factor(self, pools: Ints) -> Curves:
        """Return the shares by fit factor of pools. Each of the pools must have children, and all must have the same mode."""
        family, children = self._scaled_children(pools)
        ratio = self.offers.ratio[family.children]
        if self.breakpoints is None or self.fifo[pools[0]]:
            return sum_of_children(children, ratio, family.owner, len(pools))
        curves, breakpoints = sum_one_move_at_a_time(children, ratio, family.owner, len(pools))
        breakpoints.child = family.children[breakpoints.child]
        self.breakpoints.put(pools, breakpoints)
        return curves

    def _batch(self, elements: Ints, rows: Ints, guarantees: Floats, limits: Floats) -> None:
        fifo = self.fifo[elements]
        modes = (fifo, ~fifo) if self.breakpoints is not None else (np.ones_like(fifo),)
        for some in map(np.flatnonzero, modes):
            if len(some):
                curves = self.by_fit_factor(elements[some])
                _below_limits(curves, limits[:, some])
                self.store.put(rows[some], functions_by_suggestion(curves, guarantees[:, some], limits[:, some]))

    def _scaled_children(self, elements: Ints) -> tuple[Family, Curves]:
        """Return the shares of the children as functions of their parents' fit factor."""
        family = self.layout.children_of(elements)
        kids = family.children
        curves = self.store.curves(kids)
        ratio = self.offers.ratio[kids]
        curves.scale_argument(ratio)
        if (ratio < 1.0).any():
            curves = cut_at_one(curves)
        curves.shift(self.offers.rank[kids])
        return family, curves


def _nothing(count: int) -> Functions:
    """Return functions that are zero everywhere, for pools without children."""
    ends = np.tile([0.0, 1.0], count)
    return Functions(ends, np.zeros(2 * count), np.zeros((RESOURCES, 2 * count)), np.arange(0, 2 * count + 1, 2))


def _below_limits(curves: Curves, limits: Floats) -> None:
    """Raise `BrokenInvariant` if a curve starts above a limit.

    A curve starts with the shares that the children get from their guarantees, at suggestion 0. These shares must fit into the limits.
    """
    if (curves.y[:, curves.start[:-1]] >= limits + EPS).any():
        raise BrokenInvariant("the guarantees of children are larger than the limits of their pool")
