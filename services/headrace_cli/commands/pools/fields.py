"""The table of all fields that `headrace pool get` can print, with units, stability and source. Pure.

This table is the only source: the command reads fields by it, and docs/reference/fields.md is generated from it. The
name of a field may be followed by names of parts: `accumulated_resource_volume/cpu`, or the same with dots.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from headrace.errors import BadInput
from headrace.pools.attributes.schema import split_key
from headrace.suggestions import hint
from headrace.wire.plain_values import plain
from headrace.wire.pools import PoolView

_SHARE = "share of the cluster, by resource"
_AMOUNT = "amount, by resource: cores, bytes, pieces"
_SECONDS = "amount × seconds, by resource: core-seconds, byte-seconds"
_RATIO = "share of the cluster, the largest of all resources"
_TIMESTAMP = "milliseconds of Unix time"
_COUNT = "count"
_TEXT = "text"
_NUMBER = "number"
_YES = "true or false"

_INTEGRAL = "pools with an integral guarantee"
_ROOT = "the root"


class Field(msgspec.Struct, frozen=True):
    """One field of a pool."""

    name: str
    unit: str
    help: str
    #: True: the name, unit and meaning never change. Otherwise they may change with any version.
    stable: bool = True
    #: Other names of the field, mostly names that other schedulers use for it.
    aliases: tuple[str, ...] = ()
    #: Pools that have the field; empty: all pools.
    only: str = ""
    #: Path of the value in the answer; empty: the name of the field.
    path: str = ""
    #: Function that turns the value at `path` into the value of the field.
    derive: Callable[[Any], object] | None = None


def _largest(share: dict[str, float]) -> float:
    return max(share.values())


def _total(fair_share: dict[str, dict[str, float]]) -> float:
    return max(fair_share["total"].values())


def _largest_of_each(fair_share: dict[str, dict[str, float]]) -> dict[str, float]:
    return {part: max(shares.values()) for part, shares in fair_share.items()}


def _or_nothing(text: str) -> str | None:
    return text or None


FIELDS: Final = (
    # --- identity and settings ---
    Field("name", _TEXT, "The pool; `<Root>` is the whole tree."),
    Field("parent", _TEXT, "The parent pool; empty for the root."),
    Field("path", _TEXT, "Names of the pools from the top down, separated by slashes.", aliases=("full_path",)),
    Field(
        "ephemeral",
        _YES,
        "True if the pool is not configured and exists only while operations name it.",
        aliases=("is_ephemeral",),
    ),
    Field(
        "settings",
        "as in [the reference of pools](pools.md)",
        "Attributes as configured; attributes that are not set have their defaults.",
    ),
    Field("mode", _TEXT, "`fair_share` or `fifo`.", path="settings/mode"),
    Field("operation_count", _COUNT, "Number of operations in the pool and in all pools below it."),
    Field("running_operation_count", _COUNT, "Number of these operations that may run jobs and are not lightweight."),
    Field(
        "lightweight_running_operation_count",
        _COUNT,
        "Number of these operations that may run jobs and are lightweight.",
    ),
    Field("schedulable_operation_count", _COUNT, "Number of these operations that wait for more than they have."),
    Field("pool_operation_count", _COUNT, "Number of operations in the pool itself."),
    Field("child_pool_count", _COUNT, "Number of configured pools directly below it."),
    Field("max_operation_count", _COUNT, "Limit of operations in force: its own, or the tree's limit for every pool."),
    Field(
        "max_running_operation_count",
        _COUNT,
        "Limit of running operations in force: its own, or the tree's limit for every pool.",
    ),
    Field(
        "fifo_sort_parameters",
        "list of words",
        "Criteria by which operations are ordered if `mode` is `fifo`.",
        path="settings/fifo_sort_parameters",
    ),
    # --- usage, demand and limits ---
    Field("usage", _AMOUNT, "Resources that its jobs hold.", aliases=("resource_usage",)),
    Field("usage_share", _SHARE, "`usage` as shares.", path="share/usage_share"),
    Field(
        "dominant_usage_share",
        _RATIO,
        "The largest share of `usage_share`.",
        aliases=("usage_ratio",),
        path="share/usage_share",
        derive=_largest,
    ),
    Field(
        "demand", _AMOUNT, "Resources that its jobs hold, and that its waiting jobs want.", aliases=("resource_demand",)
    ),
    Field("demand_share", _SHARE, "`demand` as shares.", path="share/demand_share"),
    Field("demand_ratio", _RATIO, "The largest share of `demand_share`.", path="share/demand_share", derive=_largest),
    Field(
        "resource_limits",
        _AMOUNT,
        "Upper bound of what it may be owed, from its limits and the nodes that match its filters; else the whole cluster.",
    ),
    Field("limits_share", _SHARE, "The limits as shares.", path="share/limits_share"),
    Field(
        "specified_resource_limits",
        _AMOUNT,
        "Limits as configured; null if there is no limit.",
        path="settings/resource_limits",
    ),
    Field(
        "scheduling_tag_filter_resource_limits",
        _AMOUNT,
        "Resources of the nodes that match its scheduling tag filter and the filters of pools above it; null without a filter.",
        path="share/tag_filter_limits",
    ),
    Field("limited_resource_demand", _AMOUNT, "The demand, cut to the limits."),
    Field("dominant_resource", _TEXT, "The resource with the largest share.", path="share/dominant_resource"),
    # --- fair share and guarantees ---
    Field("weight", _NUMBER, "Weight in force among its siblings: as configured, inferred, or 1.", path="share/weight"),
    Field(
        "fair_share",
        f"{_SHARE}, below `total`, `strong_guarantee`, `integral_guarantee`, `weight_proportional`",
        "Fair share now, in total and by its parts.",
        aliases=("detailed_fair_share",),
        path="share/fair_share",
    ),
    Field(
        "fair_share_ratio", _RATIO, "The largest share of `fair_share/total`.", path="share/fair_share", derive=_total
    ),
    Field("fair_resources", _AMOUNT, "`fair_share/total` as amounts."),
    Field(
        "detailed_dominant_fair_share",
        f"{_RATIO}, below each part",
        "The largest share of each part of `fair_share`.",
        path="share/fair_share",
        derive=_largest_of_each,
    ),
    Field(
        "strong_guarantee_resources",
        _AMOUNT,
        "Strong guarantee as configured; null if there is none.",
        aliases=("min_share_resources",),
        path="settings/strong_guarantee_resources",
    ),
    Field("effective_strong_guarantee_resources", _AMOUNT, "`strong_guarantee_share` as amounts."),
    Field(
        "strong_guarantee_share",
        _SHARE,
        "Strong guarantee in force: missing amounts are inferred, and amounts that the cluster does not have are scaled down.",
        aliases=("min_share",),
        path="share/strong_guarantee_share",
    ),
    Field(
        "min_share_ratio",
        _RATIO,
        "The largest share of `strong_guarantee_share`.",
        path="share/strong_guarantee_share",
        derive=_largest,
    ),
    Field(
        "promised_fair_share",
        _SHARE,
        "Share that it would get if all of its siblings wanted all that they could get; only where that is computed.",
        stable=False,
        path="share/promised_fair_share",
    ),
    Field(
        "estimated_guarantee_share",
        _SHARE,
        "Share that it could count on if all pools wanted everything; with YARN's shares, its steady fair share.",
        stable=False,
        path="share/estimated_guarantee_share",
    ),
    Field("promised_fair_resources", _AMOUNT, "`promised_fair_share` as amounts.", stable=False),
    Field("estimated_guarantee_resources", _AMOUNT, "`estimated_guarantee_share` as amounts.", stable=False),
    # --- satisfaction and starvation ---
    Field(
        "satisfaction_ratio",
        f"{_NUMBER}; 10⁹ stands for infinite",
        "The smallest ratio of usage to fair share of all its operations.",
        stable=False,
        path="share/satisfaction_ratio",
    ),
    Field(
        "local_satisfaction_ratio",
        f"{_NUMBER}; 10⁹ stands for infinite",
        "Ratio of its own usage to its own fair share.",
        stable=False,
        path="share/local_satisfaction_ratio",
    ),
    Field("scheduling_status", _TEXT, "`normal` or `below_fair_share`.", path="share/scheduling_status"),
    Field(
        "starvation_status",
        _TEXT,
        "`non_starving`, `starving` or `aggressively_starving`: below its fair share for longer than a timeout.",
        path="share/starvation_status",
    ),
    Field(
        "below_fair_share_since_ms",
        _TIMESTAMP,
        "Time since which it is below its fair share; null while it is not.",
        stable=False,
        path="share/below_fair_share_since_ms",
    ),
    Field(
        "starving_since_ms",
        _TIMESTAMP,
        "Time since which it starves; null while it does not.",
        stable=False,
        path="share/starving_since_ms",
    ),
    Field(
        "starvation_reason",
        _TEXT,
        "Share that it lacks while it starves: `fair_share`, or `min_share`, its strong guarantee; else null.",
        path="share/starvation_reason",
        derive=_or_nothing,
    ),
    Field(
        "due_to_fair_share",
        _AMOUNT,
        "Under a YARN policy: amounts due to the fair shares of the pool and of everything below it; null while there are none.",
        stable=False,
        path="share/due_to_fair_share",
    ),
    Field(
        "due_to_min_share",
        _AMOUNT,
        "The same for minimums, which are strong guarantees.",
        stable=False,
        path="share/due_to_min_share",
    ),
    Field(
        "effective_options",
        "as in [the reference of pools](pools.md), lengths of time in milliseconds",
        "Options of starvation and preemption in force: its own, else those of pools above it.",
        stable=False,
        path="share/options",
    ),
    Field("schedulable", _YES, "Whether it takes part in scheduling.", stable=False, path="share/schedulable"),
    # --- integral guarantees ---
    Field(
        "integral_guarantee_type",
        _TEXT,
        "`none`, `burst` or `relaxed`.",
        path="settings/integral_guarantees/guarantee_type",
    ),
    Field(
        "specified_resource_flow_ratio", _RATIO, "Resource flow as configured, divided by the cluster.", only=_INTEGRAL
    ),
    Field(
        "specified_resource_flow",
        _AMOUNT,
        "Flow of each resource: the ratio times the cluster. It may differ from the configured amount in all resources but one.",
        only=_INTEGRAL,
    ),
    Field(
        "specified_burst_ratio",
        _RATIO,
        "Burst guarantee as configured, divided by the cluster; 0 for a relaxed pool.",
        only=_INTEGRAL,
    ),
    Field(
        "specified_burst_guarantee_resources",
        _AMOUNT,
        "Burst of each resource: the ratio times the cluster.",
        only=_INTEGRAL,
    ),
    Field(
        "total_resource_flow_ratio",
        _RATIO,
        "Sum of `specified_resource_flow_ratio` of the pool and all pools below it.",
    ),
    Field("total_burst_ratio", _RATIO, "Sum of `specified_burst_ratio` of the pool and all pools below it."),
    Field("accumulated_resource_volume", _SECONDS, "Its savings.", only=_INTEGRAL),
    Field(
        "accumulated_resource_ratio_volume",
        "share × seconds, the smallest of any resource that the cluster has",
        "Its savings as one number.",
        only=_INTEGRAL,
    ),
    Field(
        "integral_pool_capacity",
        _SECONDS,
        "The most that it can save: its flow in a saturation period.",
        only=_INTEGRAL,
    ),
    Field("integral_pool_capacity_ratio", "share × seconds", "`integral_pool_capacity` as one number.", only=_INTEGRAL),
    Field(
        "estimated_burst_usage_duration_seconds",
        "seconds",
        "How long its savings last at full burst while the flow continues; null if the burst is not above the flow.",
        only=_INTEGRAL,
    ),
    Field(
        "proposed_integral_share",
        _SHARE,
        "Share that its savings gave at the last update. The savings are charged for it, used or not.",
        stable=False,
        path="share/proposed_integral_share",
    ),
    Field(
        "downtime",
        "`gaps` count; `together_ms` milliseconds; `last_from_ms`, `last_until_ms` milliseconds of Unix time",
        "Time that its savings were neither credited nor charged for, because services were down.",
        stable=False,
        only=_INTEGRAL,
    ),
    Field(
        "resource_distribution_info",
        f"{_AMOUNT}, below each part",
        "How much of the cluster is promised to pools below the root, and how much is not.",
        only=_ROOT,
    ),
)

_BY_NAME: Final = {name: field for field in FIELDS for name in (field.name, *field.aliases)}


def field_of(key: str) -> tuple[Field, list[str]]:
    """Return the field that a key begins with, and the parts that follow. Raises `BadInput` for an unknown field.

    A leading `share/` is ignored. It is accepted because the JSON of a pool has such fields below `share`.
    """
    parts = [part for part in split_key(key) if part]
    if len(parts) > 1 and parts[0] == "share":
        parts = parts[1:]
    found = _BY_NAME.get(parts[0]) if parts else None
    if found is None:
        raise BadInput("field", key, hint(parts[0] if parts else "", _BY_NAME, most_listed=12))
    return found, parts[1:]


def read(pool: PoolView, key: str) -> object:
    """Return the plain value of a field, or None if this pool does not have the field. Raises `BadInput` for unknown parts."""
    field, rest = field_of(key)
    value: Any = plain(pool)
    for part in split_key(field.path or field.name):
        value = value[part]
    if field.derive is not None and value is not None:
        value = field.derive(value)
    for part in rest:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise BadInput("field", key, f"{field.name} alone, because this field has no parts")
        if part not in value:
            raise BadInput("field", key, hint(part, value))
        value = value[part]
    return value


def words(value: object) -> str:
    """Return a value on one line. Text stays as it is, None is `null`, and everything else is JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
