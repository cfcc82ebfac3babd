"""A tree in which the function of a pool is a little lower than the sum of its children, as rounding may leave it."""

from __future__ import annotations

import msgspec
import numpy as np

from headrace.pools import PoolMode
from headrace.resources import Resources
from headrace_fair_share.hdrf.model import OperationInput, PoolInput, TreeInput, UpdateOptions
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from tests.support.update_result import result_of

__all__ = ["share_of_a_gang_in_a_pool_that_is_short_by"]

TOTAL = Resources(user_slots=100, cpu=10_000)


def share_of_a_gang_in_a_pool_that_is_short_by(
    short: float, options: UpdateOptions, mode: PoolMode = PoolMode.FAIR_SHARE
) -> float:
    """The share of a gang of 60 % in a pool whose function says so much less."""
    tree = TreeInput(
        total=TOTAL,
        options=options,
        pools=[PoolInput(name="p", parent=-1, mode=mode), PoolInput(name="other", parent=-1)],
        operations=[
            OperationInput(name="gang", pool=0, demand=Resources(cpu=6_000), gang=True),
            OperationInput(name="x", pool=1, demand=Resources(cpu=1_000)),
        ],
    )
    updater = TreeUpdater(builds_always=True)
    pool = int(updater.update(tree).layout.of_pool[0])
    assert updater.functions is not None
    store = updater.functions.store
    points = slice(store.first[pool], store.first[pool] + store.count[pool])
    store.shares[:, points] = np.maximum(store.shares[:, points] - short, 0.0)
    # The function of the pool stays as it is: nothing in it changes, but something beside it does.
    less = msgspec.structs.replace(tree.operations[1], demand=Resources(cpu=500))
    shares = updater.update(msgspec.structs.replace(tree, operations=[tree.operations[0], less]))
    return result_of(shares).operations["gang"].fair_share[1]
