"""Attributes of a pool that decide how its operations get allocations: starvation, preemption and placing."""

from __future__ import annotations

from typing import Final

from headrace.pools.attributes.kinds import Choice, Duration, Flag, Formula, Number
from headrace.pools.attributes.map_kinds import ResourceAmounts
from headrace.pools.attributes.schema import Attribute, Support, Who
from headrace.pools.pool_config import FifoPoolSchedulingOrder, PreemptionSwitch

_ADMIN: Final = Who.ADMINISTRATOR
_KEPT: Final = Support.KEPT
_PARENT: Final = "that of the parent"

PREEMPTION: Final = [
    Attribute(
        "preemption",
        Choice(PreemptionSwitch),
        "allocations below it are taken back for others; with observe it is decided and recorded, and nothing is taken",
        _PARENT,
        who=_ADMIN,
        preset=True,
    ),
    Attribute(
        "fair_share_starvation_timeout",
        Duration(),
        "how long below its fair share until it starves",
        _PARENT,
        who=_ADMIN,
        aliases=("fair_share_preemption_timeout",),
        preset=True,
    ),
    Attribute(
        "fair_share_starvation_tolerance",
        Number(0, 1),
        "the part of its fair share that counts as having it",
        _PARENT,
        who=_ADMIN,
        preset=True,
    ),
    Attribute(
        "min_share_preemption_timeout",
        Duration(),
        "how long below its strong guarantee until it starves",
        _PARENT,
        who=_ADMIN,
        aliases=("min_share_starvation_timeout",),
        preset=True,
    ),
    Attribute(
        "enable_aggressive_starvation",
        Flag(),
        "starves aggressively after the tree's aggressive timeout",
        _PARENT,
        who=_ADMIN,
        preset=True,
    ),
    Attribute(
        "allow_aggressive_preemption",
        Flag(),
        "its allocations may be taken for those that starve aggressively",
        "that of the parent; true at the root",
        who=_ADMIN,
        aliases=("allow_aggressive_starvation_preemption",),
        preset=True,
    ),
    Attribute(
        "allow_normal_preemption",
        Flag(),
        "its allocations may be taken for operations that starve",
        "true",
        who=_ADMIN,
        preset=True,
    ),
    Attribute(
        "preemption_exempt_time",
        Duration(),
        "how long a job below it runs before it may have to make room for others; 0s: it may at once",
        _PARENT,
        who=_ADMIN,
        preset=True,
    ),
    Attribute(
        "non_preemptible_resource_usage_threshold",
        ResourceAmounts(),
        "use up to which nothing is taken from an operation; replaces the parent's as a whole",
        _PARENT,
        who=_ADMIN,
        preset=True,
    ),
    Attribute(
        "waiting_for_resources_on_node_timeout",
        Duration(),
        "how long an allocation may wait on its node for room",
        _PARENT,
        who=_ADMIN,
        aliases=("waiting_job_timeout",),
        preset=True,
    ),
    Attribute(
        "allow_preemption_from",
        Flag(),
        "under a YARN policy: allocations may be taken from here; false holds for all below",
        "true",
        who=_ADMIN,
        preset=True,
    ),
]
PLACING: Final = [
    Attribute(
        "fifo_pool_scheduling_order",
        Choice(FifoPoolSchedulingOrder),
        "the order in which a fifo pool's operations are offered resources",
        _PARENT,
        who=_ADMIN,
    ),
    Attribute(
        "use_pool_satisfaction_for_scheduling",
        Flag(),
        "children are offered resources by their satisfaction as pools",
        _PARENT,
        who=_ADMIN,
    ),
    Attribute(
        "resource_limits_overcommit_tolerance",
        ResourceAmounts(),
        "amounts by which preemptive stages may pass its limits",
        "none",
        who=_ADMIN,
    ),
    Attribute(
        "scheduling_tag_filter",
        Formula(),
        "nodes on which its operations run",
        "all nodes",
        who=_ADMIN,
        aliases=("scheduling_tag",),
    ),
    Attribute(
        "allow_regular_allocations_on_ssd_nodes",
        Flag(),
        "its operations may run on nodes with SSD, which the tree's ssd_priority_preemption names",
        "that of the parent; true at the root",
        who=_ADMIN,
        preset=True,
    ),
    Attribute(
        "enable_priority_scheduling_segment_module_assignment",
        Flag(),
        "comes first when segments are dealt out; here there are none",
        "false",
        who=_ADMIN,
        support=Support.ABSENT,
    ),
]
