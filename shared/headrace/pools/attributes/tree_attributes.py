"""Every option of a tree: the one table that reading, help, the reference and export are made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.errors import BadInput
from headrace.near import hint
from headrace.pools.attributes.kinds import (
    Choice,
    Data,
    Defects,
    Duration,
    Flag,
    Formula,
    Kind,
    Number,
    ResourceAmounts,
    TextMap,
    Whole,
    Word,
    Words,
)
from headrace.pools.attributes.pool_attributes import ACCESS
from headrace.pools.attributes.schema import Attribute, Record, Schema, Support, Who
from headrace.pools.pool_config import FifoPoolSchedulingOrder
from headrace.pools.tree_options import (
    BatchScheduling,
    MinShareSpread,
    PreemptionPolicy,
    PriorityScope,
    ShareModel,
    TreeIntegralOptions,
    TreeOptions,
    VictimRules,
    YarnOptions,
)
from headrace.resources import RESOURCE_NAMES

__all__ = ["TREE_ATTRIBUTES"]

_KEPT: Final = Support.KEPT


class _Resource(Kind):
    words = "one of " + ", ".join(RESOURCE_NAMES)

    def read(self, value: object, place: str) -> str:
        if value not in RESOURCE_NAMES:
            raise BadInput(place, value, hint(str(value), RESOURCE_NAMES))
        return str(value)


class _Presets(Kind):
    """Maps of attributes by name of the preset. Which attributes may stand there is checked by `presets`, not here: what is
    stored may be wrong, and is then told of where it is used."""

    words = "a map from preset to a map of attributes"

    def read(self, value: object, place: str) -> dict[str, dict[str, Any]]:
        if not isinstance(value, Mapping):
            raise BadInput(place, value, self.words)
        problems: list[BadInput] = []
        read: dict[str, dict[str, Any]] = {}
        for name, preset in value.items():
            try:
                read[Word().read(name, place)] = Data("a map of attributes").read(preset, f"{place}.{name}")
            except BadInput as problem:
                problems.append(problem)
        if problems:
            raise Defects(problems)
        return read

    def changed(self, before: Any, path: Any, value: object, place: str) -> dict[str, dict[str, Any]]:
        return self.read(Data().changed(before, path, value, place), place)


_INTEGRAL: Final = Schema(
    TreeIntegralOptions,
    [
        Attribute("smooth_period", Duration(1), "savings that last for less than this are handed out ever more slowly"),
        Attribute(
            "pool_capacity_saturation_period",
            Duration(1),
            "savings stop growing when this long a time of the flow is saved",
        ),
        Attribute(
            "relaxed_share_multiplier_limit", Number(1, 10), "so many times its flow may a relaxed pool draw at once"
        ),
    ],
)
_BATCH: Final = Schema(
    BatchScheduling,
    [
        Attribute("batch_size", Whole(1), "operations looked at in one go", support=_KEPT),
        Attribute(
            "fallback_min_spare_allocation_resources",
            ResourceAmounts(),
            "room on a node below which the rest is left out",
            support=_KEPT,
        ),
    ],
)
_YARN: Final = Schema(
    YarnOptions,
    [
        Attribute("enabled", Flag(), "preemption is on", support=_KEPT),
        Attribute("share", Choice(ShareModel), "shares by YARN's formula, or by the tree's own", support=_KEPT),
        Attribute(
            "cluster_utilization_threshold",
            Number(0, 1),
            "preemption begins above this use of the cluster",
            support=_KEPT,
        ),
        Attribute("wait_before_kill", Duration(), "from the warning of a container to its end", support=_KEPT),
        Attribute("heartbeat_allowance", Duration(), "added to the pause after preemption", support=_KEPT),
        Attribute("wait_before_next_check", Duration(), "added to the pause after preemption", support=_KEPT),
        Attribute("legacy_interval", Duration(), "between two checks of the older engine", support=_KEPT),
        Attribute(
            "min_share_spread",
            Choice(MinShareSpread),
            "what the last application is charged with when a shortage is spread",
            support=_KEPT,
        ),
        Attribute("drf_needy_quirk", Flag(), "compares as YARN does where a queue lacks its minimum", support=_KEPT),
    ],
)

_GENERAL: Final = [
    Attribute(
        "node_filter",
        Formula(),
        "which of its nodes the tree uses, by their tags; others end what they run and get nothing new",
        "all nodes",
        renamed=("nodes_filter",),
    ),
    Attribute("max_operation_count", Whole(), "operations in the tree, waiting ones included; one more is refused"),
    Attribute("max_running_operation_count", Whole(), "running operations in the tree; one more waits"),
    Attribute("max_operation_count_per_pool", Whole(), "operations in a pool that has no limit of its own"),
    Attribute(
        "max_running_operation_count_per_pool", Whole(), "running operations in a pool that has no limit of its own"
    ),
    Attribute("default_parent_pool", Word("the name of a pool"), "where pools come into being that nobody made"),
    Attribute(
        "forbid_immediate_operations_in_root", Flag(), "shown only: no operation can name the root", support=_KEPT
    ),
    Attribute("max_ephemeral_pools_per_user", Whole(1), "pools of one user in the default parent that nobody made"),
    Attribute("use_user_default_parent_pool_map", Flag(), "user_to_default_pool goes before default_parent_pool"),
    Attribute("user_to_default_pool", TextMap("a map from user to pool"), "default parent pools by user", "none"),
    Attribute("pool_config_presets", _Presets(), "settings that pools take by name", "none"),
    Attribute(
        "promote_only_on_scan",
        Flag(),
        "waiting operations start when another ends or at the scan only, not at once when a limit is raised",
    ),
    Attribute("access", Record(ACCESS), "users by right, for all pools; * is everybody"),
    Attribute(
        "non_tentative_operation_types",
        Words(what="types of operations"),
        "types that may not run in the tree tentatively",
        "sort, map_reduce, remote_copy",
    ),
    Attribute("allow_gang_operations_only_in_fifo_pools", Flag(), "gang operations are refused elsewhere"),
    Attribute("min_job_resource_limits", ResourceAmounts(), "the least that a job may ask for", "none", support=_KEPT),
    Attribute("max_job_resource_limits", ResourceAmounts(), "the most that a job may ask for", "none", support=_KEPT),
    Attribute(
        "enable_limiting_ancestor_check",
        Flag(),
        "an operation whose jobs can never fit a pool's limits fails",
        support=_KEPT,
    ),
]
_FORMULA: Final = [
    Attribute("main_resource", _Resource(), "the resource from which strong guarantees of others are inferred"),
    Attribute(
        "integral_guarantees", Record(_INTEGRAL), "how savings accrue and are spent", renamed=("integral-guarantees",)
    ),
    Attribute(
        "should_distribute_free_volume_among_children",
        Flag(),
        "savings for which a pool has no more room go to its siblings",
    ),
    Attribute(
        "infer_weight_from_guarantees_share_multiplier",
        Number(1, 1e6),
        "weights follow from guarantees, times this",
        "not inferred",
    ),
    Attribute("enable_step_function_for_gang_operations", Flag(), "gangs get all or nothing"),
    Attribute(
        "enable_fifo_children_reordering_for_guarantee_utilization",
        Flag(),
        "operations that fit a fifo pool's guarantee come first",
    ),
    Attribute("enable_improved_fair_share_by_fit_factor_computation", Flag(), "an exact hand-out where functions jump"),
    Attribute(
        "enable_improved_fair_share_by_fit_factor_computation_distribution_gap",
        Flag(),
        "hands out what is left below such a jump",
    ),
    Attribute(
        "charge_skipped_relaxed_pools",
        Flag(),
        "a relaxed pool with empty savings goes on being charged for its last grant",
    ),
    Attribute(
        "best_allocation_share_update_period",
        Duration(1),
        "how old the best share of an operation may be",
        support=_KEPT,
    ),
    Attribute(
        "fair_share_update_period",
        Duration(10, 60_000),
        "the longest time between two updates",
        "200ms below 1,000 operations, 1s from there on",
        support=_KEPT,
    ),
    Attribute(
        "max_schedulable_element_count_in_fifo_pool",
        Whole(1),
        "operations of a fifo pool beyond so many that are owed nothing do not run",
        "no limit",
        support=_KEPT,
    ),
]
_STARVATION: Final = [
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
        support=_KEPT,
        aliases=("min_share_starvation_timeout",),
    ),
    Attribute("enable_aggressive_starvation", Flag(), "elements may starve aggressively"),
    Attribute("enable_pool_starvation", Flag(), "pools may starve, not operations only"),
    Attribute(
        "allocation_count_preemption_timeout_coefficient",
        Number(1, 1e6),
        "shortens the timeouts of operations with fewer jobs than this",
        support=_KEPT,
        aliases=("job_count_preemption_timeout_coefficient",),
    ),
    Attribute(
        "enable_absolute_fair_share_starvation_tolerance", Flag(), "nobody starves for less than one job", support=_KEPT
    ),
    Attribute(
        "scheduling_preemption_priority_scope",
        Choice(PriorityScope),
        "whose starvation gives an operation its place in preemptive stages",
        support=_KEPT,
    ),
]
_PREEMPTION: Final = [
    Attribute(
        "preemption_policy", Choice(PreemptionPolicy), "by whose rules allocations are taken back", support=_KEPT
    ),
    Attribute("yarn", Record(_YARN), "what the YARN policies need beside", support=_KEPT),
    Attribute(
        "preemption_satisfaction_threshold",
        Number(0, 1e6, above=True),
        "an operation is cut down to this part of its fair share",
        support=_KEPT,
    ),
    Attribute(
        "aggressive_preemption_satisfaction_threshold",
        Number(0, 1e6),
        "and to this one for those that starve aggressively; not above preemption_satisfaction_threshold",
        support=_KEPT,
    ),
    Attribute(
        "non_preemptible_resource_usage_threshold",
        ResourceAmounts(),
        "use up to which nothing is taken from an operation",
        "none",
        support=_KEPT,
    ),
    Attribute(
        "max_unpreemptible_running_allocation_count",
        Whole(),
        "the same in user_slots, under its old name",
        "none",
        support=_KEPT,
        aliases=("max_unpreemptible_running_job_count", "max_unpreemptable_running_job_count"),
    ),
    Attribute(
        "consider_allocation_on_fair_share_bound_preemptible",
        Flag(),
        "the allocation that crosses the border may be taken",
        support=_KEPT,
    ),
    Attribute(
        "allow_aggressive_preemption_for_gang_operations",
        Flag(),
        "gangs may be cut for those that starve aggressively",
        support=_KEPT,
    ),
    Attribute(
        "preemptive_scheduling_backoff", Duration(), "between two preemptive attempts on one node", support=_KEPT
    ),
    Attribute(
        "allocation_preemption_timeout",
        Duration(),
        "from the interruption of a job to its end",
        support=_KEPT,
        aliases=("job_interrupt_timeout",),
    ),
    Attribute(
        "allocation_graceful_preemption_timeout",
        Duration(),
        "the same for operations that ask for a graceful end",
        support=_KEPT,
        aliases=("job_graceful_interrupt_timeout",),
    ),
    Attribute("allow_preemption_from_starving_operations", Flag(), "those that starve may be cut too", support=_KEPT),
    Attribute("victim_rules", Choice(VictimRules), "which version's rules choose victims", support=_KEPT),
    Attribute(
        "drop_needless_victims", Flag(), "spares each chosen victim without which the node has room", support=_KEPT
    ),
    Attribute("enable_guarantee_priority_scheduling", Flag(), "those below their guarantee come first", support=_KEPT),
    Attribute(
        "enable_conditional_preemption",
        Flag(),
        "with victim_rules legacy: some allocations go to starving pools only",
        support=_KEPT,
    ),
    Attribute(
        "preemption_check_starvation",
        Flag(),
        "with victim_rules legacy: nothing is taken from below a starving pool",
        support=_KEPT,
    ),
    Attribute(
        "preemption_check_satisfaction",
        Flag(),
        "with victim_rules legacy: nor from below one that has too little",
        support=_KEPT,
    ),
]
_ORDER: Final = [
    Attribute(
        "batch_operation_scheduling",
        Record(_BATCH),
        "operations that are looked at in one go before the rest",
        "off",
        support=_KEPT,
        aliases=("prioritized_regular_scheduling",),
    ),
    Attribute("min_child_heap_size", Whole(1), "children above which a pool keeps them in a heap", support=_KEPT),
    Attribute(
        "use_pool_satisfaction_for_scheduling",
        Flag(),
        "children are offered resources by their satisfaction as pools",
        support=_KEPT,
    ),
    Attribute(
        "fifo_pool_scheduling_order",
        Choice(FifoPoolSchedulingOrder),
        "the order in which a fifo pool's operations are offered resources",
        support=_KEPT,
    ),
    Attribute(
        "consider_disk_quota_in_preemptive_scheduling_discount",
        Flag(),
        "the disk of victims counts as room",
        support=_KEPT,
    ),
    Attribute(
        "waiting_for_resources_on_node_timeout",
        Duration(),
        "how long an allocation may wait on its node for room",
        "no limit",
        support=_KEPT,
        aliases=("waiting_job_timeout",),
    ),
    Attribute("ssd_priority_preemption", Data(), "preemption on nodes with SSD", "off", support=_KEPT),
    Attribute("scheduling_segments", Data(), "nodes set apart for large operations", "off", support=_KEPT),
    Attribute("packing", Data(), "how nodes are filled", "off", support=_KEPT),
]
_LIMITS: Final = [
    Attribute(
        "enable_infinite_resource_limits_overcommit",
        Flag(),
        "preemptive stages may pass limits by any amount; needs use_precommit_for_preemption",
        support=_KEPT,
    ),
    Attribute(
        "use_precommit_for_preemption",
        Flag(),
        "what is on its way counts as used when limits are restored",
        support=_KEPT,
    ),
    Attribute(
        "enable_preliminary_resource_limits_check",
        Flag(),
        "looks at limits before jobs are asked for; changes no result",
        support=_KEPT,
    ),
    Attribute("allowed_resource_usage_staleness", Duration(), "how old usage may be in a decision", support=_KEPT),
    Attribute("enable_resource_usage_snapshot", Flag(), "decisions take usage from a snapshot", support=_KEPT),
    Attribute("use_resource_usage_with_precommit", Flag(), "and count what is on its way", support=_KEPT),
    Attribute(
        "min_spare_allocation_resources_on_node",
        ResourceAmounts(),
        "room on a node below which nothing is tried",
        support=_KEPT,
    ),
    Attribute(
        "tentative_tree_saturation_deactivation_period",
        Duration(),
        "how long a saturated tree is left alone",
        support=_KEPT,
    ),
    Attribute(
        "cached_allocation_preemption_statuses_update_period",
        Duration(),
        "how old kept statuses of allocations may be",
        support=_KEPT,
    ),
    Attribute(
        "check_operation_for_liveness_in_preschedule", Flag(), "looks first whether an operation lives", support=_KEPT
    ),
]
_DATA: Final = [
    Attribute("node_reconnection_timeout", Duration(), "how long a node may be away", support=_KEPT),
    Attribute("accumulated_resource_usage_update_period", Duration(1), "how often use is summed up", support=_KEPT),
    Attribute("metering_tags", Data(), "labels of bills", "none", support=_KEPT),
]


def _grouped(group: str, attributes: list[Attribute]) -> list[Attribute]:
    return [Attribute(**{**vars(attribute), "group": group, "who": Who.ADMINISTRATOR}) for attribute in attributes]


TREE_ATTRIBUTES: Final = Schema(
    TreeOptions,
    [
        *_grouped("Operations and pools", _GENERAL),
        *_grouped("The formula", _FORMULA),
        *_grouped("Starvation", _STARVATION),
        *_grouped("Preemption", _PREEMPTION),
        *_grouped("The order of allocation", _ORDER),
        *_grouped("Limits and usage", _LIMITS),
        *_grouped("Things outside", _DATA),
    ],
    keeps_unknown=True,
)
