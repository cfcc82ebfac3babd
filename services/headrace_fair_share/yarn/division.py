"""Divides one resource among the children of each parent, for many parents at once.

Every child gets `weight * ratio`, but at least its minimum and at most its maximum. The ratio is the same for all children of a parent, and
is chosen so that their shares add up to the parent's amount. It is found by bisection, and the upper end of the final interval is used. If
no ratio gives the exact amount, the shares therefore add up to slightly more. Minimums are granted even if there is not enough for all.

    10240 over three equal children is 3414 for each

Source: Hadoop's `ComputeFairShares`, as section 3.2 and 3.3 of the specification describes it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace_fair_share.hdrf.arrays import Bools, Floats, Ints

_HALVINGS: Final = 25


def divided(amounts: Ints, owner: Ints, weight: Floats, least: Ints, most: Ints, active: Bools) -> Ints:
    """Return the share of every child. `amounts` has one number per parent, the other arrays have one per child.

    `owner` is the position of a child's parent; children of one parent are consecutive. A child that is not active gets nothing. A child
    without weight gets its minimum.
    """
    most = np.maximum(most, 0)
    fixed = ~active | (weight <= 0.0) | (most == 0)
    shares = np.where(fixed, np.where(active & (most > 0), least, 0), 0)
    taken = np.bincount(owner, shares, len(amounts))
    left = np.maximum(0, amounts - taken.astype(np.int64))
    rest = np.flatnonzero(~fixed)
    if len(rest):
        shares[rest] = _by_ratio(left, owner[rest], weight[rest], least[rest], most[rest])
    return shares


def _by_ratio(left: Ints, owner: Ints, weight: Floats, least: Ints, most: Ints) -> Ints:
    """Return the shares of children whose weight is positive: weight times ratio, between minimum and maximum."""
    parents = len(left)
    floor, cap = least.astype(np.float64), most.astype(np.float64)

    def at(ratio: Floats) -> Floats:
        return np.trunc(np.minimum(np.maximum(weight * ratio[owner], floor), cap))

    def together(ratio: Floats) -> Floats:
        return np.asarray(np.bincount(owner, at(ratio), parents))

    # A maximum above the amount to divide counts as that amount. Otherwise the maximums of very many children without a limit would
    # overflow when they are added.
    wanted = np.minimum(left, np.bincount(owner, np.minimum(most, left[owner]), parents))
    upper = np.ones(parents)
    while (short := together(upper) < wanted).any():
        upper[short] *= 2.0
    lower, sought = np.zeros(parents), np.ones(parents, np.bool_)
    for _ in range(_HALVINGS):
        middle = (lower + upper) / 2.0
        sums = together(middle)
        lower = np.where(sought & (sums < wanted), middle, lower)
        upper = np.where(sought & (sums >= wanted), middle, upper)
        sought &= sums != wanted
        if not sought.any():
            break
    return at(upper).astype(np.int64)
