"""The configuration of a pool. `attributes` says which values are legal, who may set them and what they mean.

None means "not set": the default is an option of the tree, or is derived from other values. Values at their default
are not written, so that a pool without settings takes no space in its tree. Durations are in milliseconds.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final

import msgspec

from headrace.ids import group_name, user_name
from headrace.pools.amounts import NOTHING, PartialResources

SMALLEST_WEIGHT: Final = 2.0**-26
LARGEST_WEIGHT: Final = 2.0**26


class PoolMode(enum.StrEnum):
    """Rules by which a pool's children share."""

    FAIR_SHARE = "fair_share"
    FIFO = "fifo"


class IntegralType(enum.StrEnum):
    """Kinds of integral guarantees."""

    NONE = "none"
    BURST = "burst"
    RELAXED = "relaxed"


class FifoSortParameter(enum.StrEnum):
    """Criteria that order a fifo pool's operations: larger weight, earlier start or fewer pending jobs come first."""

    WEIGHT = "weight"
    START_TIME = "start_time"
    PENDING_JOB_COUNT = "pending_job_count"


class PreemptionSwitch(enum.StrEnum):
    """Whether allocations are preempted for other operations."""

    OFF = "off"
    #: Preemptions are decided, recorded and shown, but not carried out.
    OBSERVE = "observe"
    ON = "on"


class FifoPoolSchedulingOrder(enum.StrEnum):
    """The order in which operations of a fifo pool are offered resources."""

    SATISFACTION = "satisfaction"
    FIFO = "fifo"


DEFAULT_FIFO_SORT: Final = (FifoSortParameter.WEIGHT, FifoSortParameter.START_TIME)


class IntegralGuarantees(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Integral guarantee of a pool: an inflow that accrues as savings, and the largest share that may be drawn from
    the savings at once.
    """

    guarantee_type: IntegralType = IntegralType.NONE
    resource_flow: PartialResources = NOTHING
    burst_guarantee_resources: PartialResources = NOTHING
    #: For a relaxed pool: upper bound of what it may draw at once, as a multiple of its flow.
    relaxed_share_multiplier_limit: float | None = None
    #: True if the pool takes the overflow of siblings whose savings are full.
    can_accept_free_volume: bool = True
    should_distribute_free_volume_among_children: bool | None = None


class EphemeralSubpoolConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of ephemeral pools below this pool."""

    mode: PoolMode = PoolMode.FAIR_SHARE
    max_operation_count: int | None = None
    max_running_operation_count: int | None = None
    resource_limits: PartialResources = NOTHING


#: Stands for all users in a list of users.
EVERYBODY: Final = "*"
#: Stands for no user in a list of users, since an empty list would be open to all.
NOBODY: Final = "-"
#: Prefix of the name of a group in a list of users. It cannot be confused with a user name, which has no colon, and an
#: entry such as `group:team` needs no quotes in YAML.
GROUP: Final = "group:"


def user_or_group(text: str) -> str:
    """Check an entry of a list that names a user or a group. Raises `BadInput`."""
    return GROUP + group_name(text.removeprefix(GROUP)) if text.startswith(GROUP) else user_name(text)


class Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Users by right, for the pool and everything below it. `*` stands for all users, `group:NAME` for the members of a group."""

    #: Users who may start operations.
    use: tuple[str, ...] = ()
    #: Users who may change, suspend and end operations of other users.
    manage: tuple[str, ...] = ()
    #: Users who may change the settings that need no administrator, and who may make, move and remove pools below the pool.
    write: tuple[str, ...] = ()
    #: Users who may change everything.
    administer: tuple[str, ...] = ()


class PoolConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The values that a person sets on a pool."""

    #: Weight among its siblings; None: inferred from guarantees, or 1.
    weight: Annotated[float, msgspec.Meta(ge=SMALLEST_WEIGHT, le=LARGEST_WEIGHT)] | None = None
    #: Strong guarantee. If a resource is left out, the pool is guaranteed the same fraction of the parent's amount of this
    #: resource as of the main resource.
    strong_guarantee_resources: PartialResources = NOTHING
    integral_guarantees: IntegralGuarantees = IntegralGuarantees()
    mode: PoolMode = PoolMode.FAIR_SHARE
    resource_limits: PartialResources = NOTHING
    max_share_ratio: float | None = None
    max_operation_count: int | None = None
    max_running_operation_count: int | None = None
    fifo_sort_parameters: tuple[FifoSortParameter, ...] = DEFAULT_FIFO_SORT
    forbid_immediate_operations: bool = False
    create_ephemeral_subpools: bool = False
    ephemeral_subpool_config: EphemeralSubpoolConfig | None = None
    enable_lightweight_operations: bool | None = None
    always_allow_gang_operations: bool = False
    access: Access = Access()
    default_time_limit: int | None = None
    max_time_limit: int | None = None
    default_operation_time_limit: int | None = None
    max_operation_time_limit: int | None = None
    min_job_resource_limits: PartialResources = NOTHING
    max_job_resource_limits: PartialResources = NOTHING
    abc: dict[str, Any] | None = None
    config_presets: tuple[str, ...] = ()
    config_preset: str | None = None

    # --- computation of fair shares ---
    compute_promised_guarantee_fair_share: bool = False
    enable_priority_strong_guarantee_adjustment: bool = False
    enable_priority_strong_guarantee_adjustment_donorship: bool = False
    enable_step_function_for_gang_operations: bool = True
    enable_fifo_children_reordering_for_guarantee_utilization: bool = True
    enable_fair_share_truncation_in_fifo_pool: bool | None = None
    yarn_memory_only: bool = False
    infer_children_weights_from_historic_usage: bool = False
    historic_usage_aggregation_period: int | None = None
    max_schedulable_element_count_in_fifo_pool: int | None = None

    # --- starvation and preemption ---
    preemption: PreemptionSwitch | None = None
    fair_share_starvation_timeout: int | None = None
    fair_share_starvation_tolerance: float | None = None
    min_share_preemption_timeout: int | None = None
    enable_aggressive_starvation: bool | None = None
    allow_aggressive_preemption: bool | None = None
    allow_normal_preemption: bool | None = None
    preemption_exempt_time: int | None = None
    non_preemptible_resource_usage_threshold: PartialResources | None = None
    waiting_for_resources_on_node_timeout: int | None = None
    allow_preemption_from: bool | None = None

    # --- placing ---
    fifo_pool_scheduling_order: FifoPoolSchedulingOrder | None = None
    use_pool_satisfaction_for_scheduling: bool | None = None
    resource_limits_overcommit_tolerance: PartialResources = NOTHING
    scheduling_tag_filter: str | None = None
    allow_regular_allocations_on_ssd_nodes: bool | None = None
    enable_priority_scheduling_segment_module_assignment: bool | None = None

    # --- kept as data ---
    offloading_settings: dict[str, Any] = {}
    enable_by_user_profiling: bool | None = None
    allowed_profiling_tags: tuple[str, ...] = ()
    metering_tags: dict[str, Any] = {}
    enable_detailed_logs: bool = False
    allow_idle_cpu_policy: dict[str, Any] | None = None
    redirect_to_cluster: str | None = None

    #: Name under which an option was set, for options that were set under one of their aliases.
    spelled: dict[str, str] = {}
    #: Values that an administrator set under names that this release does not know as options.
    unrecognized: dict[str, Any] = {}

    @property
    def for_lightweight_operations(self) -> bool:
        """True if vanilla operations are lightweight in the pool, because it is a fifo pool that allows them."""
        return self.mode is PoolMode.FIFO and bool(self.enable_lightweight_operations)
