"""Satisfaction ratios of all elements at once: usage over fair share in the resource that decides. Pure.

`headrace.satisfaction.local_satisfaction` states the same rule for one element. `tests/unit/fair_share/test_satisfaction.py` compares the
two. Shares are arrays of shape (5, elements).
"""

from __future__ import annotations

import numpy as np

from headrace.resources import EPS
from headrace.satisfaction import INFINITE_SATISFACTION
from headrace_fair_share.hdrf.arrays import Floats, Ints


def local_satisfaction_ratios(usage: Floats, fair: Floats, demand: Floats) -> Floats:
    """Return `headrace.satisfaction.local_satisfaction` of each element, for many elements at once."""
    owed = fair > 0.0
    ratio = np.minimum(usage / np.where(owed, fair, 1.0), INFINITE_SATISFACTION)
    more = np.where(owed, ratio, np.where(usage > 0.0, INFINITE_SATISFACTION, 0.0)).max(axis=0)
    least = np.where(owed, ratio, 1.0).min(axis=0)
    helps = fair < demand
    helped = np.where(helps & owed, ratio, 0.0).max(axis=0)
    ratios = np.where((usage > fair).any(axis=0), more, np.where(helps.any(axis=0), helped, least))
    return np.where(fair.max(axis=0) <= EPS, INFINITE_SATISFACTION, ratios)


def satisfaction_ratios(local: Floats, parent: Ints, pools: int) -> Floats:
    """Return the ratio of each element; for a pool the lowest ratio of all operations below it, infinite if it has none.

    Elements are the root, `pools` - 1 pools (parents before children), then operations. `parent` is the position of each element's parent,
    -1 for the root.
    """
    ratios = local.copy()
    ratios[:pools] = INFINITE_SATISFACTION
    np.minimum.at(ratios, parent[pools:], local[pools:])
    # Lists are used because reading an array element takes ten times as long, and there may be thousands of pools.
    of_pools, above = ratios[:pools].tolist(), parent[:pools].tolist()
    for place in range(pools - 1, 0, -1):
        if of_pools[place] < of_pools[above[place]]:
            of_pools[above[place]] = of_pools[place]
    ratios[:pools] = of_pools
    return ratios
