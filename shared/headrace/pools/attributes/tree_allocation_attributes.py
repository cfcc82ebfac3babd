"""Options of a tree that decide how operations get allocations: starvation, preemption, order, limits and usage."""

from __future__ import annotations

from typing import Final

from headrace.pools.attributes.kinds import Choice, Duration, Flag, Formula, Number, Whole, Words
from headrace.pools.attributes.map_kinds import Data, ResourceAmounts
from headrace.pools.attributes.schema import Attribute, Record, Schema, Support
from headrace.pools.pool_config import FifoPoolSchedulingOrder, PreemptionSwitch
from headrace.pools.tree_options import (
    BatchScheduling,
    MinShareSpread,
    PreemptionPolicy,
    PriorityScope,
    ShareModel,
    SsdNodes,
    VictimRules,
    YarnOptions,
)

_ABSENT: Final = Support.ABSENT
_MET: Final = Support.MET

_BATCH: Final = Schema(
    BatchScheduling,
    [
        Attribute("batch_size", Whole(1), "operations that are considered together"),
        Attribute(
            "fallback_min_spare_allocation_resources",
            ResourceAmounts(),
            "free resources of a node below which the other operations are skipped",
        ),
    ],
)
_SSD: Final = Schema(
    SsdNodes,
    [
        Attribute("enable", Flag(), "nodes with SSD are distinguished from other nodes"),
        Attribute("node_tag_filter", Formula(), "the nodes with SSD", "none"),
        Attribute(
            "media",
            Words(what="media"),
            "jobs that need such a medium come first there",
            support=_ABSENT,
            reason="no job can ask for a medium",
        ),
    ],
)
_YARN: Final = Schema(
    YarnOptions,
    [
        Attribute("enabled", Flag(), "under a YARN policy: allocations may be preempted at all"),
        Attribute(
            "share",
            Choice(ShareModel),
            "under a YARN policy: yarn: shares as YARN's drf divides them, whatever the demand; native: the tree's shares",
        ),
        Attribute(
            "memory_only",
            Flag(),
            "with YARN's shares: only memory is divided in the whole tree, as YARN's policy fair does",
        ),
        Attribute(
            "cluster_utilization_threshold",
            Number(0, 1),
            "preemption begins when more than this fraction of the cluster's memory or cpu is in use",
        ),
        Attribute(
            "wait_before_kill",
            Duration(),
            "time from the signal to the kill; under yarn_legacy: how long a container is warned before the signal",
        ),
        Attribute(
            "heartbeat_allowance",
            Duration(),
            "added to wait_before_kill and wait_before_next_check; after a preemption for it an operation pauses for the sum",
        ),
        Attribute(
            "wait_before_next_check",
            Duration(),
            "another part of this pause",
        ),
        Attribute("legacy_interval", Duration(), "under yarn_legacy: the least time between two rounds of preemption"),
        Attribute(
            "min_share_spread",
            Choice(MinShareSpread),
            "how a queue's shortage is spread: intended: the last operation gets the rest; yarn: what YARN charges it with",
        ),
        Attribute(
            "drf_needy_quirk",
            Flag(),
            "under yarn_legacy: a queue's minimum is compared with its sibling's usage instead of its own, as in YARN",
        ),
        Attribute(
            "older_release",
            Flag(),
            "under yarn: a queue that falls below its minimum starves at once, as in Hadoop 2.9 to 3.1; under yarn_legacy: "
            "shortages compare memory only, and a round ends at a queue that has nothing above its share, as in 2.6 and 2.7",
        ),
    ],
)
STARVATION: Final = [
    Attribute(
        "fair_share_starvation_timeout",
        Duration(),
        "how long an element must be below its fair share before it starves",
        aliases=("fair_share_preemption_timeout",),
    ),
    Attribute(
        "fair_share_aggressive_starvation_timeout",
        Duration(),
        "how long before it starves aggressively; not below fair_share_starvation_timeout",
    ),
    Attribute(
        "fair_share_starvation_tolerance",
        Number(0, 1),
        "the fraction of its fair share that is enough not to starve",
    ),
    Attribute(
        "min_share_preemption_timeout",
        Duration(),
        "how long a pool must be below its strong guarantee before it starves",
        "never",
        aliases=("min_share_starvation_timeout",),
    ),
    Attribute("enable_aggressive_starvation", Flag(), "elements may starve aggressively"),
    Attribute("enable_pool_starvation", Flag(), "pools may starve, not only operations"),
    Attribute(
        "allocation_count_preemption_timeout_coefficient",
        Number(1, 1e6),
        "operations with fewer jobs than this have shorter timeouts",
        aliases=("job_count_preemption_timeout_coefficient",),
    ),
    Attribute(
        "enable_absolute_fair_share_starvation_tolerance",
        Flag(),
        "no element starves for less than one job",
    ),
    Attribute(
        "scheduling_preemption_priority_scope",
        Choice(PriorityScope),
        "the elements whose starvation decides an operation's preemption priority",
    ),
]
PREEMPTION: Final = [
    Attribute(
        "preemption",
        Choice(PreemptionSwitch),
        "allocations may be preempted; observe: preemptions are decided and recorded, but not carried out",
    ),
    Attribute(
        "preemption_policy",
        Choice(PreemptionPolicy),
        "the rules that divide shares, decide what starves, and choose victims",
    ),
    Attribute("yarn", Record(_YARN), "further options for the YARN policies"),
    Attribute(
        "preemption_satisfaction_threshold",
        Number(0, 1e6, above=True),
        "an operation is preempted down to this fraction of its fair share",
    ),
    Attribute(
        "aggressive_preemption_satisfaction_threshold",
        Number(0, 1e6),
        "the same for elements that starve aggressively; not above preemption_satisfaction_threshold",
    ),
    Attribute(
        "preemption_exempt_time",
        Duration(),
        "how long a job runs before it may be preempted",
    ),
    Attribute(
        "non_preemptible_resource_usage_threshold",
        ResourceAmounts(),
        "usage up to which nothing is preempted from an operation",
        "none",
    ),
    Attribute(
        "max_unpreemptible_running_allocation_count",
        Whole(),
        "the same in user_slots, under its former name",
        "none",
        aliases=("max_unpreemptible_running_job_count", "max_unpreemptable_running_job_count"),
    ),
    Attribute(
        "consider_allocation_on_fair_share_bound_preemptible",
        Flag(),
        "the allocation that crosses the border of the fair share may be preempted",
    ),
    Attribute(
        "preempt_at_bound_for_owed_jobs",
        Flag(),
        "the same, but only for a job within its operation's fair share, and from operations above their own fair share",
    ),
    Attribute(
        "allow_aggressive_preemption_for_gang_operations",
        Flag(),
        "gangs may be preempted for elements that starve aggressively",
    ),
    Attribute(
        "preempt_gangs_whole",
        Flag(),
        "gangs are preempted as a whole, for an element that is owed all their resources; and for a gang only if it then starts",
    ),
    Attribute("preemptive_scheduling_backoff", Duration(), "time between two preemptive attempts on one node"),
    Attribute(
        "allocation_preemption_timeout",
        Duration(),
        "time from the interruption of a job until it is killed",
        aliases=("job_interrupt_timeout",),
    ),
    Attribute(
        "allocation_graceful_preemption_timeout",
        Duration(),
        "the same for operations that ask for a graceful end",
        aliases=("job_graceful_interrupt_timeout",),
    ),
    Attribute(
        "allow_preemption_from_starving_operations", Flag(), "allocations of starving operations may be preempted too"
    ),
    Attribute("victim_rules", Choice(VictimRules), "the version of the scheduler whose rules choose victims"),
    Attribute("drop_needless_victims", Flag(), "a chosen victim is spared if its resources are not needed after all"),
    Attribute(
        "take_excess_for_few_nodes",
        Flag(),
        "for a starving operation that can run on some nodes only, others lose their excess there, not only their youngest jobs",
    ),
    Attribute("enable_guarantee_priority_scheduling", Flag(), "operations below their promised share come first"),
    Attribute(
        "enable_conditional_preemption",
        Flag(),
        "with victim_rules legacy: operations below a pool may preempt what that pool shields",
    ),
    Attribute(
        "preemption_check_starvation",
        Flag(),
        "with victim_rules legacy: nothing is preempted below a starving pool",
    ),
    Attribute(
        "preemption_check_satisfaction",
        Flag(),
        "with victim_rules legacy: nothing is preempted below a pool that has too little",
    ),
]
ORDER: Final = [
    Attribute(
        "batch_operation_scheduling",
        Record(_BATCH),
        "operations that are considered together before the rest",
        "off",
        aliases=("prioritized_regular_scheduling",),
    ),
    Attribute(
        "min_child_heap_size", Whole(1), "number of children above which a pool keeps them in a heap", support=_MET
    ),
    Attribute(
        "use_pool_satisfaction_for_scheduling",
        Flag(),
        "child pools are offered resources by their own satisfaction",
    ),
    Attribute(
        "fifo_pool_scheduling_order",
        Choice(FifoPoolSchedulingOrder),
        "order in which a fifo pool's operations are offered resources",
    ),
    Attribute(
        "consider_disk_quota_in_preemptive_scheduling_discount",
        Flag(),
        "the disk of victims counts as available",
        support=_ABSENT,
        reason="disk is not a resource",
    ),
    Attribute(
        "waiting_for_resources_on_node_timeout",
        Duration(),
        "how long an allocation may wait on its node for free resources",
        "no limit",
        aliases=("waiting_job_timeout",),
    ),
    Attribute(
        "node_reservation_time",
        Duration(),
        "the longest reservation of a node for a starving operation that fits on no node; 0s: no reservations",
    ),
    Attribute(
        "hold_back_failing_nodes",
        Flag(),
        "failed jobs go to other nodes, and a node on which jobs of several operations fail in a row gets single jobs",
    ),
    Attribute(
        "ssd_priority_preemption",
        Record(_SSD),
        "nodes with SSD, which pools with allow_regular_allocations_on_ssd_nodes=false avoid",
        "off",
    ),
    Attribute(
        "scheduling_segments",
        Data(),
        "nodes set apart by data centre and network module",
        "off",
        support=_ABSENT,
        reason="nodes have no data centres and network modules; use scheduling_tag_filter of pools",
    ),
    Attribute(
        "packing",
        Data(),
        "operations are refused on nodes that their jobs fill badly",
        "off",
        support=_ABSENT,
        reason="free resources of a node go to the next operation that fits, however that fills the node",
    ),
]
LIMITS: Final = [
    Attribute(
        "enable_infinite_resource_limits_overcommit",
        Flag(),
        "preemptive stages may exceed limits by any amount; needs use_precommit_for_preemption",
    ),
    Attribute(
        "use_precommit_for_preemption",
        Flag(),
        "starts that are on their way count as used when limits are restored",
        support=_MET,
    ),
    Attribute(
        "enable_preliminary_resource_limits_check",
        Flag(),
        "checks limits before jobs are requested; changes no result",
        support=_MET,
    ),
    Attribute("allowed_resource_usage_staleness", Duration(), "how old usage may be in a decision", support=_MET),
    Attribute("enable_resource_usage_snapshot", Flag(), "decisions take usage from a snapshot", support=_MET),
    Attribute(
        "use_resource_usage_with_precommit", Flag(), "decisions also count starts that are on their way", support=_MET
    ),
    Attribute(
        "min_spare_allocation_resources_on_node",
        ResourceAmounts(),
        "free resources of a node below which nothing is tried",
    ),
    Attribute(
        "tentative_tree_saturation_deactivation_period",
        Duration(),
        "how long a tentative tree with too slow jobs is avoided",
        support=_ABSENT,
        reason="the speed of jobs in a tentative tree is not judged",
    ),
    Attribute(
        "cached_allocation_preemption_statuses_update_period",
        Duration(),
        "how old cached statuses of allocations may be",
        support=_MET,
    ),
    Attribute(
        "check_operation_for_liveness_in_preschedule",
        Flag(),
        "checks first whether an operation is alive",
        support=_MET,
    ),
]
