"""All attributes of a pool: the single table that parsing, help, the reference pages and export use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.errors import BadInput
from headrace.pools.attributes.job_limits import job_limit_attributes
from headrace.pools.attributes.kinds import Choice, Choices, Duration, Flag, Number, Whole, Word, Words
from headrace.pools.attributes.map_kinds import Data, ResourceAmounts
from headrace.pools.attributes.pool_allocation_attributes import PLACING, PREEMPTION
from headrace.pools.attributes.schema import Attribute, Record, Schema, Support, Who
from headrace.pools.pool_config import (
    EVERYBODY,
    GROUP,
    LARGEST_WEIGHT,
    NOBODY,
    SMALLEST_WEIGHT,
    Access,
    EphemeralSubpoolConfig,
    FifoSortParameter,
    IntegralGuarantees,
    IntegralType,
    PoolConfig,
    PoolMode,
    user_or_group,
)

_ADMIN: Final = Who.ADMINISTRATOR
_ABSENT: Final = Support.ABSENT
_ONE_CLUSTER: Final = "operations run in this cluster only, in the trees that they name"
_TREE: Final = "the tree's value"
_PARENT: Final = "the parent's value"
_MOST_PROFILING_TAGS: Final = 200

_INTEGRAL: Final = Schema(
    IntegralGuarantees,
    [
        Attribute(
            "guarantee_type",
            Choice(IntegralType),
            "burst: may draw much of its savings at once; relaxed: draws what is left; none: no savings",
        ),
        Attribute("resource_flow", ResourceAmounts(), "what accrues as savings per second"),
        Attribute(
            "burst_guarantee_resources",
            ResourceAmounts(),
            "the most that a burst pool may draw from its savings at once",
        ),
        Attribute(
            "relaxed_share_multiplier_limit",
            Number(1, 10),
            "the most that a relaxed pool may draw at once, as a multiple of its flow",
            _TREE,
        ),
        Attribute("can_accept_free_volume", Flag(), "accepts the overflow of siblings whose savings are full"),
        Attribute(
            "should_distribute_free_volume_among_children",
            Flag(),
            "the overflow of a child whose savings are full goes to its siblings",
            _TREE,
        ),
    ],
)
_SUBPOOL: Final = Schema(
    EphemeralSubpoolConfig,
    [
        Attribute("mode", Choice(PoolMode), "how operations share resources in such a pool"),
        Attribute("max_operation_count", Whole(), "the most operations in such a pool", _TREE),
        Attribute("max_running_operation_count", Whole(), "the most running operations in such a pool", _TREE),
        Attribute("resource_limits", ResourceAmounts(), "the most that such a pool may use", "no limit"),
    ],
)


class _User(Word):
    """A user name in a list of users, a group, or the word for everybody or for nobody."""

    def read(self, value: object, place: str) -> str:
        text = super().read(value, place)
        try:
            return text if text in (EVERYBODY, NOBODY) else user_or_group(text)
        except BadInput as problem:
            what = f"{GROUP} and the name of a group" if text.startswith(GROUP) else "the name of a user"
            others = f"{EVERYBODY} for everybody, {NOBODY} for nobody"
            others += "" if text.startswith(GROUP) else f", {GROUP}NAME for a group"
            raise BadInput(place, value, f"{what}, {problem.expected}; {others}") from None


@dataclass(frozen=True)
class UserNames(Words):
    """A list of users and groups, each at most once."""

    what: str = "users and groups such as [ada, group:research]"

    def read(self, value: object, place: str) -> tuple[str, ...]:
        return self.read_each(super().read(value, place), place, _User())


ACCESS: Final = Schema(
    Access,
    [
        Attribute(
            "use",
            UserNames(),
            "run operations here",
            "everybody, unless this pool or a pool above it names users",
        ),
        Attribute("manage", UserNames(), "change, suspend and end operations of other users"),
        Attribute("write", UserNames(), "set the attributes that users may set; make, move and remove pools below"),
        Attribute("administer", UserNames(), "set all attributes"),
    ],
)

_GENERAL: Final = [
    Attribute(
        "mode",
        Choice(PoolMode),
        "how children share: by weight, or one after the other; a fifo pool has no child pools",
    ),
    Attribute(
        "weight",
        Number(SMALLEST_WEIGHT, LARGEST_WEIGHT),
        "its weight among its siblings",
        "inferred from guarantees if the tree says so, else 1",
    ),
    Attribute(
        "strong_guarantee_resources",
        ResourceAmounts(),
        "what it is owed at any time; a resource that is left out follows from the main resource",
        renamed=("min_share_resources",),
    ),
    Attribute("resource_limits", ResourceAmounts(), "the most that it may use", "no limit"),
    Attribute(
        "max_share_ratio",
        Number(0, 1),
        "the largest share of each resource of the cluster that it is owed; above it, it may only use what nobody else wants",
        "no limit",
        who=_ADMIN,
    ),
    Attribute(
        "integral_guarantees",
        Record(_INTEGRAL),
        "savings that accrue while it uses less than its flow",
        renamed=("integral-guarantees",),
    ),
    Attribute(
        "max_operation_count",
        Whole(),
        "the most operations in it and below, including waiting operations; further starts are refused",
        "max_operation_count_per_pool of the tree",
    ),
    Attribute(
        "max_running_operation_count",
        Whole(),
        "the most running operations in it and below; further operations wait",
        "max_running_operation_count_per_pool of the tree",
    ),
    Attribute(
        "fifo_sort_parameters",
        Choices(Choice(FifoSortParameter, (("pending_allocation_count", "pending_job_count"),))),
        "criteria that order the operations of a fifo pool",
    ),
    Attribute("forbid_immediate_operations", Flag(), "operations run only in pools below it"),
    Attribute(
        "create_ephemeral_subpools",
        Flag(),
        "the operations of each user run in an ephemeral pool of that user below it; not with mode fifo",
    ),
    Attribute("ephemeral_subpool_config", Record(_SUBPOOL), "settings of the ephemeral pools below it", "none"),
    Attribute(
        "enable_lightweight_operations",
        Flag(),
        "vanilla operations of a fifo pool are counted separately and have no running limit",
        "false",
        who=_ADMIN,
        preset=True,
    ),
    Attribute("always_allow_gang_operations", Flag(), "gang operations may run here in any mode", who=_ADMIN),
    Attribute(
        "access",
        Record(ACCESS),
        "users and groups by right, for it and all pools below; * stands for everybody",
        who=_ADMIN,
    ),
    *job_limit_attributes(
        "that of the next pool above, or of the tree; else the lowest maximum", "no maximum of its own"
    ),
    Attribute("abc", Data("a map such as {id: 1, slug: team}"), "the owner", "none", support=Support.DATA),
    Attribute(
        "config_presets",
        Words(what="presets of the tree"),
        "presets that apply; values set on the pool take precedence, then values of earlier presets",
        who=_ADMIN,
    ),
    Attribute(
        "config_preset",
        Word("the name of a preset"),
        "one preset; not together with config_presets",
        "none",
        who=_ADMIN,
    ),
]
_FORMULA: Final = [
    Attribute(
        "compute_promised_guarantee_fair_share",
        Flag(),
        "computes what it would get if all pools demanded their whole guarantees; not below another such pool",
        who=_ADMIN,
    ),
    Attribute(
        "enable_priority_strong_guarantee_adjustment",
        Flag(),
        "it keeps its strong guarantee when the tree's guarantees do not fit the cluster, at a donor's cost",
        who=_ADMIN,
    ),
    Attribute(
        "enable_priority_strong_guarantee_adjustment_donorship",
        Flag(),
        "it is a donor: it gives up strong guarantee for pools with priority",
        who=_ADMIN,
    ),
    Attribute(
        "enable_step_function_for_gang_operations",
        Flag(),
        "gangs get all or nothing, if the tree's option is on as well",
        who=_ADMIN,
    ),
    Attribute(
        "enable_fifo_children_reordering_for_guarantee_utilization",
        Flag(),
        "operations that fit a fifo pool's guarantee come first, if the tree's option is on as well",
        who=_ADMIN,
    ),
    Attribute(
        "enable_fair_share_truncation_in_fifo_pool",
        Flag(),
        "gangs of a fifo pool get all or nothing",
        _TREE,
        who=_ADMIN,
        support=_ABSENT,
        reason="set enable_step_function_for_gang_operations of the tree, which has replaced it in YTsaurus",
    ),
    Attribute(
        "yarn_memory_only",
        Flag(),
        "with the shares of a YARN policy: only memory is divided here and in all pools below, as YARN's policy fair does",
        who=_ADMIN,
    ),
    Attribute(
        "infer_children_weights_from_historic_usage",
        Flag(),
        "weights of children fall with their recent usage",
        who=_ADMIN,
    ),
    Attribute(
        "historic_usage_aggregation_period",
        Duration(1),
        "period over which usage is averaged",
        "a day",
        who=_ADMIN,
    ),
    Attribute(
        "max_schedulable_element_count_in_fifo_pool",
        Whole(1),
        "how many of a fifo pool's first operations may run even if they are owed nothing",
        _TREE,
        who=_ADMIN,
    ),
]
_DATA: Final = [
    Attribute(
        "offloading_settings",
        Data("a map from tree to {pool, weight, tentative, resource_limits}"),
        "other trees that may run its operations",
        "none",
        who=_ADMIN,
        support=_ABSENT,
        reason=_ONE_CLUSTER,
    ),
    Attribute(
        "enable_by_user_profiling",
        Flag(),
        "metrics by user",
        "false",
        who=_ADMIN,
        support=_ABSENT,
        reason="metrics have no label of users, whose number has no bound; an ephemeral pool of each user has metrics",
    ),
    Attribute(
        "allowed_profiling_tags",
        Words(_MOST_PROFILING_TAGS, "tags"),
        "tags that operations may add to their metrics",
        "none",
        who=_ADMIN,
        support=_ABSENT,
        reason="operations cannot add labels to metrics",
    ),
    Attribute("metering_tags", Data(), "labels for billing; needs abc", "none", who=_ADMIN, support=Support.DATA),
    Attribute(
        "enable_detailed_logs",
        Flag(),
        "a log line for each decision",
        who=_ADMIN,
        support=_ABSENT,
        reason="logs are the same for all pools; `op explain` and `events` show what was decided",
    ),
    Attribute(
        "allow_idle_cpu_policy",
        Data(),
        "who may use idle cores",
        "none",
        who=_ADMIN,
        support=_ABSENT,
        reason="jobs get the cores that they ask for, and idle cores are not lent",
    ),
    Attribute(
        "redirect_to_cluster",
        Word("the name of a cluster"),
        "the cluster to which operations are redirected",
        "none",
        who=_ADMIN,
        support=_ABSENT,
        reason=_ONE_CLUSTER,
    ),
]


def _grouped(group: str, attributes: list[Attribute]) -> list[Attribute]:
    return [Attribute(**{**vars(attribute), "group": group}) for attribute in attributes]


POOL_ATTRIBUTES: Final = Schema(
    PoolConfig,
    [
        *_grouped("Sharing, limits and access", _GENERAL),
        *_grouped("Computation of fair shares", _FORMULA),
        *_grouped("Starvation and preemption", PREEMPTION),
        *_grouped("Order and nodes", PLACING),
        *_grouped("Other systems", _DATA),
    ],
    keeps_unknown=True,
    never={
        "total_operation_count": "max_operation_count",
        "running_operation_count": "max_running_operation_count",
        "operation_count": "max_operation_count",
        # In a file of pools these keys are no attributes: they say where a pool stands.
        "name": "`headrace pool rename`",
        "parent": "`headrace pool move`",
        "pools": "`headrace pool create`",
    },
)
#: Attributes that a preset of a tree may hold.
PRESET_ATTRIBUTES: Final = Schema(
    PoolConfig, [attribute for attribute in POOL_ATTRIBUTES.attributes.values() if attribute.preset]
)
