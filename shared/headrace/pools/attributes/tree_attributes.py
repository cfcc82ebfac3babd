"""All options of a tree: the single table that parsing, help, the reference pages and export use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.errors import BadInput
from headrace.pools.attributes.job_limits import job_limit_attributes
from headrace.pools.attributes.kinds import Defects, Duration, Flag, Formula, Kind, Number, Whole, Word, Words
from headrace.pools.attributes.map_kinds import Data, TextMap
from headrace.pools.attributes.pool_attributes import ACCESS
from headrace.pools.attributes.schema import Attribute, Record, Schema, Support, Who
from headrace.pools.attributes.tree_allocation_attributes import LIMITS, ORDER, PREEMPTION, STARVATION
from headrace.pools.placement_rules import misplaced, parse_rule
from headrace.pools.tree_options import (
    Prices,
    TreeIntegralOptions,
    TreeOptions,
)
from headrace.resources import RESOURCE_NAMES
from headrace.suggestions import hint

_ABSENT: Final = Support.ABSENT


class _Resource(Kind):
    words = "one of " + ", ".join(RESOURCE_NAMES)

    def read(self, value: object, place: str) -> str:
        if value not in RESOURCE_NAMES:
            raise BadInput(place, value, hint(str(value), RESOURCE_NAMES))
        return str(value)


class _Presets(Kind):
    """Maps of attributes by name of the preset.

    This kind does not check which attributes a preset may hold. The module `presets` checks this when a pool uses the
    preset, and reports the problem there, because a stored preset may be wrong, too.
    """

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


@dataclass(frozen=True)
class PlacementRules(Words):
    """A list of placement rules, each of which can be reached. The last rule must be one with which a list may end."""

    most: int = 100
    what: str = "placement rules such as specified, user existing, nested_user default people, default guests or reject"

    def read(self, value: object, place: str) -> tuple[str, ...]:
        rules = [parse_rule(text, f"{place}[{at}]") for at, text in enumerate(super().read(value, place))]
        if not rules:
            raise BadInput(place, value, "at least one rule")
        wrong = misplaced(rules)
        if wrong:
            raise Defects(
                [
                    BadInput(f"{place}[{each.at}]", rules[each.at].text(), f"{each.expected}: {each.wrong}")
                    for each in wrong
                ]
            )
        return tuple(rule.text() for rule in rules)


_INTEGRAL: Final = Schema(
    TreeIntegralOptions,
    [
        Attribute(
            "smooth_period", Duration(1), "savings that last for less than this are given out more and more slowly"
        ),
        Attribute(
            "pool_capacity_saturation_period",
            Duration(1),
            "savings stop growing when they equal the flow of this period",
        ),
        Attribute(
            "relaxed_share_multiplier_limit",
            Number(1, 10),
            "the most that a relaxed pool may draw at once, as a multiple of its flow",
        ),
    ],
)
_GENERAL: Final = [
    Attribute("pause_starts", Flag(), "no job starts in the tree; running jobs continue"),
    Attribute("pause_preemption", Flag(), "nothing is preempted; preemptions that have begun continue"),
    Attribute(
        "node_filter",
        Formula(),
        "the nodes that the tree uses, by their tags; other nodes finish their jobs and get no new jobs",
        "all nodes",
        renamed=("nodes_filter",),
    ),
    Attribute(
        "require_isolation",
        Flag(),
        "the tree uses no node whose jobs can reach the key of its agent; such nodes finish their jobs and get no new jobs",
    ),
    Attribute(
        "enable_interactive",
        Flag(),
        "people may have terminals in jobs and run commands beside jobs, as `headrace shell` and `headrace op exec` do",
    ),
    Attribute(
        "max_operation_count",
        Whole(),
        "the most operations in the tree, including waiting operations; further starts are refused",
    ),
    Attribute(
        "max_running_operation_count", Whole(), "the most running operations in the tree; further operations wait"
    ),
    Attribute("max_operation_count_per_pool", Whole(), "the most operations in a pool without a limit of its own"),
    Attribute(
        "max_running_operation_count_per_pool",
        Whole(),
        "the most running operations in a pool without a limit of its own",
    ),
    Attribute(
        "placement_rules",
        PlacementRules(),
        "the rules that choose the pool of an operation, in the order in which they are tried",
    ),
    Attribute("default_parent_pool", Word("the name of a pool"), "the parent of new ephemeral pools"),
    Attribute(
        "forbid_immediate_operations_in_root",
        Flag(),
        "operations run only in pools",
        support=_ABSENT,
        reason="no operation runs in the root itself, whatever is set",
    ),
    Attribute("max_ephemeral_pools_per_user", Whole(1), "the most ephemeral pools of one user in the default parent"),
    Attribute(
        "use_user_default_parent_pool_map", Flag(), "user_to_default_pool takes precedence over default_parent_pool"
    ),
    Attribute(
        "user_to_default_pool",
        TextMap("a map from user or group to pool"),
        "default parent pools by user or group:NAME",
        "none",
    ),
    Attribute("pool_config_presets", _Presets(), "settings that pools take by name", "none"),
    Attribute(
        "promote_only_on_scan",
        Flag(),
        "waiting operations start only when another operation ends or at a scan, not at once when a limit is raised",
    ),
    Attribute("access", Record(ACCESS), "users and groups by right, for all pools; * stands for everybody"),
    Attribute(
        "non_tentative_operation_types",
        Words(what="types of operations"),
        "types of operations that may not run in the tree tentatively",
        "sort, map_reduce, remote_copy",
    ),
    Attribute("allow_gang_operations_only_in_fifo_pools", Flag(), "gang operations are refused in all other pools"),
    *job_limit_attributes("the maximum", "no maximum"),
    Attribute(
        "enable_limiting_ancestor_check",
        Flag(),
        "an operation fails if its jobs are larger than the resource_limits of a pool for five minutes",
    ),
]
_FORMULA: Final = [
    Attribute("main_resource", _Resource(), "the resource from which guarantees of other resources are inferred"),
    Attribute(
        "integral_guarantees", Record(_INTEGRAL), "how savings accrue and are spent", renamed=("integral-guarantees",)
    ),
    Attribute(
        "should_distribute_free_volume_among_children",
        Flag(),
        "the overflow of a pool whose savings are full goes to its siblings",
    ),
    Attribute(
        "infer_weight_from_guarantees_share_multiplier",
        Number(1, 1e6),
        "weights are inferred from guarantees, times this factor",
        "not inferred",
    ),
    Attribute("enable_step_function_for_gang_operations", Flag(), "gangs get all or nothing"),
    Attribute(
        "enable_fifo_children_reordering_for_guarantee_utilization",
        Flag(),
        "operations that fit a fifo pool's guarantee come first",
    ),
    Attribute(
        "enable_improved_fair_share_by_fit_factor_computation",
        Flag(),
        "shares are computed exactly where a fit function jumps",
    ),
    Attribute(
        "enable_improved_fair_share_by_fit_factor_computation_distribution_gap",
        Flag(),
        "distributes what is left below such a jump",
    ),
    Attribute(
        "charge_skipped_relaxed_pools",
        Flag(),
        "a relaxed pool with empty savings is still charged for its last grant",
    ),
    Attribute(
        "best_allocation_share_update_period",
        Duration(1),
        "how old the largest share may be that the nodes can give an operation",
        support=_ABSENT,
        reason="Headrace has no such period: it computes this share again whenever nodes change",
    ),
    Attribute(
        "fair_share_update_period",
        Duration(10, 60_000),
        "the longest time between two updates",
        "200ms below 1,000 operations, else 1s",
    ),
    Attribute(
        "max_schedulable_element_count_in_fifo_pool",
        Whole(1),
        "how many of a fifo pool's first operations may run even if they are owed nothing",
        "no limit",
    ),
]
_PRICES: Final = Schema(
    Prices,
    [
        Attribute("cpu", Number(), "the price of a core for an hour"),
        Attribute("memory", Number(), "the price of a GiB of memory for an hour"),
        Attribute("gpu", Number(), "the price of a GPU for an hour"),
        Attribute("currency", Word(), "the name of the currency", "none"),
    ],
)
_ACCOUNTING: Final = [
    Attribute(
        "prices", Record(_PRICES), "what `headrace usage` charges for the resources that finished runs were allotted"
    ),
]
_DATA: Final = [
    Attribute(
        "node_reconnection_timeout",
        Duration(),
        "how long nothing is preempted after a restart while nodes are missing; here until each node is back or offline",
        support=Support.MET,
    ),
    Attribute(
        "accumulated_resource_usage_update_period",
        Duration(1),
        "how often usage is summed up for billing",
        support=_ABSENT,
        reason="usage is summed up from the lengths of jobs, without a period",
    ),
    Attribute("metering_tags", Data(), "labels for billing", "none", support=Support.DATA),
]


def _grouped(group: str, attributes: list[Attribute]) -> list[Attribute]:
    return [Attribute(**{**vars(attribute), "group": group, "who": Who.ADMINISTRATOR}) for attribute in attributes]


TREE_ATTRIBUTES: Final = Schema(
    TreeOptions,
    [
        *_grouped("Operations and pools", _GENERAL),
        *_grouped("Computation of fair shares", _FORMULA),
        *_grouped("Starvation", STARVATION),
        *_grouped("Preemption", PREEMPTION),
        *_grouped("The order of allocation", ORDER),
        *_grouped("Limits and usage", LIMITS),
        *_grouped("Accounting", _ACCOUNTING),
        *_grouped("Other systems", _DATA),
    ],
    keeps_unknown=True,
)
