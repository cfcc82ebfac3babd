"""From values to a description of a tree: every key, figure and reference is checked, and all complaints are told together.

    total:      {cpu: 100, memory: 400G}
    options:    {main_resource: cpu}
    pools:      research: {weight: 2, strong_guarantee_resources: {cpu: 40}, pools: {vision: {mode: fifo}}}
    operations: train: {pool: vision, job_count: 30, resources: {cpu: 1, memory: 4G}}

Pools and operations stand in a map by name, or in a list of maps with `name`; a pool stands inside another, or names its `parent`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, pool_name
from headrace.resources import LARGEST_SUM, RESOURCE_NAMES, ZERO, Resources
from headrace.wire.operations import LARGEST_JOB_COUNT
from headrace_fair_share.hdrf.model import (
    NO_LIMIT,
    IntegralKind,
    Limits,
    Mode,
    OperationInput,
    PoolInput,
    TreeOptions,
)
from headrace_fair_share.plan.figures import (
    Desk,
    Reader,
    amounts,
    count,
    fifo_keys,
    flag,
    hint,
    length_s,
    number,
    read_map,
    text_of,
    weight,
    word,
)
from headrace_fair_share.plan.file import Listing, Map, Text, Value
from headrace_fair_share.plan.placing import RawPool, placed

__all__ = ["OPTION_NAMES", "POOL_NAMES", "TREE_INTEGRAL_NAMES", "Description", "check"]

_LARGEST_RATIO: Final = 1e6
_LONGEST_NAME: Final = 100


@dataclass
class Description:
    """A tree that can be computed."""

    total: Resources
    options: TreeOptions
    #: Parents before children.
    pools: list[PoolInput]
    operations: list[OperationInput]
    #: By pool: savings as share of the cluster times seconds; pools for which the file says nothing are missing.
    ratio_volumes: dict[str, float] = field(default_factory=dict)
    volumes: dict[str, Limits] = field(default_factory=dict)
    pool_lines: dict[str, int] = field(default_factory=dict)
    operation_lines: dict[str, int] = field(default_factory=dict)


def check(root: Map, desk: Desk) -> Description | None:
    """The tree that a file describes; None where anything was complained of."""
    found = cast("dict[str, Value]", read_map(desk, root, "", dict.fromkeys(_TOP, _kept)))
    total = _total(desk, root, found.get("total"))
    options = _options(desk, found.get("options"))
    raw = list(_pools(desk, found.get("pools"), "pools", None, {}))
    pools = placed(desk, raw)
    description = Description(total, options, [], [])
    places = {pool.name: place for place, pool in enumerate(pools)}
    for pool in pools:
        _add_pool(desk, description, pool, places)
    _add_operations(desk, description, found.get("operations"), {pool.name: places.get(pool.name, 0) for pool in raw})
    if not desk.problems:
        _bounded(desk, description)
    return None if desk.problems else description


def _kept(_desk: Desk, value: Value, _key: str) -> object:
    return value


_TOP: Final = ("total", "options", "pools", "operations")
_RATIO: Final = number(0.0, 1e12, "a number, 0 or more: share of the cluster times seconds")
_INTEGRAL: Final[dict[str, Reader]] = {
    "guarantee_type": word(IntegralKind),
    "resource_flow": amounts,
    "burst_guarantee_resources": amounts,
    "relaxed_share_multiplier_limit": number(1.0, 10.0, "a number from 1 to 10"),
    "can_accept_free_volume": flag,
    "should_distribute_free_volume_among_children": flag,
}
_POOL: Final[dict[str, Reader]] = {
    "parent": _kept,
    "mode": word(Mode),
    "weight": weight,
    "strong_guarantee_resources": amounts,
    "resource_limits": amounts,
    "integral_guarantees": _kept,
    "fifo_sort_parameters": fifo_keys,
    "enable_step_function_for_gang_operations": flag,
    "enable_fifo_children_reordering_for_guarantee_utilization": flag,
    "compute_promised_guarantee_fair_share": flag,
    "enable_priority_strong_guarantee_adjustment": flag,
    "enable_priority_strong_guarantee_adjustment_donorship": flag,
    "infer_children_weights_from_historic_usage": flag,
    "historic_usage_average": number(0.0, 1e6, "a number, 0 or more"),
    "accumulated_resource_volume": amounts,
    "accumulated_resource_ratio_volume": _RATIO,
    "pools": _kept,
}
_OPERATION: Final[dict[str, Reader]] = {
    "pool": _kept,
    "weight": weight,
    "job_count": count(LARGEST_JOB_COUNT),
    "running_jobs": count(LARGEST_JOB_COUNT),
    "resources": amounts,
    "resource_demand": amounts,
    "resource_usage": amounts,
    "resource_limits": amounts,
    "is_gang": flag,
    "historic_usage_average": number(0.0, 1e6, "a number, 0 or more"),
}


def _resource(desk: Desk, value: Value, key: str) -> int | None:
    name = value.text if isinstance(value, Text) else ""
    if name in RESOURCE_NAMES:
        return RESOURCE_NAMES.index(name)
    desk.refuse(value, key, "one of " + ", ".join(RESOURCE_NAMES))
    return None


_TREE_INTEGRAL: Final[dict[str, Reader]] = {
    "smooth_period": length_s,
    "pool_capacity_saturation_period": length_s,
    "relaxed_share_multiplier_limit": number(1.0, 10.0, "a number from 1 to 10"),
    "charge_skipped_relaxed_pools": flag,
}
#: Options that stand under `integral_guarantees`.
TREE_INTEGRAL_NAMES: Final = frozenset(_TREE_INTEGRAL)
_OPTIONS: Final[dict[str, Reader]] = {
    "main_resource": _resource,
    "integral_guarantees": _kept,
    "should_distribute_free_volume_among_children": flag,
    "infer_weight_from_guarantees_share_multiplier": number(1.0, 1e6, "a number from 1 to 1000000"),
    "enable_step_function_for_gang_operations": flag,
    "enable_fifo_children_reordering_for_guarantee_utilization": flag,
    "enable_improved_fair_share_by_fit_factor_computation": flag,
    "enable_improved_fair_share_by_fit_factor_computation_distribution_gap": flag,
}
#: What the algorithm calls settings of pools.
POOL_NAMES: Final = {
    "mode": "mode",
    "weight": "weight",
    "strong_guarantee_resources": "strong_guarantee",
    "resource_limits": "limits",
    "fifo_sort_parameters": "fifo_sort",
    "enable_step_function_for_gang_operations": "gang_step_function",
    "enable_fifo_children_reordering_for_guarantee_utilization": "fifo_reordering",
    "compute_promised_guarantee_fair_share": "compute_promised_guarantee",
    "enable_priority_strong_guarantee_adjustment": "priority_strong_guarantee",
    "enable_priority_strong_guarantee_adjustment_donorship": "priority_strong_guarantee_donor",
    "infer_children_weights_from_historic_usage": "historic_usage_weights",
    "historic_usage_average": "historic_usage_average",
}
#: What it calls options of trees, but for the main resource, which is a place there.
OPTION_NAMES: Final = {
    "smooth_period": "smooth_period_s",
    "pool_capacity_saturation_period": "saturation_period_s",
    "relaxed_share_multiplier_limit": "relaxed_share_multiplier_limit",
    "charge_skipped_relaxed_pools": "charge_skipped_relaxed_pools",
    "should_distribute_free_volume_among_children": "distribute_free_volume",
    "infer_weight_from_guarantees_share_multiplier": "infer_weight_multiplier",
    "enable_step_function_for_gang_operations": "gang_step_function",
    "enable_fifo_children_reordering_for_guarantee_utilization": "fifo_reordering",
    "enable_improved_fair_share_by_fit_factor_computation": "improved",
    "enable_improved_fair_share_by_fit_factor_computation_distribution_gap": "distribution_gap",
}


def whole(partial: object) -> Resources:
    """Amounts with nothing where nothing was said."""
    return Resources(*(amount or 0 for amount in cast("Limits", partial or NO_LIMIT)))


def _total(desk: Desk, root: Map, value: Value | None) -> Resources:
    if value is None:
        if not any(problem.key == "total" for problem in desk.problems):
            desk.say(root.line, "total", "missing", "what there is to share, such as {cpu: 100, memory: 400G}")
        return ZERO
    before = len(desk.problems)
    total = whole(amounts(desk, value, "total"))
    if total == ZERO and len(desk.problems) == before:
        desk.refuse(value, "total", "at least one resource of which there is some", "nothing to share")
    return total


def _options(desk: Desk, value: Value | None) -> TreeOptions:
    read = read_map(desk, value, "options", _OPTIONS) if value is not None else {}
    integral = read.pop("integral_guarantees", None)
    if integral is not None:
        read |= read_map(desk, cast("Value", integral), "options.integral_guarantees", _TREE_INTEGRAL)
    settings: dict[str, Any] = {OPTION_NAMES.get(name, name): found for name, found in read.items()}
    return TreeOptions(**settings)


def _named(desk: Desk, value: Value | None, key: str) -> Iterator[tuple[str, int, Value, str]]:
    """Name, line, settings and key of what stands in a map by name, or in a list of maps with `name`."""
    match value:
        case None:
            return
        case Map():
            for name, (line, item) in value.entries.items():
                yield name, line, item, f"{key}.{name}"
        case Listing():
            for at, item in enumerate(value.items):
                title = item.entries.get("name", (0, None))[1] if isinstance(item, Map) else None
                if not isinstance(item, Map) or not isinstance(title, Text):
                    desk.say(item.line, f"{key}[{at}]", "no name", "a map with name and settings")
                    continue
                rest = {each: found for each, found in item.entries.items() if each != "name"}
                yield title.text, title.line, Map(item.line, rest), f"{key}[{at}]"
        case _:
            desk.refuse(value, key, "a map by name, or a list of maps with name")


def _pools(desk: Desk, value: Value | None, key: str, above: str | None, seen: dict[str, int]) -> Iterator[RawPool]:
    for name, line, item, place in _named(desk, value, key):
        try:
            pool_name(name)
        except BadInput as error:
            desk.say(line, place, f"{name!r} is no name of a pool", error.expected, name)
            continue
        if name in seen:
            desk.say(
                line, place, f"pool {name} stands on line {seen[name]} already", "each name once in the tree", name
            )
            continue
        seen[name] = line
        nothing = isinstance(item, Text) and item.is_null
        settings = {} if nothing else read_map(desk, item, place, _POOL)
        inside, parent = settings.pop("pools", None), settings.pop("parent", None)
        pool = RawPool(name, line, place, above, settings)
        if parent is not None:
            pool.name_parent(desk, cast("Value", parent))
        yield pool
        if place.count(".pools") > pool.MOST_NESTED:
            desk.say(line, place, "pools stand too deep inside each other", f"at most {pool.MOST_NESTED} levels")
        elif inside is not None:
            yield from _pools(desk, cast("Value", inside), f"{place}.pools", name, seen)


def _add_pool(desk: Desk, into: Description, raw: RawPool, places: Mapping[str, int]) -> None:
    read = dict(raw.settings)
    into.pool_lines[raw.name] = raw.line
    if "accumulated_resource_ratio_volume" in read:
        into.ratio_volumes[raw.name] = cast("float", read.pop("accumulated_resource_ratio_volume"))
    if "accumulated_resource_volume" in read:
        into.volumes[raw.name] = cast("Limits", read.pop("accumulated_resource_volume"))
        if raw.name in into.ratio_volumes:
            desk.say(raw.line, raw.key, "savings are given twice", "either the volume or the ratio volume")
    integral = _integral(desk, read.pop("integral_guarantees", None), f"{raw.key}.integral_guarantees")
    if raw.name in {**into.ratio_volumes, **into.volumes} and integral.get("integral", "none") == "none":
        desk.say(raw.line, raw.key, "savings without integral guarantees", "a guarantee_type, burst or relaxed")
    named: dict[str, Any] = {POOL_NAMES.get(name, name): found for name, found in read.items()}
    parent = -1 if raw.parent == ROOT_POOL else places[raw.parent]
    into.pools.append(PoolInput(name=raw.name, parent=parent, **named, **integral))


def _integral(desk: Desk, value: object, key: str) -> dict[str, Any]:
    if value is None:
        return {}
    at = cast("Value", value)
    read = read_map(desk, at, key, _INTEGRAL)
    kind, burst = read.get("guarantee_type", IntegralKind.NONE), whole(read.get("burst_guarantee_resources"))
    if kind is IntegralKind.RELAXED and burst != ZERO:
        place = f"{key}.burst_guarantee_resources"
        desk.refuse(at, place, "none there, or guarantee_type burst", "a figure on a relaxed pool")
    names = {"relaxed_share_multiplier_limit", "can_accept_free_volume"}
    return {name: found for name, found in read.items() if name in names} | {
        "integral": kind,
        "resource_flow": whole(read.get("resource_flow")),
        "burst_guarantee": burst,
        "distribute_free_volume": read.get("should_distribute_free_volume_among_children"),
    }


def _add_operations(desk: Desk, into: Description, value: Value | None, places: Mapping[str, int]) -> None:
    for name, line, item, key in _named(desk, value, "operations"):
        if not name.isprintable() or not 0 < len(name.strip()) <= _LONGEST_NAME:
            desk.say(line, key, "no name of an operation", f"1 to {_LONGEST_NAME} characters that can be printed", name)
            continue
        if name in into.operation_lines:
            wrong = f"operation {name} stands on line {into.operation_lines[name]} already"
            desk.say(line, key, wrong, "each name once", name)
            continue
        into.operation_lines[name] = line
        read = read_map(desk, item, key, _OPERATION)
        pool = _pool_of(desk, into, read.get("pool"), (line, key), places)
        demand, usage, pending = _wishes(desk, read, (line, key), slotted=into.total.user_slots > 0)
        into.operations.append(
            OperationInput(
                name=name,
                pool=pool,
                weight=cast("float", read.get("weight", 1.0)),
                demand=demand,
                usage=usage,
                limits=cast("Limits", read.get("resource_limits", NO_LIMIT)),
                gang=bool(read.get("is_gang", False)),
                start_time_ms=len(into.operations),
                pending_job_count=pending,
                historic_usage_average=cast("float", read.get("historic_usage_average", 0.0)),
            )
        )


def _pool_of(desk: Desk, into: Description, value: object, place: tuple[int, str], places: Mapping[str, int]) -> int:
    line, key = place
    if value is None:
        desk.say(line, f"{key}.pool", "missing", "the pool that it stands in")
        return 0
    at = cast("Value", value)
    name = text_of(desk, at, f"{key}.pool")
    if name is not None and name not in places:
        words = "a pool; none is in the root" if name == ROOT_POOL else (hint(name, places) if places else "a pool")
        desk.refuse(at, f"{key}.pool", words, f"there is no pool {at.shown()}")
    return places.get(name or "", 0)


def _wishes(
    desk: Desk, read: dict[str, object], place: tuple[int, str], *, slotted: bool
) -> tuple[Resources, Resources, int]:
    """Demand, usage and pending jobs: from jobs of one size, or as they are given."""
    line, key = place
    by_jobs = [name for name in ("resources", "job_count", "running_jobs") if name in read]
    outright = [name for name in ("resource_demand", "resource_usage") if name in read]
    if by_jobs and outright:
        desk.say(
            line, key, f"both {by_jobs[0]} and {outright[0]}", "either jobs and their resources, or demand and usage"
        )
    elif outright:
        demand, usage = whole(read.get("resource_demand")), whole(read.get("resource_usage"))
        if not demand.dominates(usage):
            desk.say(line, f"{key}.resource_usage", "more than resource_demand", "a usage that is part of the demand")
        return demand, usage, 0
    elif "resources" not in read:
        desk.say(line, key, "no resources", "resources of each job and job_count, or resource_demand")
    else:
        return _jobs(desk, read, place, slotted=slotted)
    return ZERO, ZERO, 0


def _jobs(
    desk: Desk, read: dict[str, object], place: tuple[int, str], *, slotted: bool
) -> tuple[Resources, Resources, int]:
    """A job takes one slot unless it says otherwise; in a file that counts no slots it takes none."""
    line, key = place
    slots, *others = cast("Limits", read["resources"])
    each = whole((1 if slots is None and slotted else slots, *others))
    jobs, running = cast("int", read.get("job_count", 1)), cast("int", read.get("running_jobs", 0))
    if running > jobs:
        desk.say(line, f"{key}.running_jobs", f"{running} run of {jobs}", "at most job_count")
    return each * jobs, each * min(jobs, running), max(0, jobs - running)


def _bounded(desk: Desk, tree: Description) -> None:
    """Refuses guarantees so far beyond the cluster that their sums could not be told any more."""
    total = tree.total
    most = min(_LARGEST_RATIO, LARGEST_SUM / max(total.as_tuple()))
    settings: tuple[Literal["strong_guarantee", "resource_flow", "burst_guarantee"], ...]
    settings = ("strong_guarantee", "resource_flow", "burst_guarantee")
    for setting in settings:
        together = 0.0
        for pool in tree.pools:
            figures = getattr(pool, setting)
            amount = figures if isinstance(figures, Resources) else whole(figures)
            together += max(amount.share_of(total))
            if together > most:
                line = tree.pool_lines[pool.name]
                expected = f"guarantees that come to at most {most:g} times the cluster"
                desk.say(line, f"pools.{pool.name}", f"too large a {setting.replace('_', ' ')}", expected)
                break
