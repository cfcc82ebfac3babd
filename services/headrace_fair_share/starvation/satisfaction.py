"""Satisfaction ratios of all elements side by side: usage over fair share by the resource that tells most. Pure.

`headrace.satisfaction.local_satisfaction` states the same rule for one element. `tests/unit/fair_share/test_satisfaction.py` holds the two
together. Shares are arrays of shape (5, elements).
"""

from __future__ import annotations

import numpy as np

from headrace.resources import EPS
from headrace.satisfaction import INFINITE_SATISFACTION
from headrace_fair_share.hdrf.arrays import Floats, Ints


def local_satisfaction_ratios(usage: Floats, fair: Floats, demand: Floats) -> Floats:
    """`headrace.satisfaction.local_satisfaction` of each element, for many at once."""
    owed = fair > 0.0
    ratio = np.minimum(usage / np.where(owed, fair, 1.0), INFINITE_SATISFACTION)
    more = np.where(owed, ratio, np.where(usage > 0.0, INFINITE_SATISFACTION, 0.0)).max(axis=0)
    least = np.where(owed, ratio, 1.0).min(axis=0)
    helps = fair < demand
    helped = np.where(helps & owed, ratio, 0.0).max(axis=0)
    ratios = np.where((usage > fair).any(axis=0), more, np.where(helps.any(axis=0), helped, least))
    return np.where(fair.max(axis=0) <= EPS, INFINITE_SATISFACTION, ratios)


def satisfaction_ratios(local: Floats, parent: Ints, pools: int) -> Floats:
    """Returns the ratio of each element, for a pool the least of all operations below it. Without any it is infinite.

    Elements are the root, `pools` - 1 pools with parents before children, then operations. `parent` is each one's place, the root's -1.
    """
    ratios = local.copy()
    ratios[:pools] = INFINITE_SATISFACTION
    np.minimum.at(ratios, parent[pools:], local[pools:])
    # As lists: to look into an array costs ten times as much, and there may be thousands of pools.
    of_pools, above = ratios[:pools].tolist(), parent[:pools].tolist()
    for place in range(pools - 1, 0, -1):
        if of_pools[place] < of_pools[above[place]]:
            of_pools[above[place]] = of_pools[place]
    ratios[:pools] = of_pools
    return ratios
