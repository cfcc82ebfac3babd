"""The preemption priority of each operation, which follows from starvation. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.pools.tree_options import PriorityScope
from headrace.wire.snapshots import PreemptionPriority
from headrace_fair_share.hdrf.arrays import Bools, Ints

#: Priorities by code. Each code equals the code of the starvation status that causes the priority.
PREEMPTION_PRIORITY: Final = tuple(PreemptionPriority)


def preemption_priorities(starvation: Ints, schedulable: Bools, parent: Ints, pools: int, scope: PriorityScope) -> Ints:
    """Return the priority of each operation: by its own starvation, or by the strongest starvation on its path to the root.

    Elements are the root, `pools` - 1 pools (parents before children), then operations. `parent` is the position of each element's parent,
    -1 for the root.
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
