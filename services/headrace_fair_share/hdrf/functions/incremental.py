"""Keeps the functions of a tree between updates, and rebuilds only those that must change.

The function of an operation changes if its usage or demand changes. The function of a pool changes if any function below the pool, its
guarantee or the offers to its children change. Each integral pool has a second function for trials, which is built with the grant that a
burst pool may get, or with the temporary limits of a relaxed pool. This trial function stays valid while nothing below the pool changes and
the trial has the same inputs.

Section: docs/reference/fair-share-algorithm.md#13-what-is-kept-between-updates
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace_fair_share.hdrf.arrays import RESOURCES, Bools, Floats, Ints
from headrace_fair_share.hdrf.functions.builder import FunctionBuilder
from headrace_fair_share.hdrf.functions.by_fit_factor import BreakpointStore
from headrace_fair_share.hdrf.functions.curves import FunctionStore
from headrace_fair_share.hdrf.incremental_input import FixedAttributes
from headrace_fair_share.hdrf.input_arrays import Layout
from headrace_fair_share.hdrf.weights import Offers


@dataclass(frozen=True, slots=True)
class FunctionInputs:
    """The attributes that functions are built from, by element."""

    usage_share: Floats
    demand_share: Floats
    limits: Floats
    gang: Bools
    offers: Offers


class IncrementalFunctions:
    """The functions of all elements below the root, kept from update to update."""

    def __init__(
        self, layout: Layout, fixed: FixedAttributes, fifo: Bools, inputs: FunctionInputs, *, improved: bool
    ) -> None:
        self._layout = layout
        self._fixed = fixed
        self._inputs = inputs
        integral = fixed.integral.all
        self.store = FunctionStore(layout.size + len(integral))
        self.breakpoints = BreakpointStore(layout.size) if improved else None
        self.builder = FunctionBuilder(layout, self.store, self.breakpoints, fifo, inputs.offers, inputs.limits)
        #: Row of the store that contains the trial function, for each integral pool.
        self.trial_rows = np.zeros(layout.size, np.int64)
        self.trial_rows[integral] = layout.size + np.arange(len(integral))
        #: Guarantees with which the functions were built.
        self._guarantees = np.zeros((RESOURCES, layout.size))
        #: Guarantees with which the trial functions were built; NaN: not built.
        self._trial_guarantees = np.full((RESOURCES, layout.size), np.nan)
        #: Limits with which the trial functions were built; NaN: not built.
        self._trial_limits = np.full((RESOURCES, layout.size), np.nan)
        #: True for elements whose functions must be rebuilt.
        self._stale = np.ones(layout.size, np.bool_)
        self._stale[0] = False
        #: True if no function was rebuilt since shares were last distributed.
        self.idle = False

    @property
    def wasteful(self) -> bool:
        """True if most of the stored points are no longer used."""
        return self.store.used > 2 * self.store.live

    def follow(self, inputs: FunctionInputs) -> None:
        """Take new inputs, and rebuild the functions that they change, except the functions that depend on integral grants."""
        before, self._inputs = self._inputs, inputs
        self.builder.offers, self.builder.limits = inputs.offers, inputs.limits
        stale = self._stale
        for now, then in (
            (inputs.usage_share, before.usage_share),
            (inputs.demand_share, before.demand_share),
            (inputs.limits, before.limits),
        ):
            stale |= (now != then).any(axis=0) & ~self._layout.is_pool
        stale |= inputs.gang != before.gang
        moved = (inputs.offers.ratio != before.offers.ratio) | (inputs.offers.rank != before.offers.rank)
        stale[self._layout.parent[np.flatnonzero(moved)]] = True
        self.idle = not stale.any()
        self._mark_upwards()
        operations = np.flatnonzero(stale & ~self._layout.is_pool)
        self.builder.operations(operations, inputs.usage_share, inputs.demand_share, inputs.gang)
        stale[operations] = False
        self._build(self._fixed.integral.untouched, self._fixed.strong)

    def try_out(self, pools: Ints, guarantees: Floats, limits: Floats) -> None:
        """Build the trial functions of integral pools with these guarantees and limits."""
        differs = (guarantees != self._trial_guarantees[:, pools]) | (limits != self._trial_limits[:, pools])
        todo = self._stale[pools] | differs.any(axis=0)
        if todo.any():
            fresh = pools[todo]
            self.builder.level(fresh, self.trial_rows[fresh], guarantees[:, todo], limits[:, todo])
            self._trial_guarantees[:, fresh] = guarantees[:, todo]
            self._trial_limits[:, fresh] = limits[:, todo]
            self.idle = False

    def settle(self, granted: Floats) -> None:
        """Rebuild the functions that depend on integral grants, as far as the grants or functions below changed."""
        touched = self._fixed.integral.touched
        guarantees = self._fixed.strong + granted
        differs = (guarantees[:, touched] != self._guarantees[:, touched]).any(axis=0)
        self._stale[touched[differs]] = True
        self._mark_upwards()
        self._build(touched, guarantees)

    def _build(self, pools: Ints, guarantees: Floats) -> None:
        wanted = np.zeros_like(self._stale)
        wanted[pools] = self._stale[pools]
        if wanted.any():
            self.builder.pools(wanted, guarantees)
            self._guarantees[:, wanted] = guarantees[:, wanted]
            self._stale[wanted] = False
            self.idle = False

    def _mark_upwards(self) -> None:
        """Mark all pools above stale elements as stale, except the root, whose function is not kept."""
        for begin, end in zip(self._layout.levels[-2:0:-1], self._layout.levels[:1:-1], strict=True):
            self._stale[self._layout.parent[begin + np.flatnonzero(self._stale[begin:end])]] = True
        self._stale[0] = False
