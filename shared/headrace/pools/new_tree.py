"""Options that every tree gets which is made by `headrace up` or `headrace tree create`, where they say nothing else.

The defaults in code are those of the published scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

NEW_TREE_OPTIONS: Final[Mapping[str, Any]] = {
    # Pools are given room by what they have themselves. By their best operation alone, a pool of many small operations comes first for
    # ever, since one of them always has nothing.
    "use_pool_satisfaction_for_scheduling": True,
    "fifo_pool_scheduling_order": "fifo",
    # Else jobs that need a whole node never start beside a stream of small ones.
    "node_reservation_time": "1h",
    # A guarantee is had in full, and within half a minute, also where others hold it with jobs that are nearly as large as their share.
    "min_share_preemption_timeout": "30s",
    "preempt_at_bound_for_owed_jobs": True,
    # An operation that can run on some nodes only could starve for ever: what others have too much is their youngest jobs, which may all
    # be elsewhere.
    "take_excess_for_few_nodes": True,
    # The default leaves the last core of a small host idle.
    "min_spare_allocation_resources_on_node": {"user_slots": 1},
    # By default one job of a gang is taken like any other, though all of the gang is lost by it. Two gangs that cannot run together then
    # preempt each other for ever.
    "preempt_gangs_whole": True,
}
