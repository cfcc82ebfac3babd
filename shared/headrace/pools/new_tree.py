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
    # The default leaves the last core of a small host idle.
    "min_spare_allocation_resources_on_node": {"user_slots": 1},
    # By default one job of a gang is taken like any other, though all of the gang is lost by it. Two gangs that cannot run together then
    # preempt each other for ever.
    "preempt_gangs_whole": True,
}
