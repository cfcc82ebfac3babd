"""Distributes shares from the root down: every pool divides its share among its children.

    standard   a pool with suggestion s has the fit factor MFF(s) and the share FS(s), and offers its children f * ratio - rank
    improved   a pool's share is given to its children; those of a fair-share pool move on one at a time until it is used up

    example: root at fit factor 0.4, weights 2, 1, 1: suggestions 0.8, 0.4, 0.4

Section: docs/reference/fair-share-algorithm.md#14-distribution
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from headrace.resources import EPS
from headrace_fair_share.hdrf.arrays import (
    RESOURCES,
    ROUNDING,
    Bools,
    BrokenInvariant,
    Family,
    Floats,
    Ints,
    between,
    beyond,
    fits_into,
    ranges,
)
from headrace_fair_share.hdrf.functions.by_fit_factor import BreakpointStore
from headrace_fair_share.hdrf.functions.by_suggestion import within_limits
from headrace_fair_share.hdrf.functions.curves import FunctionStore
from headrace_fair_share.hdrf.input_arrays import Layout
from headrace_fair_share.hdrf.search import largest_each, largest_of_many
from headrace_fair_share.hdrf.weights import Offers

#: Tolerance when shares are compared with sums at breakpoints. The last bits of these sums differ from the last bits of sums over children,
#: so without the tolerance a child could miss a jump because of a rounding error in the last bit.
_ROUNDING: Final = 1e-14
#: Relative distance behind a breakpoint, a few last bits, at which a jump at this breakpoint has certainly been passed.
_BEHIND: Final = 1e-15
#: Largest number of fit factors of the root that are tried in one call of numpy. If the root has few children, the call takes no longer for
#: many fit factors than for one.
_MOST_TRIES: Final = 15
_FEWEST_TRIES: Final = 3
#: Largest product of the number of the root's children and the number of fit factors that are tried in one call.
_MOST_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class DetailedShares:
    """A fair share in three parts: what strong guarantees, integral guarantees and weights contribute."""

    strong: Floats
    integral: Floats
    weight_proportional: Floats


@dataclass(slots=True)
class Distribution:
    """Distributes shares from pools to their children, by the functions of the children. `breakpoints` is None unless in improved mode."""

    layout: Layout
    store: FunctionStore
    breakpoints: BreakpointStore | None
    fifo: Bools
    offers: Offers
    distribution_gap: bool
    #: Suggestion to every element in the last distribution from the root in standard mode.
    suggestions: Floats = field(init=False)

    def from_root(self, fit: float, below: Bools | None = None) -> Floats:
        """Distribute shares to all elements, with the root at the fit factor `fit`. Standard mode only.

        If `below` is given, only the children of the root that it marks pass their shares on. The shares below all other children of the
        root are 0.
        """
        shares, suggestions = self._blank()
        self.suggestions = suggestions
        top = self.layout.top
        if len(top.parents):
            offers = self.offers.at(top, np.array([fit]))
            suggestions[top.children] = offers
            shares[:, top.children] = self.store.shares_at(top.children, offers)
            shares[:, :1] = top.sum(shares[:, top.children])
            self._down(self._marked(top.children) if below is None else below.copy(), suggestions, shares)
        return shares

    def from_pools(self, pools: Ints, suggestion: float) -> Floats:
        """Distribute shares to these pools and everything below them, starting from the same suggestion to each of the pools. All other
        shares are 0.
        """
        shares, suggestions = self._blank()
        if not len(pools):
            return shares
        suggestions[pools] = suggestion
        shares[:, pools] = self.store.shares_at(pools, suggestions[pools])
        self._down(self._marked(pools), suggestions, shares)
        return shares

    def _blank(self) -> tuple[Floats, Floats]:
        return np.zeros((RESOURCES, self.layout.size)), np.zeros(self.layout.size)

    def _marked(self, elements: Ints) -> Bools:
        marks = np.zeros(self.layout.size, np.bool_)
        marks[elements] = True
        return marks

    def _down(self, given: Bools, suggestions: Floats, shares: Floats) -> None:
        """Distribute shares level by level, from the elements that already have a share (`given`) to everything below them."""
        for pools in self.layout.pool_levels:
            family = self.layout.children_of(pools[given[pools]])
            if not len(family.parents):
                continue
            given[family.children] = True
            if self.breakpoints is None:
                self._pass_on_suggestions(family, suggestions, shares)
            else:
                self._pass_on_shares(family, shares)
            want = shares[:, family.parents]
            if (family.sum(shares[:, family.children]) > want + EPS).any():
                raise BrokenInvariant("children were given more than their pool has")

    # --- standard mode: a suggestion goes down ----------------------------------------------------------------------

    def _pass_on_suggestions(self, family: Family, suggestions: Floats, shares: Floats) -> None:
        fit, want = self.store.fit_at(family.parents, suggestions[family.parents])
        offers, given = self._given(family, fit)
        tight = ~fits_into(family.sum(given), want + EPS)
        if tight.any():
            fit[tight] = self._largest_fit(family.only(tight), fit[tight], want[:, tight] + EPS)
            offers, given = self._given(family, fit)
        suggestions[family.children] = offers
        shares[:, family.children] = given

    def _given(self, family: Family, fit: Floats) -> tuple[Floats, Floats]:
        offers = self.offers.at(family, fit)
        return offers, self.store.shares_at(family.children, offers)

    def _largest_fit(self, family: Family, high: Floats, room: Floats) -> Floats:
        """Return for each parent the largest fit factor, at most `high`, with which the shares of its children together fit into `room`."""

        def holds(fit: Floats) -> Bools:
            return fits_into(family.sum(self._given(family, fit)[1]), room)

        return largest_each(high, holds)

    # --- improved mode: shares go down ------------------------------------------------------------------------------

    def _pass_on_shares(self, family: Family, shares: Floats) -> None:
        want = shares[:, family.parents]
        fifo = self.fifo[family.parents]
        for some, pass_on in ((fifo, self._one_after_another), (~fifo, self._one_move_at_a_time)):
            if some.any():
                part = family.only(some)
                given = pass_on(part, want[:, some] + _ROUNDING)
                if self.distribution_gap:
                    left = ~fits_into(want[:, some] - part.sum(given), np.full((RESOURCES, 1), EPS))
                    if left.any():
                        chosen = part.chosen(left)
                        given[:, chosen] = pass_on(part.only(left), want[:, some][:, left] + EPS)
                shares[:, part.children] = given

    def _one_after_another(self, family: Family, room: Floats) -> Floats:
        """Return the shares of the children of fifo pools: each child gets what it takes before the next child gets anything."""
        all_of_them = np.bincount(family.owner, minlength=len(family.parents)).astype(np.float64)
        fit = self._largest_fit(family, all_of_them, room)
        whole = np.floor(fit)
        return self._given(family, np.where(fit - whole < EPS, whole, fit))[1]

    def _one_move_at_a_time(self, family: Family, room: Floats) -> Floats:
        """Return the shares of the children of fair-share pools: move the children past the last breakpoint that fits into `room`, then
        towards the next breakpoint as far as `room` allows.
        """
        breakpoints = self.breakpoints
        assert breakpoints is not None
        pools = family.parents
        here = breakpoints.last_that_fits(pools, room)
        past = fits_into(breakpoints.right.take(here, axis=1), room)
        past &= here < breakpoints.first[pools] + breakpoints.count[pools] - 1
        following = np.where(past, here + 1, here)
        mover = family.spread(breakpoints.child[here])
        moved = (family.children < mover) | (family.spread(past) & (family.children == mover))
        low = self._at(family, breakpoints.x[here], moved)
        moving = family.children < family.spread(breakpoints.child[following])
        high = self._at(family, breakpoints.x[following], moving)
        start, end = family.sum(low), family.sum(high)
        over = past & (end > room)
        t = np.where(over, (room - start) / np.where(over, end - start, 1.0), 1.0).min(axis=0)
        t = np.where(past, np.clip(t, 0.0, 1.0), 0.0)
        t = np.where(t < EPS, 0.0, t)
        return between(low, high, family.spread(t))

    def _at(self, family: Family, x: Floats, right: Bools) -> Floats:
        """Return a one-sided limit of each child's function at the point `x` of its pool.

        It is the limit from the right where `right` is true, else from the left.
        """
        return self.store.limits_at(family.children, self.offers.ratio[family.children], family.spread(x), right)


def root_fit_factor(distribution: Distribution, guarantee: Floats, limits: Floats) -> float:
    """Find the maximal fit factor of the root at suggestion 1, without building the root's functions.

    It is the lower of two fit factors: the first at which some resource is 1 above its guarantee, and the last at which all limits hold.
    The sum of the children's shares never falls, so one search over the fit factor finds it. The search is needed because the sums at the
    lowest and highest fit factor do not show where in between the share of a resource begins to rise.
    """
    layout, store, offers = distribution.layout, distribution.store, distribution.offers
    children = len(layout.top.children)
    if not children:
        return 0.0
    tries = max(_FEWEST_TRIES, min(_MOST_TRIES, _MOST_AT_ONCE // children))
    # The family contains the root once for each of the fit factors that are tried in one call.
    family = layout.children_of(np.zeros(tries, np.int64))
    high = float(children) if distribution.fifo[0] else 1.0

    def together(fit: Floats) -> Floats:
        return family.sum(store.shares_at(family.children, offers.at(family, fit)))

    # The sums at both ends of the range are computed in one call. The call takes `tries` fit factors, so the upper end is repeated.
    ends = together(np.array([0.0, *[high] * (tries - 1)]))[:, :2]
    bounds = within_limits(ends[:, :1], ends[:, 1:], guarantee, limits)
    reached, ceiling = bounds[0] + 1.0, bounds[1] * (1.0 + ROUNDING)
    below = np.minimum(np.nextafter(reached, 0.0), ceiling)
    rooms = (below - ends).min(axis=0).tolist()
    fit = largest_of_many(high, rooms, lambda fit: (below - together(fit)).min(axis=0), tries)
    following = min(math.nextafter(fit, math.inf), high)
    touches = fits_into(together(np.full(tries, following))[:, :1], np.minimum(reached, ceiling))
    found = following if touches[0] else fit
    return found if found == high else _without_rounding(distribution, found, together, tries)


def root_breakpoints(distribution: Distribution) -> Floats:
    """Return the root's fit factors at which functions of its children bend or jump, unordered."""
    store, top, offers = distribution.store, distribution.layout.top, distribution.offers
    counts = store.count[top.children]
    suggestions = store.suggestion[ranges(store.first[top.children], counts)]
    return (suggestions + offers.rank[top.children].repeat(counts)) / offers.ratio[top.children].repeat(counts)


