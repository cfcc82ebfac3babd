"""The options of a tree as a whole. `attributes` says which values are legal and what they mean.

None means "not set". Values at their default are not written. Durations are in milliseconds.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from headrace.ids import ROOT_POOL
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.pool_config import Access, FifoPoolSchedulingOrder, PreemptionSwitch
from headrace.resources import Finite


class PreemptionPolicy(enum.StrEnum):
    """The rules that choose which allocations are preempted."""

    YTSAURUS = "ytsaurus"
    YARN = "yarn"
    YARN_LEGACY = "yarn_legacy"


class ShareModel(enum.StrEnum):
    """How fair shares are computed under a YARN policy: by YARN's rules, or by Headrace's own rules (`native`)."""

    YARN = "yarn"
    NATIVE = "native"


class MinShareSpread(enum.StrEnum):
    """Rules for distributing what a queue is short of over its operations, which are YARN's applications.

    Operations get their whole unmet demand, in order, until the rest of the shortage is smaller than the unmet demand of the next
    operation. The rules differ in the amount for this last operation. With `intended` it is the rest of the shortage. With `yarn`
    it is, as in YARN, the operation's unmet demand minus the rest of the shortage.
    """

    INTENDED = "intended"
    YARN = "yarn"


class VictimRules(enum.StrEnum):
    """The version of the scheduler whose rules choose victims."""

    CURRENT = "current"
    LEGACY = "legacy"


class PriorityScope(enum.StrEnum):
    """The elements whose starvation gives an operation its priority in preemptive stages."""

    OPERATION_ONLY = "operation_only"
    OPERATION_AND_ANCESTORS = "operation_and_ancestors"


class TreeIntegralOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Options for how savings accrue and are spent."""

    #: Time in milliseconds. A pool gets at most the share that its savings could pay for this long. So the smaller its savings
    #: become, the more slowly they are spent.
    smooth_period: int = 60_000
    #: Time in milliseconds. A pool's savings stop growing when they equal what flows into the pool during this time.
    pool_capacity_saturation_period: int = 86_400_000
    relaxed_share_multiplier_limit: float = 3.0


class BatchScheduling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of batch scheduling: operations, in scheduling order, are divided into batches of `batch_size`, which are served in turn."""

    batch_size: int = 1_000
    fallback_min_spare_allocation_resources: PartialResources = PartialResources(user_slots=1, cpu=500, memory=10**9)


class SsdNodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The nodes with SSD, which pools may avoid."""

    enable: bool = False
    node_tag_filter: str = ""
    media: tuple[str, ...] = ()


#: The setting of a tree that treats nodes with SSD like all other nodes.
NO_SSD = SsdNodes()


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Prices of the resources that runs were allotted."""

    #: Price of one core for one hour.
    cpu: Finite = 0.0
    #: Price of one GiB of memory for one hour.
    memory: Finite = 0.0
    #: Price of one GPU for one hour.
    gpu: Finite = 0.0
    #: Name of the currency.
    currency: str = ""

    def cost(self, core_s: float, byte_s: float, gpu_s: float) -> float:
        """Return what these core-, byte- and GPU-seconds cost."""
        return (self.cpu * core_s + self.memory * byte_s / 2**30 + self.gpu * gpu_s) / 3600


#: The prices of a tree that charges nothing.
NO_PRICES = Prices()


class YarnOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Further options for the YARN policies."""

    enabled: bool = False
    share: ShareModel = ShareModel.YARN
    #: True if only memory is divided in the whole tree, as by YARN's policy `fair`.
    memory_only: bool = False
    cluster_utilization_threshold: Finite = 0.8
    wait_before_kill: int = 15_000
    heartbeat_allowance: int = 4_000
    wait_before_next_check: int = 10_000
    legacy_interval: int = 5_000
    min_share_spread: MinShareSpread = MinShareSpread.INTENDED
    drf_needy_quirk: bool = False
    #: True if the rules of older releases of Hadoop apply: those of 2.9 to 3.1 under the policy `yarn`, those of 2.6 and 2.7 under
    #: `yarn_legacy`.
    older_release: bool = False


