"""Attributes of a pool that decide how its operations get allocations: starvation, preemption and placing."""

from __future__ import annotations

from typing import Final

from headrace.pools.attributes.kinds import Choice, Duration, Flag, Formula, Number
from headrace.pools.attributes.map_kinds import ResourceAmounts
from headrace.pools.attributes.schema import Attribute, Support, Who
from headrace.pools.pool_config import FifoPoolSchedulingOrder, PreemptionSwitch

_ADMIN: Final = Who.ADMINISTRATOR
_PARENT: Final = "the parent's value"

PREEMPTION: Final = [
    Attribute(
        "preemption",
        Choice(PreemptionSwitch),
        "allocations below it may be preempted; observe: preemptions are decided and recorded, but not carried out",
        _PARENT,
        who=_ADMIN,
        preset=True,
    ),
    Attribute(
        "fair_share_starvation_timeout",
        Duration(),
        "how long it must be below its fair share before it starves",
        _PARENT,
        who=_ADMIN,
        aliases=("fair_share_preemption_timeout",),
        preset=True,
    ),
    Attribute(
        "fair_share_starvation_tolerance",
        Number(0, 1),
        "the fraction of its fair share that is enough not to starve",
        _PARENT,
        who=_ADMIN,
        preset=True,
    ),
    Attribute(
        "min_share_preemption_timeout",
        Duration(),
        "how long it must be below its strong guarantee before it starves",
        _PARENT,
        who=_ADMIN,
        aliases=("min_share_starvation_timeout",),
        preset=True,
    ),
    Attribute(
        "enable_aggressive_starvation",
        Flag(),
        "it starves aggressively after the tree's aggressive timeout",
        _PARENT,
        who=_ADMIN,
        preset=True,
    ),
    Attribute(
        "allow_aggressive_preemption",
        Flag(),
        "its allocations may be preempted for elements that starve aggressively",
        "the parent's value; true at the root",
        who=_ADMIN,
        aliases=("allow_aggressive_starvation_preemption",),
        preset=True,
    ),
    Attribute(
        "allow_normal_preemption",
        Flag(),
        "its allocations may be preempted for starving operations",
        "true",
        who=_ADMIN,
        preset=True,
    ),
    Attribute(
        "preemption_exempt_time",
        Duration(),
        "how long a job below it runs before it may be preempted; 0s: it may be preempted at once",
        _PARENT,
        who=_ADMIN,
        preset=True,
    ),
    Attribute(
        "non_preemptible_resource_usage_threshold",
        ResourceAmounts(),
        "usage up to which nothing is preempted from an operation; replaces the parent's value as a whole",
        _PARENT,
        who=_ADMIN,
        preset=True,
    ),
    Attribute(
        "waiting_for_resources_on_node_timeout",
        Duration(),
        "how long an allocation may wait on its node for free resources",
        _PARENT,
        who=_ADMIN,
        aliases=("waiting_job_timeout",),
        preset=True,
    ),
    Attribute(
        "allow_preemption_from",
        Flag(),
        "under a YARN policy: allocations below it may be preempted; false applies to all pools below",
        "true",
        who=_ADMIN,
        preset=True,
    ),
]
PLACING: Final = [
    Attribute(
        "fifo_pool_scheduling_order",
        Choice(FifoPoolSchedulingOrder),
        "order in which a fifo pool's operations are offered resources",
        _PARENT,
        who=_ADMIN,
    ),
    Attribute(
        "use_pool_satisfaction_for_scheduling",
        Flag(),
        "child pools are offered resources by their own satisfaction",
        _PARENT,
        who=_ADMIN,
    ),
    Attribute(
        "resource_limits_overcommit_tolerance",
        ResourceAmounts(),
        "amounts by which preemptive stages may exceed its limits",
        "none",
        who=_ADMIN,
    ),
    Attribute(
        "scheduling_tag_filter",
        Formula(),
        "nodes on which its operations may run",
        "all nodes",
        who=_ADMIN,
        aliases=("scheduling_tag",),
    ),
    Attribute(
        "allow_regular_allocations_on_ssd_nodes",
        Flag(),
        "its operations may run on the nodes with SSD that the tree's ssd_priority_preemption names",
        "the parent's value; true at the root",
        who=_ADMIN,
        preset=True,
    ),
    Attribute(
        "enable_priority_scheduling_segment_module_assignment",
        Flag(),
        "it comes first when segments are assigned",
        "false",
        who=_ADMIN,
        support=Support.ABSENT,
        reason="nodes have no data centres and network modules, so there are no segments",
    ),
]