def _without_rounding(
    distribution: Distribution, fit: float, together: Callable[[Floats], Floats], tries: int
) -> float:
    """Return the last breakpoint up to `fit` if from this breakpoint to `fit` shares rise only by rounding errors. Otherwise return `fit`.

    If a resource is used up exactly, or guaranteed exactly, rounding may let the search exceed it a little. The search then ends a little
    behind the breakpoint at which more of that resource is wanted, and thus behind a jump that functions may have at this breakpoint. Going
    back to the breakpoint undoes this jump. It does little harm: shares are linear between two breakpoints, so if no share rises by more
    than `EPS` up to `fit`, less than `EPS` of each resource is lost.
    """
    at = root_breakpoints(distribution)
    # A breakpoint is a quotient and may be rounded up. Then a search that ended at this breakpoint may have found a fit factor that is
    # lower by one last bit. The comparison allows for that.
    last = min(float(at[at <= fit * (1.0 + _BEHIND)].max(initial=0.0)), fit)
    behind = min(last * (1.0 + _BEHIND), fit)
    both = together(np.array([behind, *[fit] * (tries - 1)]))
    return fit if (both[:, 1] - both[:, 0] > EPS).any() else last


def detailed_shares(layout: Layout, total: Floats, strong: Floats, proposed: Floats) -> DetailedShares:
    """Split shares into three parts: what the strong guarantee contributes, what the integral guarantee adds, and the rest, which is due to
    weights.

    strong part = min(share, strong), integral part = min(share - strong part, proposed), the rest is weight-proportional.
    """
    by_strong = np.minimum(total, strong)
    top = layout.top
    if len(top.parents):
        by_strong[:, :1] = np.minimum(total[:, :1], top.sum(by_strong[:, top.children]))
    by_integral = np.minimum(beyond(total, by_strong), proposed)
    return DetailedShares(by_strong, by_integral, beyond(total, by_strong + by_integral))
