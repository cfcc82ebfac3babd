"""The option `max_schedulable_element_count_in_fifo_pool`, in short N. Pure.

The first N operations of a fifo pool, in the order of the pool, may be scheduled even without a fair share. Later operations are scheduled
only if they have a fair share.
"""

from __future__ import annotations

import math

import numpy as np

from headrace.ids import PoolName
from headrace.resources import EPS
from headrace_fair_share.hdrf.arrays import Bools, Floats, Ints
from headrace_fair_share.update.elements import Elements
from headrace_fair_share.update.update_facts import UpdateFacts


def within_fifo_count(cut: UpdateFacts, elements: Elements, pending: Bools, rank: Ints, fair_share: Floats) -> Bools:
    """Return False for operations without fair share that have too many operations before them in their fifo pool.

    Only operations with pending jobs count. `pending` is by position among the operations. `rank` is the position in the order of a fifo
    pool, -1 in other pools.
    """
    within = np.ones(len(pending), np.bool_)
    most = _most(cut, elements)
    if not np.isfinite(most).any():
        return within
    pool, rank = elements.parent[elements.pools :], rank[elements.pools :]
    limited = np.flatnonzero(pending & (rank >= 0) & np.isfinite(most[pool]))
    order = limited[np.lexsort((rank[limited], pool[limited]))]
    ahead = np.arange(len(order)) - np.searchsorted(pool[order], pool[order])
    beyond = order[ahead >= most[pool[order]]]
    within[beyond] = (fair_share[:, elements.pools + beyond] > EPS).any(axis=0)
    return within


def _most(cut: UpdateFacts, elements: Elements) -> Floats:
    """Return `max_schedulable_element_count_in_fifo_pool` of each pool; infinite if there is no limit."""
    of_tree = cut.pools.options.max_schedulable_element_count_in_fifo_pool
    most = np.full(elements.pools, math.inf if of_tree is None else of_tree)
    for place, name in enumerate(elements.names[: elements.configured]):
        own = cut.pools.settings(PoolName(name)).max_schedulable_element_count_in_fifo_pool
        if own is not None:
            most[place] = own
    return most
