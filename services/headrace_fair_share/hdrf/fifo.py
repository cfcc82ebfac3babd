"""Orders the operations of fifo pools, and for an update changes the order so that more of a pool's guarantee is used.

    guarantee 0.4; a takes 0.3, the waiting gang b needs 0.3, c takes 0.1: the order is a, c, b

Section: docs/reference/fair-share-algorithm.md#9-the-order-of-a-fifo-pool
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.pools import FifoSortParameter
from headrace.resources import EPS
from headrace_fair_share.hdrf.arrays import RESOURCES, Bools, Floats, Ints, fits_into
from headrace_fair_share.hdrf.input_arrays import Layout, OperationArrays, PoolArrays
from headrace_fair_share.hdrf.model import PoolInput


def fifo_indices(layout: Layout, pools: PoolArrays, given: Sequence[PoolInput], operations: OperationArrays) -> Ints:
    """Order the operations of every fifo pool by the sort keys of the pool. Return the position of each operation in its pool, from 0 on,
    and -1 for all other elements.
    """
    ranks = np.full(layout.size, -1, np.int64)
    in_pool = layout.parent[layout.of_operation]
    for keys in dict.fromkeys(pool.fifo_sort for pool in given):
        alike = np.zeros(layout.size, np.bool_)
        alike[layout.of_pool[[pool.fifo_sort == keys for pool in given]]] = True
        members = np.flatnonzero((alike & pools.fifo)[in_pool])
        columns = [_column(key, operations)[members] for key in reversed(keys)]
        order = members[np.lexsort((*columns, in_pool[members]))]  # equal operations keep their input order
        numbers = layout.of_operation[order]
        ranks[numbers] = _places_in_row(in_pool[order])
    return ranks


def effective_fifo_indices(
    layout: Layout,
    pools: PoolArrays,
    ranks: Ints,
    strong: Floats,
    limits: Floats,
    demand: Floats,
    usage: Floats,
    gang: Bools,
) -> Ints:
    """Move a gang behind the other operations of its pool if it does not run yet and does not fit into the rest of the pool's guarantee.

    This is done only in pools that are configured for it and have a guarantee. Returns the new position of each operation; -1 for
    operations of pools whose order stays.
    """
    changed = np.full(layout.size, -1, np.int64)
    asking = np.flatnonzero(pools.fifo & pools.gang_steps & pools.reorders & (strong > EPS).any(axis=0))
    for pool in asking.tolist():
        members = np.arange(layout.first_child[pool], layout.end_child[pool])
        order = members[np.argsort(ranks[members])]
        own, wanted = limits[:, order], demand[:, order]
        held_back = gang[order] & ~fits_into(wanted, own)
        need = np.where(held_back, 0.0, np.minimum(wanted, own))
        taken = _taken(strong[:, pool], need, gang[order], ~fits_into(usage[:, order], np.zeros((RESOURCES, 1))))
        after = np.concatenate((order[taken], order[~taken]))
        if (after != order).any():
            changed[after] = np.arange(len(after))
    return changed


def _taken(strong: Floats, need: Floats, gang: Bools, running: Bools) -> Bools:
    """Return True for the operations that fit into their pool's guarantee. The operations take their part of the guarantee from first to
    last, and waiting gangs that do not fit are skipped.
    """
    room, used = strong + EPS, np.zeros_like(strong)
    taken = np.zeros(len(gang), np.bool_)
    for place in range(len(gang)):
        fits = bool((room >= used + need[:, place]).all())
        if gang[place] and not running[place] and not fits:
            continue
        taken[place] = True
        used = used + need[:, place]
        if not fits and not gang[place]:
            break
    return taken


def _column(key: FifoSortParameter, operations: OperationArrays) -> Floats | Ints:
    match key:
        case FifoSortParameter.WEIGHT:
            return -operations.weight
        case FifoSortParameter.START_TIME:
            return operations.start_time_ms
        case FifoSortParameter.PENDING_JOB_COUNT:
            return operations.pending_jobs


def _places_in_row(owner: Ints) -> Ints:
    """Number the elements in each sequence of equal owners: 0, 1, 2, ..."""
    if not len(owner):
        return owner
    begins = np.concatenate(([True], owner[1:] != owner[:-1]))
    first = np.flatnonzero(begins)
    places: Ints = np.arange(len(owner)) - first[np.cumsum(begins) - 1]
    return places