class AllocationOptions(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Options of one tree that decide how operations get allocations. A share snapshot carries them to the allocator."""

    # --- starvation ---
    fair_share_starvation_timeout: int = 30_000
    fair_share_aggressive_starvation_timeout: int = 120_000
    fair_share_starvation_tolerance: Finite = 0.8
    min_share_preemption_timeout: int | None = None
    enable_aggressive_starvation: bool = False
    enable_pool_starvation: bool = True
    allocation_count_preemption_timeout_coefficient: Finite = 1.0
    enable_absolute_fair_share_starvation_tolerance: bool = False
    scheduling_preemption_priority_scope: PriorityScope = PriorityScope.OPERATION_AND_ANCESTORS

    # --- preemption ---
    preemption: PreemptionSwitch = PreemptionSwitch.ON
    preemption_policy: PreemptionPolicy = PreemptionPolicy.YTSAURUS
    yarn: YarnOptions = YarnOptions()
    preemption_satisfaction_threshold: Finite = 1.0
    aggressive_preemption_satisfaction_threshold: Finite = 0.5
    non_preemptible_resource_usage_threshold: PartialResources = NOTHING
    preemption_exempt_time: int = 0
    max_unpreemptible_running_allocation_count: int | None = None
    consider_allocation_on_fair_share_bound_preemptible: bool = False
    preempt_at_bound_for_owed_jobs: bool = False
    allow_aggressive_preemption_for_gang_operations: bool = True
    preempt_gangs_whole: bool = False
    preemptive_scheduling_backoff: int = 5_000
    allocation_preemption_timeout: int = 10_000
    allocation_graceful_preemption_timeout: int = 60_000
    allow_preemption_from_starving_operations: bool = False
    victim_rules: VictimRules = VictimRules.CURRENT
    drop_needless_victims: bool = False
    take_excess_for_few_nodes: bool = False
    enable_guarantee_priority_scheduling: bool = False
    enable_conditional_preemption: bool = True
    preemption_check_starvation: bool = True
    preemption_check_satisfaction: bool = True

    # --- the order of allocation ---
    batch_operation_scheduling: BatchScheduling | None = None
    min_child_heap_size: int = 16
    use_pool_satisfaction_for_scheduling: bool = False
    fifo_pool_scheduling_order: FifoPoolSchedulingOrder = FifoPoolSchedulingOrder.SATISFACTION
    consider_disk_quota_in_preemptive_scheduling_discount: bool = False
    waiting_for_resources_on_node_timeout: int | None = None
    node_reservation_time: int = 0
    hold_back_failing_nodes: bool = False

    # --- limits and usage ---
    enable_limiting_ancestor_check: bool = True
    min_job_resource_limits: PartialResources = NOTHING
    max_job_resource_limits: PartialResources = NOTHING
    enable_infinite_resource_limits_overcommit: bool = False
    use_precommit_for_preemption: bool = False
    enable_preliminary_resource_limits_check: bool = True
    allowed_resource_usage_staleness: int = 100
    enable_resource_usage_snapshot: bool = True
    use_resource_usage_with_precommit: bool = True
    min_spare_allocation_resources_on_node: PartialResources = PartialResources(
        user_slots=1, cpu=100, memory=256 * 1024**2
    )
    tentative_tree_saturation_deactivation_period: int = 10_000
    cached_allocation_preemption_statuses_update_period: int = 15_000
    check_operation_for_liveness_in_preschedule: bool = True


class TreeOptions(AllocationOptions, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """All options of one tree."""

    # --- switches of an operator ---
    pause_starts: bool = False
    pause_preemption: bool = False

    # --- operations and pools ---
    node_filter: str = ""
    require_isolation: bool = False
    enable_interactive: bool = True
    max_operation_count: int = 50_000
    max_running_operation_count: int = 2_000
    max_operation_count_per_pool: int = 50
    max_running_operation_count_per_pool: int = 50
    #: Rules in the syntax of `placement_rules`.
    placement_rules: tuple[str, ...] = ("specified", "user")
    default_parent_pool: str = ROOT_POOL
    forbid_immediate_operations_in_root: bool = True
    max_ephemeral_pools_per_user: int = 1
    use_user_default_parent_pool_map: bool = False
    user_to_default_pool: dict[str, str] = {}
    pool_config_presets: dict[str, dict[str, Any]] = {}
    promote_only_on_scan: bool = False
    access: Access = Access()
    non_tentative_operation_types: tuple[str, ...] | None = None
    allow_gang_operations_only_in_fifo_pools: bool = False
    default_time_limit: int | None = None
    max_time_limit: int | None = None
    default_operation_time_limit: int | None = None
    max_operation_time_limit: int | None = None

    # --- computation of fair shares ---
    main_resource: str = "cpu"
    integral_guarantees: TreeIntegralOptions = TreeIntegralOptions()
    should_distribute_free_volume_among_children: bool = False
    infer_weight_from_guarantees_share_multiplier: float | None = None
    enable_step_function_for_gang_operations: bool = False
    enable_fifo_children_reordering_for_guarantee_utilization: bool = False
    enable_improved_fair_share_by_fit_factor_computation: bool = False
    enable_improved_fair_share_by_fit_factor_computation_distribution_gap: bool = False
    charge_skipped_relaxed_pools: bool = False
    best_allocation_share_update_period: int = 60_000
    fair_share_update_period: int | None = None
    max_schedulable_element_count_in_fifo_pool: int | None = None

    # --- accounting ---
    prices: Prices = NO_PRICES

    # --- kept as data ---
    ssd_priority_preemption: SsdNodes = NO_SSD
    scheduling_segments: dict[str, Any] = {}
    packing: dict[str, Any] = {}
    node_reconnection_timeout: int = 300_000
    accumulated_resource_usage_update_period: int = 1_000
    metering_tags: dict[str, Any] = {}

    #: Name under which an option was set, for options that were set under one of their aliases.
    spelled: dict[str, str] = {}
    #: Values that were set under names that this release does not know as options.
    unrecognized: dict[str, Any] = {}

    def for_allocation(self) -> AllocationOptions:
        """Return the options that decide how operations get allocations."""
        return msgspec.convert(self, AllocationOptions, from_attributes=True)

    def pauses(self) -> list[str]:
        """Return a message for each thing that an operator has paused."""
        words = []
        if self.pause_starts:
            words.append(
                "starts are paused: no job starts, running jobs continue; `headrace resume starts` ends the pause"
            )
        if self.pause_preemption:
            words.append(
                "preemption is paused: no allocation is preempted; `headrace resume preemption` ends the pause"
            )
        return words
