"""The table of all fields that `headrace pool get` can print, with units, stability and source. Pure.

This table is the only source: the command reads fields by it, and docs/reference/fields.md is generated from it. The
name of a field may be followed by names of parts: `accumulated_resource_volume/cpu`, or the same with dots.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from headrace.errors import BadInput
from headrace.near import hint
from headrace.pools.attributes.schema import split_key
from headrace.wire.pools import PoolView
from headrace_cli.show.plain_values import plain

_SHARE = "share of the cluster, by resource"
_AMOUNT = "amount, by resource: cores, bytes, pieces"
_SECONDS = "amount × seconds, by resource: core-seconds, byte-seconds"
_RATIO = "share of the cluster, the largest of any resource"
_MOMENT = "milliseconds of Unix time"
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
    #: Other names of the field, mostly the names that other schedulers use.
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
    Field("parent", _TEXT, "The pool above it; empty for the root."),
    Field("path", _TEXT, "Names from the top down, with slashes.", aliases=("full_path",)),
    Field("ephemeral", _YES, "Nobody made it: it is there while operations name it.", aliases=("is_ephemeral",)),
    Field(
        "settings", "as in [the reference of pools](pools.md)", "What is configured; what is not set has its default."
    ),
    Field("mode", _TEXT, "`fair_share` or `fifo`.", path="settings/mode"),
    Field("operation_count", _COUNT, "Operations of the pool and of all below it."),
    Field("running_operation_count", _COUNT, "Those of them that may run jobs and are not lightweight."),
    Field("lightweight_running_operation_count", _COUNT, "Those of them that may run jobs and are lightweight."),
    Field("schedulable_operation_count", _COUNT, "Those of them that wait for more than they have."),
    Field("pool_operation_count", _COUNT, "Operations of the pool itself."),
    Field("child_pool_count", _COUNT, "Pools directly below it that were made."),
    Field("max_operation_count", _COUNT, "Limit in force: its own, or the tree's for every pool."),
    Field("max_running_operation_count", _COUNT, "Likewise, of running operations."),
    Field(
        "fifo_sort_parameters",
        "list of words",
        "What operations are ranked by, where `mode` is `fifo`.",
        path="settings/fifo_sort_parameters",
    ),
    # --- usage, demand and limits ---
    Field("usage", _AMOUNT, "What its jobs hold.", aliases=("resource_usage",)),
    Field("usage_share", _SHARE, "The same as shares.", path="share/usage_share"),
    Field(
        "dominant_usage_share",
        _RATIO,
        "The largest of these.",
        aliases=("usage_ratio",),
        path="share/usage_share",
        derive=_largest,
    ),
    Field("demand", _AMOUNT, "What its jobs hold and its waiting jobs want.", aliases=("resource_demand",)),
    Field("demand_share", _SHARE, "The same as shares.", path="share/demand_share"),
    Field("demand_ratio", _RATIO, "The largest of these.", path="share/demand_share", derive=_largest),
    Field(
        "resource_limits",
        _AMOUNT,
        "The most that it may be owed, by its limits and the nodes that match its filters; else the whole cluster.",
    ),
    Field("limits_share", _SHARE, "The same as shares.", path="share/limits_share"),
    Field(
        "specified_resource_limits",
        _AMOUNT,
        "Limits as configured; null where none is.",
        path="settings/resource_limits",
    ),
    Field(
        "scheduling_tag_filter_resource_limits",
        _AMOUNT,
        "All that the nodes have which match its scheduling tag filters, those of pools above it included; null where there is none.",
        path="share/tag_filter_limits",
    ),
    Field("limited_resource_demand", _AMOUNT, "The demand, as far as the limits let it."),
    Field("dominant_resource", _TEXT, "The resource with the largest share.", path="share/dominant_resource"),
    # --- fair share and guarantees ---
    Field("weight", _NUMBER, "In force among its siblings: as configured, inferred, or 1.", path="share/weight"),
    Field(
        "fair_share",
        f"{_SHARE}, below `total`, `strong_guarantee`, `integral_guarantee`, `weight_proportional`",
        "What it is owed at this moment, and for what.",
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
        "Strong guarantee as configured; null where none is.",
        aliases=("min_share_resources",),
        path="settings/strong_guarantee_resources",
    ),
    Field("effective_strong_guarantee_resources", _AMOUNT, "`strong_guarantee_share` as amounts."),
    Field(
        "strong_guarantee_share",
        _SHARE,
        "Strong guarantee in force: what was left out is inferred, and what the cluster cannot hold is scaled down.",
        aliases=("min_share",),
        path="share/strong_guarantee_share",
    ),
    Field("min_share_ratio", _RATIO, "The largest of these.", path="share/strong_guarantee_share", derive=_largest),
    Field(
        "promised_fair_share",
        _SHARE,
        "What it would get if all of its siblings wanted all they could get; where that is reckoned.",
        stable=False,
        path="share/promised_fair_share",
    ),
    Field(
        "estimated_guarantee_share",
        _SHARE,
        "What it could count on if everybody wanted everything; with YARN's shares its steady share.",
        stable=False,
        path="share/estimated_guarantee_share",
    ),
    Field("promised_fair_resources", _AMOUNT, "`promised_fair_share` as amounts.", stable=False),
    Field("estimated_guarantee_resources", _AMOUNT, "`estimated_guarantee_share` as amounts.", stable=False),
    # --- satisfaction and starvation ---
    Field(
        "satisfaction_ratio",
        f"{_NUMBER}; 10⁹ stands for infinite",
        "The least usage over fair share of all its operations.",
        stable=False,
        path="share/satisfaction_ratio",
    ),
    Field(
        "local_satisfaction_ratio",
        f"{_NUMBER}; 10⁹ stands for infinite",
        "Its own usage over its own fair share.",
        stable=False,
        path="share/local_satisfaction_ratio",
    ),
    Field("scheduling_status", _TEXT, "`normal` or `below_fair_share`.", path="share/scheduling_status"),
    Field(
        "starvation_status",
        _TEXT,
        "`non_starving`, `starving` or `aggressively_starving`: below its fair share for long.",
        path="share/starvation_status",
    ),
    Field(
        "below_fair_share_since_ms",
        _MOMENT,
        "Since when it is below its fair share; null while it is not.",
        stable=False,
        path="share/below_fair_share_since_ms",
    ),
    Field(
        "starving_since_ms",
        _MOMENT,
        "Since when it starves; null while it does not.",
        stable=False,
        path="share/starving_since_ms",
    ),
    Field(
        "starvation_reason",
        _TEXT,
        "What it is short of while it starves: `fair_share`, or `min_share`, its strong guarantee; else null.",
        path="share/starvation_reason",
        derive=_or_nothing,
    ),
    Field(
        "due_to_fair_share",
        _AMOUNT,
        "Under a YARN policy: what it and all below it are due to their fair shares; null while that is nothing.",
        stable=False,
        path="share/due_to_fair_share",
    ),
    Field(
        "due_to_min_share",
        _AMOUNT,
        "The same to minimums, which are strong guarantees.",
        stable=False,
        path="share/due_to_min_share",
    ),
    Field(
        "effective_options",
        "as in [the reference of pools](pools.md), lengths of time in milliseconds",
        "Options of starvation and preemption in force: its own, else those above it.",
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
    Field("specified_resource_flow_ratio", _RATIO, "What flows in, as configured over the cluster.", only=_INTEGRAL),
    Field(
        "specified_resource_flow",
        _AMOUNT,
        "That ratio of each resource; of all but one not what was configured, but what flows in.",
        only=_INTEGRAL,
    ),
    Field(
        "specified_burst_ratio",
        _RATIO,
        "The most that its savings may give at once, as configured over the cluster; 0 of a relaxed pool.",
        only=_INTEGRAL,
    ),
    Field("specified_burst_guarantee_resources", _AMOUNT, "That ratio of each resource.", only=_INTEGRAL),
    Field("total_resource_flow_ratio", _RATIO, "`specified_resource_flow_ratio` of the pool and all below it, in sum."),
    Field("total_burst_ratio", _RATIO, "`specified_burst_ratio` of the pool and all below it, in sum."),
    Field("accumulated_resource_volume", _SECONDS, "What it has saved.", only=_INTEGRAL),
    Field(
        "accumulated_resource_ratio_volume",
        "share × seconds, the smallest of any resource that the cluster has",
        "What it has saved, as one number.",
        only=_INTEGRAL,
    ),
    Field(
        "integral_pool_capacity",
        _SECONDS,
        "The most that it can save: the flow of a saturation period.",
        only=_INTEGRAL,
    ),
    Field("integral_pool_capacity_ratio", "share × seconds", "The same as one number.", only=_INTEGRAL),
    Field(
        "estimated_burst_usage_duration_seconds",
        "seconds",
        "How long its savings last at full burst while the flow goes on; null where the burst is not above the flow.",
        only=_INTEGRAL,
    ),
    Field(
        "proposed_integral_share",
        _SHARE,
        "What its savings gave at the last update, used or not: what they are charged for.",
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

    `share/…`, as in the JSON of a pool, means the same as without `share`.
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
            raise BadInput("field", key, f"{field.name} alone: it has no parts")
        if part not in value:
            raise BadInput("field", key, hint(part, value))
        value = value[part]
    return value


def words(value: object) -> str:
    """Return a value on one line. Text stays as it is, None is `null`, and everything else is JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
