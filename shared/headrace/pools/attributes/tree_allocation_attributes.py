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

_KEPT: Final = Support.KEPT
_ABSENT: Final = Support.ABSENT
_MET: Final = Support.MET

_BATCH: Final = Schema(
    BatchScheduling,
    [
        Attribute("batch_size", Whole(1), "operations looked at in one go"),
        Attribute(
            "fallback_min_spare_allocation_resources",
            ResourceAmounts(),
            "room on a node below which the rest is left out",
        ),
    ],
)
_SSD: Final = Schema(
    SsdNodes,
    [
        Attribute("enable", Flag(), "nodes with SSD are told apart"),
        Attribute("node_tag_filter", Formula(), "which nodes have SSD", "none"),
        Attribute(
            "media", Words(what="media"), "jobs that need one come first there; here no job can", support=_ABSENT
        ),
    ],
)
_YARN: Final = Schema(
    YarnOptions,
    [
        Attribute("enabled", Flag(), "under a YARN policy: places are taken back for others at all"),
        Attribute(
            "share",
            Choice(ShareModel),
            "under a YARN policy: shares as its drf divides them, whatever is demanded, or the tree's own",
        ),
        Attribute(
            "memory_only",
            Flag(),
            "with these shares: memory alone is divided in the whole tree, as by YARN's policy fair",
        ),
        Attribute(
            "cluster_utilization_threshold",
            Number(0, 1),
            "preemption begins where more than this part of the cluster's memory or cpu is in use",
        ),
        Attribute(
            "wait_before_kill",
            Duration(),
            "from the signal to the kill; under yarn_legacy how long a container is warned before the signal",
        ),
        Attribute("heartbeat_allowance", Duration(), "part of the pause of an operation that preemption has seen to"),
        Attribute(
            "wait_before_next_check",
            Duration(),
            "another part of that pause, of which wait_before_kill is the third",
        ),
        Attribute("legacy_interval", Duration(), "under yarn_legacy: the least time between two rounds"),
        Attribute(
            "min_share_spread",
            Choice(MinShareSpread),
            "when the shortage of a queue is spread: the last operation gets the rest, or what YARN charges it with",
        ),
        Attribute(
            "drf_needy_quirk",
            Flag(),
            "under yarn_legacy: compares queues that lack their minimum with the other one's use, as YARN does",
        ),
    ],
)
STARVATION: Final = [
    Attribute(
        "fair_share_starvation_timeout",
        Duration(),
        "how long below its fair share until an element starves",
        aliases=("fair_share_preemption_timeout",),
    ),
    Attribute(
        "fair_share_aggressive_starvation_timeout",
        Duration(),
        "how long until it starves aggressively; not below fair_share_starvation_timeout",
    ),
    Attribute(
        "fair_share_starvation_tolerance",
        Number(0, 1),
        "the part of its fair share that counts as having it",
    ),
    Attribute(
        "min_share_preemption_timeout",
        Duration(),
        "how long below its strong guarantee until a pool starves",
        "never",
        aliases=("min_share_starvation_timeout",),
    ),
    Attribute("enable_aggressive_starvation", Flag(), "elements may starve aggressively"),
    Attribute("enable_pool_starvation", Flag(), "pools may starve, not operations only"),
    Attribute(
        "allocation_count_preemption_timeout_coefficient",
        Number(1, 1e6),
        "shortens the timeouts of operations with fewer jobs than this",
        aliases=("job_count_preemption_timeout_coefficient",),
    ),
    Attribute(
        "enable_absolute_fair_share_starvation_tolerance",
        Flag(),
        "nobody starves for less than one job",
    ),
    Attribute(
        "scheduling_preemption_priority_scope",
        Choice(PriorityScope),
        "whose starvation gives an operation its place in preemptive stages",
    ),
]
PREEMPTION: Final = [
    Attribute(
        "preemption",
        Choice(PreemptionSwitch),
        "allocations are taken back for others; with observe it is decided and recorded, and nothing is taken",
    ),
    Attribute(
        "preemption_policy",
        Choice(PreemptionPolicy),
        "by whose rules shares are divided, who starves, and whose allocations are taken back",
    ),
    Attribute("yarn", Record(_YARN), "what the YARN policies need beside"),
    Attribute(
        "preemption_satisfaction_threshold",
        Number(0, 1e6, above=True),
        "an operation is cut down to this part of its fair share",
    ),
    Attribute(
        "aggressive_preemption_satisfaction_threshold",
        Number(0, 1e6),
        "and to this one for those that starve aggressively; not above preemption_satisfaction_threshold",
    ),
    Attribute(
        "preemption_exempt_time",
        Duration(),
        "how long a job runs before it may have to make room for others",
    ),
    Attribute(
        "non_preemptible_resource_usage_threshold",
        ResourceAmounts(),
        "use up to which nothing is taken from an operation",
        "none",
    ),
    Attribute(
        "max_unpreemptible_running_allocation_count",
        Whole(),
        "the same in user_slots, under its old name",
        "none",
        aliases=("max_unpreemptible_running_job_count", "max_unpreemptable_running_job_count"),
    ),
    Attribute(
        "consider_allocation_on_fair_share_bound_preemptible",
        Flag(),
        "the allocation that crosses the border may be taken",
    ),
    Attribute(
        "preempt_at_bound_for_owed_jobs",
        Flag(),
        "the same, for a job that is within the fair share of its operation, and from whoever has more than its own",
    ),
    Attribute(
        "allow_aggressive_preemption_for_gang_operations",
        Flag(),
        "gangs may be cut for those that starve aggressively",
    ),
    Attribute(
        "preempt_gangs_whole",
        Flag(),
        "gangs are preempted as a whole, for what is owed all their room, and nothing is preempted for a gang unless it starts by that",
    ),
    Attribute("preemptive_scheduling_backoff", Duration(), "between two preemptive attempts on one node"),
    Attribute(
        "allocation_preemption_timeout",
        Duration(),
        "from the interruption of a job to its end",
        aliases=("job_interrupt_timeout",),
    ),
    Attribute(
        "allocation_graceful_preemption_timeout",
        Duration(),
        "the same for operations that ask for a graceful end",
        aliases=("job_graceful_interrupt_timeout",),
    ),
    Attribute("allow_preemption_from_starving_operations", Flag(), "those that starve may be cut too"),
    Attribute("victim_rules", Choice(VictimRules), "which version's rules choose victims"),
    Attribute("drop_needless_victims", Flag(), "spares each chosen victim without which the node has room"),
    Attribute(
        "take_excess_for_few_nodes",
        Flag(),
        "one that starves and can run on some nodes only gets there what others have too much, wherever their youngest are",
    ),
    Attribute("enable_guarantee_priority_scheduling", Flag(), "those below their promised share come first"),
    Attribute(
        "enable_conditional_preemption",
        Flag(),
        "with victim_rules legacy: what a pool is shielded for, operations below it may take",
    ),
    Attribute(
        "preemption_check_starvation",
        Flag(),
        "with victim_rules legacy: nothing is taken from below a starving pool",
    ),
    Attribute(
        "preemption_check_satisfaction",
        Flag(),
        "with victim_rules legacy: nor from below one that has too little",
    ),
]
ORDER: Final = [
    Attribute(
        "batch_operation_scheduling",
        Record(_BATCH),
        "operations that are looked at in one go before the rest",
        "off",
        aliases=("prioritized_regular_scheduling",),
    ),
    Attribute("min_child_heap_size", Whole(1), "children above which a pool keeps them in a heap", support=_MET),
    Attribute(
        "use_pool_satisfaction_for_scheduling",
        Flag(),
        "children are offered resources by their satisfaction as pools",
    ),
    Attribute(
        "fifo_pool_scheduling_order",
        Choice(FifoPoolSchedulingOrder),
        "the order in which a fifo pool's operations are offered resources",
    ),
    Attribute(
        "consider_disk_quota_in_preemptive_scheduling_discount",
        Flag(),
        "the disk of victims counts as room; here disk is no resource",
        support=_ABSENT,
    ),
    Attribute(
        "waiting_for_resources_on_node_timeout",
        Duration(),
        "how long an allocation may wait on its node for room",
        "no limit",
        aliases=("waiting_job_timeout",),
    ),
    Attribute(
        "node_reservation_time",
        Duration(),
        "how long a node is reserved at most for an operation that starves and fits on none; 0s: no node is",
    ),
    Attribute(
        "ssd_priority_preemption",
        Record(_SSD),
        "nodes with SSD, which pools leave alone whose allow_regular_allocations_on_ssd_nodes is false",
        "off",
    ),
    Attribute(
        "scheduling_segments",
        Data(),
        "nodes set apart by data centre and network module; here nodes have neither",
        "off",
        support=_ABSENT,
    ),
    Attribute(
        "packing",
        Data(),
        "it does not act: free room of a node goes to whoever is next and fits, however that fills it",
        "off",
        support=_KEPT,
    ),
]
LIMITS: Final = [
    Attribute(
        "enable_infinite_resource_limits_overcommit",
        Flag(),
        "preemptive stages may pass limits by any amount; needs use_precommit_for_preemption",
    ),
    Attribute(
        "use_precommit_for_preemption",
        Flag(),
        "what is on its way counts as used when limits are restored",
        support=_MET,
    ),
    Attribute(
        "enable_preliminary_resource_limits_check",
        Flag(),
        "looks at limits before jobs are asked for; changes no result",
        support=_MET,
    ),
    Attribute("allowed_resource_usage_staleness", Duration(), "how old usage may be in a decision", support=_MET),
    Attribute("enable_resource_usage_snapshot", Flag(), "decisions take usage from a snapshot", support=_MET),
    Attribute("use_resource_usage_with_precommit", Flag(), "and count what is on its way", support=_MET),
    Attribute(
        "min_spare_allocation_resources_on_node",
        ResourceAmounts(),
        "room on a node below which nothing is tried",
    ),
    Attribute(
        "tentative_tree_saturation_deactivation_period",
        Duration(),
        "how long a tentative tree is left alone whose jobs turn out too slow; here nobody judges that",
        support=_ABSENT,
    ),
    Attribute(
        "cached_allocation_preemption_statuses_update_period",
        Duration(),
        "how old kept statuses of allocations may be",
        support=_MET,
    ),
    Attribute(
        "check_operation_for_liveness_in_preschedule", Flag(), "looks first whether an operation lives", support=_MET
    ),
]
