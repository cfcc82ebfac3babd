"""Options of every tree that `headrace up` or `headrace tree create` makes, unless they are given other values.

They differ from the defaults of these options in the code, which are those of the published scheduler (YTsaurus).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

NEW_TREE_OPTIONS: Final[Mapping[str, Any]] = {
    # Pools are ordered by their own satisfaction. If they were ordered by their least satisfied operation, a pool of many small operations
    # would always come first, because one of its operations always has nothing.
    "use_pool_satisfaction_for_scheduling": True,
    "fifo_pool_scheduling_order": "fifo",
    # Without reservations, jobs that need a whole node never start beside a stream of small jobs.
    "node_reservation_time": "1h",
    # If failing nodes were not held back, a host on which every job fails at once would take one job after the other,
    # until their operations fail.
    "hold_back_failing_nodes": True,
    # With this timeout a pool gets its guarantee in full within half a minute, even if other operations hold the
    # resources with jobs that are nearly as large as their fair share.
    "min_share_preemption_timeout": "30s",
    "preempt_at_bound_for_owed_jobs": True,
    # With the default, an operation that can run on few nodes could starve for ever. Only the youngest allocations of
    # an operation that has more than its share may be preempted, and the youngest allocations may all be on nodes that
    # the starving operation cannot use.
    "take_excess_for_few_nodes": True,
    # With the default, which also demands spare cpu, the last core of a small host stays idle.
    "min_spare_allocation_resources_on_node": {"user_slots": 1},
    # If a single job of a gang could be preempted, which is the default, two gangs that do not fit together would
    # preempt each other for ever: each gang loses all its jobs whenever the other gang starves.
    "preempt_gangs_whole": True,
}
