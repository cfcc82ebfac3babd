"""Do elements have what they are owed: the momentary scheduling status and satisfaction ratios, of all elements side by side; pure.

Shares are arrays of shape (5, elements), resources in the order of `headrace.resources.RESOURCE_NAMES`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.resources import EPS
from headrace.satisfaction import INFINITE_SATISFACTION
from headrace_fair_share.hdrf.arrays import Bools, Floats, Ints

__all__ = ["NEARLY", "below_fair_share", "local_satisfaction_ratios", "owed_everything", "satisfaction_ratios"]

#: An operation whose fair share comes this near to its demand is owed its whole demand.
NEARLY: Final = 1e-4


def owed_everything(fair: Floats, demand: Floats) -> Bools:
    """Where the fair share covers the demand in every resource."""
    return np.asarray((fair + NEARLY >= demand).all(axis=0))


def below_fair_share(
    usage: Floats, fair: Floats, demand: Floats, tolerance: Floats | float, is_operation: Bools
) -> Bools:
    """Which elements have less than they are owed, with some tolerance; an operation that is owed its whole demand has none.

    Short is who is strictly below in every resource in which more fair share would help; in any, if it would help in none.
    """
    whole = is_operation & owed_everything(fair, demand)
    bound = np.minimum(np.where(whole, 1.0, tolerance) * fair, demand)
    above, helps = bound > usage, fair < demand
    return np.where(helps.any(axis=0), (above | ~helps).all(axis=0), above.any(axis=0))


def local_satisfaction_ratios(usage: Floats, fair: Floats, demand: Floats) -> Floats:
    """Usage over fair share of each element: `headrace.satisfaction.local_satisfaction`, for many at once."""
    owed = fair > 0.0
    ratio = np.minimum(usage / np.where(owed, fair, 1.0), INFINITE_SATISFACTION)
    more = np.where(owed, ratio, np.where(usage > 0.0, INFINITE_SATISFACTION, 0.0)).max(axis=0)
    least = np.where(owed, ratio, 1.0).min(axis=0)
    helps = fair < demand
    helped = np.where(helps & owed, ratio, 0.0).max(axis=0)
    ratios = np.where((usage > fair).any(axis=0), more, np.where(helps.any(axis=0), helped, least))
    return np.where(fair.max(axis=0) <= EPS, INFINITE_SATISFACTION, ratios)


def satisfaction_ratios(local: Floats, parent: Ints, pools: int) -> Floats:
    """An operation's own ratio; of a pool the least of all operations below it, infinite where there are none.

    Elements are the root, `pools` - 1 pools with parents before children, then operations; `parent` is each one's place, the root's -1.
    """
    ratios = local.copy()
    ratios[:pools] = INFINITE_SATISFACTION
    np.minimum.at(ratios, parent[pools:], local[pools:])
    for place in range(pools - 1, 0, -1):
        above = parent[place]
        ratios[above] = min(ratios[above], ratios[place])
    return ratios
