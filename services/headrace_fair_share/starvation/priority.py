"""The place of each operation in preemptive stages, by what starves. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.pools.tree_options import PriorityScope
from headrace.wire.snapshots import PreemptionPriority
from headrace_fair_share.hdrf.arrays import Bools, Ints

#: Codes of priorities are places here; each is that of the starvation which gives it.
PREEMPTION_PRIORITY: Final = tuple(PreemptionPriority)


def preemption_priorities(starvation: Ints, schedulable: Bools, parent: Ints, pools: int, scope: PriorityScope) -> Ints:
    """Returns priorities of operations by their own starvation, or the strongest on the way to the root.

    Elements are the root, `pools` - 1 pools with parents before children, then operations. `parent` is each one's place, the root's -1.
    """
    priority = starvation.copy()
    if not starvation.any():
        return priority
    if scope is PriorityScope.OPERATION_AND_ANCESTORS:
        for place in range(1, pools):
            priority[place] = max(priority[place], priority[parent[place]])
        priority[pools:] = np.maximum(priority[pools:], priority[parent[pools:]])
    priority[~schedulable] = 0
    priority[:pools] = 0
    return priority
