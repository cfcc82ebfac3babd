"""A tree as the text of a plan file: what `check` reads, the other way round; pure.

Not told are when operations were started (a file tells their order), what they may get of a best allocation share, parts of savings
below whole units, and bursts of relaxed pools: nothing of it can be written in a plan.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from headrace.resources import RESOURCE_NAMES, ZERO
from headrace_fair_share.hdrf.model import (
    NO_LIMIT,
    IntegralKind,
    IntegralState,
    OperationInput,
    Partial,
    PoolInput,
    TreeInput,
    TreeOptions,
)
from headrace_fair_share.plan.check import OPTION_NAMES, POOL_NAMES, TREE_INTEGRAL_NAMES

__all__ = ["written"]

_SECONDS: Final = frozenset({"smooth_period", "pool_capacity_saturation_period"})


def written(tree: TreeInput) -> str:
    """The plan file, as YAML."""
    plan: dict[str, Any] = {"total": _amounts(tree.total.as_tuple())}
    options = _options(tree.options)
    if options:
        plan["options"] = options
    names = [pool.name for pool in tree.pools]
    plan["pools"] = [
        {"name": pool.name, **_above(pool, names), **_pool(pool, tree.integral.get(pool.name))} for pool in tree.pools
    ]
    plan["operations"] = [{"name": each.name, "pool": names[each.pool], **_operation(each)} for each in tree.operations]
    return yaml.safe_dump(plan, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)


def _above(pool: PoolInput, names: list[str]) -> dict[str, str]:
    return {} if pool.parent < 0 else {"parent": names[pool.parent]}


def _options(options: TreeOptions) -> dict[str, Any]:
    found: dict[str, Any] = {}
    default = TreeOptions()
    if options.main_resource != default.main_resource:
        found["main_resource"] = RESOURCE_NAMES[options.main_resource]
    for key, name in OPTION_NAMES.items():
        value = getattr(options, name)
        if value == getattr(default, name):
            continue
        into = found.setdefault("integral_guarantees", {}) if key in TREE_INTEGRAL_NAMES else found
        into[key] = f"{round(value * 1000)}ms" if key in _SECONDS else value
    return found


def _pool(pool: PoolInput, state: IntegralState | None) -> dict[str, Any]:
    default = PoolInput(name="", parent=-1)
    found: dict[str, Any] = {}
    for key, name in POOL_NAMES.items():
        value = getattr(pool, name)
        if value == getattr(default, name):
            continue
        match key:
            case "strong_guarantee_resources" | "resource_limits":
                found[key] = _amounts(value)
            case "fifo_sort_parameters":
                found[key] = [str(each) for each in value]
            case "mode":
                found[key] = str(value)
            case _:
                found[key] = value
    integral = _integral(pool)
    if integral:
        found["integral_guarantees"] = integral
    if pool.integral is not IntegralKind.NONE and state is not None:
        slots, cpu, gpu, memory, network = (round(part) for part in state.volume)
        found["accumulated_resource_volume"] = _amounts((slots, cpu, gpu, memory, network))
    return found


def _integral(pool: PoolInput) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if pool.integral is not IntegralKind.NONE:
        found["guarantee_type"] = str(pool.integral)
    if pool.resource_flow != ZERO:
        found["resource_flow"] = _amounts(pool.resource_flow.as_tuple())
    if pool.burst_guarantee != ZERO and pool.integral is not IntegralKind.RELAXED:
        found["burst_guarantee_resources"] = _amounts(pool.burst_guarantee.as_tuple())
    if pool.relaxed_share_multiplier_limit is not None:
        found["relaxed_share_multiplier_limit"] = pool.relaxed_share_multiplier_limit
    if not pool.can_accept_free_volume:
        found["can_accept_free_volume"] = False
    if pool.distribute_free_volume is not None:
        found["should_distribute_free_volume_among_children"] = pool.distribute_free_volume
    return found


def _operation(operation: OperationInput) -> dict[str, Any]:
    found: dict[str, Any] = {
        "resource_demand": _amounts(operation.demand.as_tuple()),
        "resource_usage": _amounts(operation.usage.as_tuple()),
    }
    if operation.weight != 1.0:
        found["weight"] = operation.weight
    if operation.limits != NO_LIMIT:
        found["resource_limits"] = _amounts(operation.limits)
    if operation.gang:
        found["is_gang"] = True
    if operation.historic_usage_average:
        found["historic_usage_average"] = operation.historic_usage_average
    return found


def _amounts(partial: Partial) -> dict[str, Any]:
    """Amounts as people write them: cpu in cores, memory in bytes."""
    return {
        name: amount / 100 if name == "cpu" and amount % 100 else amount // 100 if name == "cpu" else amount
        for name, amount in zip(RESOURCE_NAMES, partial, strict=True)
        if amount is not None
    }
