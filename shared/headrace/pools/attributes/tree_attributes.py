"""All options of a tree: the single table that parsing, help, the reference pages and export use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.errors import BadInput
from headrace.near import hint
from headrace.pools.attributes.kinds import Defects, Duration, Flag, Formula, Kind, Number, Whole, Word, Words
from headrace.pools.attributes.map_kinds import Data, ResourceAmounts, TextMap
from headrace.pools.attributes.pool_attributes import ACCESS
from headrace.pools.attributes.schema import Attribute, Record, Schema, Support, Who
from headrace.pools.attributes.tree_allocation_attributes import LIMITS, ORDER, PREEMPTION, STARVATION
from headrace.pools.placement_rules import misplaced, parse_rule
from headrace.pools.tree_options import (
    TreeIntegralOptions,
    TreeOptions,
)
from headrace.resources import RESOURCE_NAMES

_KEPT: Final = Support.KEPT


class _Resource(Kind):
    words = "one of " + ", ".join(RESOURCE_NAMES)

    def read(self, value: object, place: str) -> str:
        if value not in RESOURCE_NAMES:
            raise BadInput(place, value, hint(str(value), RESOURCE_NAMES))
        return str(value)


class _Presets(Kind):
    """Maps of attributes by name of the preset.

    `presets` checks which attributes a preset may hold, not this kind: a stored preset may be wrong, and the problem is then reported
    where the preset is used.
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
    """A list of placement rules. The last rule may not pass an operation on."""

    most: int = 100
    what: str = (
        "rules of placement such as specified, user existing, nested_user default people, default guests or reject"
    )

    def read(self, value: object, place: str) -> tuple[str, ...]:
        rules = [parse_rule(text, f"{place}[{at}]") for at, text in enumerate(super().read(value, place))]
        if not rules:
            raise BadInput(place, value, "one rule at least")
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
_GENERAL: Final = [
    Attribute("pause_starts", Flag(), "no job starts in the tree; what runs goes on"),
    Attribute("pause_preemption", Flag(), "nothing is taken back for others; what is on its way out goes"),
    Attribute(
        "node_filter",
        Formula(),
        "which of its nodes the tree uses, by their tags; others end what they run and get nothing new",
        "all nodes",
        renamed=("nodes_filter",),
    ),
    Attribute(
        "require_isolation",
        Flag(),
        "the tree uses no node of which jobs can reach the key of the agent; others end what they run and get nothing new",
    ),
    Attribute("max_operation_count", Whole(), "operations in the tree, waiting ones included; one more is refused"),
    Attribute("max_running_operation_count", Whole(), "running operations in the tree; one more waits"),
    Attribute("max_operation_count_per_pool", Whole(), "operations in a pool that has no limit of its own"),
    Attribute(
        "max_running_operation_count_per_pool", Whole(), "running operations in a pool that has no limit of its own"
    ),
    Attribute(
        "placement_rules",
        PlacementRules(),
        "the rules that choose the pool of an operation, in the order in which they are tried",
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
    ),
    Attribute(
        "max_schedulable_element_count_in_fifo_pool",
        Whole(1),
        "operations of a fifo pool beyond so many that are owed nothing do not run",
        "no limit",
    ),
]
_DATA: Final = [
    Attribute(
        "node_reconnection_timeout",
        Duration(),
        "how long after a restart nobody loses a place for nodes that have not come back; here until each has, or is offline",
        support=Support.MET,
    ),
    Attribute("accumulated_resource_usage_update_period", Duration(1), "how often use is summed up", support=_KEPT),
    Attribute("metering_tags", Data(), "labels of bills", "none", support=Support.DATA),
]


def _grouped(group: str, attributes: list[Attribute]) -> list[Attribute]:
    return [Attribute(**{**vars(attribute), "group": group, "who": Who.ADMINISTRATOR}) for attribute in attributes]


TREE_ATTRIBUTES: Final = Schema(
    TreeOptions,
    [
        *_grouped("Operations and pools", _GENERAL),
        *_grouped("The formula", _FORMULA),
        *_grouped("Starvation", STARVATION),
        *_grouped("Preemption", PREEMPTION),
        *_grouped("The order of allocation", ORDER),
        *_grouped("Limits and usage", LIMITS),
        *_grouped("Things outside", _DATA),
    ],
    keeps_unknown=True,
)
