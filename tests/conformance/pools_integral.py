"""Cases of what is told of pools with integral guarantees, and of the shares that they get."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from headrace.ids import ROOT_POOL
from headrace.pools import IntegralType
from headrace.resources import RESOURCE_NAMES, Resources
from headrace.wire.integral import Volume
from headrace_fair_share.hdrf.model import ErrorKind, PoolInput, TreeInput, UpdateOptions
from headrace_fair_share.integral_guarantees import (
    distribution,
    estimated_burst_usage_duration_seconds,
    specified_ratio,
)
from headrace_integral.volumes import ratio_volumes
from tests.conformance.engines import Engine
from tests.conformance.integral_trees import (
    CPU,
    ROOT,
    all_compared,
    compared,
    cores_saved,
    cpu_amount,
    tree_of,
    volume_of,
)
from tests.conformance.reporting import Comparison, only_keys
from tests.conformance.trees import amounts
from tests.conformance.via_service import shown
from tests.support.update_result import UpdateResult

__all__ = ["fields", "share"]

_DAY_S: Final = 86_400.0
_SHARES: Final = {
    "strong": "strong_part",
    "integral": "integral_part",
    "free": "weight_proportional_part",
    "total": "fair_share",
    "estimated_guarantee_share": "estimated_guarantee_share",
}


def fields(case: dict[str, Any], engine: Engine) -> list[Comparison]:
    """What is told of pools; which formula is asked for shows in what is given."""
    given, expect = case["given"], case["expect"]
    match given:
        case {"tree": pools}:
            only_keys(given, {"total_cpu", "tree"}, "given")
            return _totals(given["total_cpu"], pools, expect, engine)
        case {"multiplier": multiplier, "pools": pools}:
            only_keys(given, {"total_cpu", "multiplier", "pools"}, "given")
            tree = tree_of(given["total_cpu"], pools, UpdateOptions(infer_weight_multiplier=float(multiplier)))
            weights = {name: shares.weight for name, shares in engine.update(tree).pools.items()}
            only_keys(expect, {"weight"}, "expect")
            return all_compared(expect["weight"], weights, "weight")
        case {"pools": pools}:
            only_keys(given, {"pools"}, "given")
            return all_compared(expect, _planned(pools, engine))
        case {"flow_cpu": flow, "multiplier": multiplier}:
            only_keys(given, {"flow_cpu", "multiplier"}, "given")
            return all_compared(expect, {"integral_ceiling_cpu": _ceiling(flow, multiplier, engine)})
        case {"top_level_strong_cpu": strong}:
            only_keys(given, {"total_cpu", "top_level_strong_cpu", "total_flow_ratio", "total_burst_ratio"}, "given")
            ratios = given["total_flow_ratio"], given["total_burst_ratio"]
            told = distribution(cpu_amount(given["total_cpu"]), [cpu_amount(strong)], *ratios)
            plain = {field: getattr(told, field)["cpu"] for field in told.__struct_fields__}
            names = {field: field.removesuffix("_resources") + "_cpu" for field in plain}
            return all_compared(expect, {names[field]: figure for field, figure in plain.items()})
        case {"resource_flow": flow}:
            only_keys(given, {"total", "resource_flow"}, "given")
            return _accrual(amounts(given["total"]), amounts(flow), expect, engine)
        case {"accumulated_resource_volume": volume}:
            only_keys(given, {"total", "accumulated_resource_volume"}, "given")
            ratio = _ratio_volume(volume_of(volume), amounts(given["total"]))
            return all_compared(expect, {"accumulated_resource_ratio_volume": ratio})
        case {"accumulated_resource_ratio_volume": ratio}:
            only_keys(given, {"total_cpu", "accumulated_resource_ratio_volume", "usage_cpu", "inflow_cpu"}, "given")
            return all_compared(expect, _until_empty(given, float(ratio), engine))
        case _:
            of_pool = _of_pool(given)
            comparisons = all_compared(expect, of_pool)
            return comparisons + [compared(key, None, of_pool[key]) for key in case.get("expect_absent", ())]


def _of_pool(given: dict[str, Any]) -> dict[str, Any]:
    only_keys(
        given,
        {
            "total_cpu",
            "resource_flow_cpu",
            "burst_cpu",
            "accumulated_volume_cpu_seconds",
            "guarantee_type",
            "saturation_period_seconds",
        },
        "given",
    )
    pool = {
        "type": given["guarantee_type"],
        "flow": given["resource_flow_cpu"],
        "burst": given.get("burst_cpu"),
        "volume": given["accumulated_volume_cpu_seconds"],
    }
    options = UpdateOptions(saturation_period_s=float(given.get("saturation_period_seconds", _DAY_S)))
    told = shown(tree_of(given["total_cpu"], {"a": pool}, options))["a"]
    assert told.integral_pool_capacity is not None
    return {
        "specified_resource_flow_ratio": told.specified_resource_flow_ratio,
        "specified_burst_ratio": told.specified_burst_ratio,
        "accumulated_resource_ratio_volume": told.accumulated_resource_ratio_volume,
        "integral_pool_capacity_cpu": told.integral_pool_capacity["cpu"],
        "capacity_ratio_volume": told.integral_pool_capacity_ratio,
        "estimated_burst_usage_duration_seconds": told.estimated_burst_usage_duration_seconds,
    }


def _totals(total_cpu: float, pools: dict[str, Any], expect: dict[str, Any], engine: Engine) -> list[Comparison]:
    tree = tree_of(total_cpu, pools)
    result, seen = engine.update(tree), shown(tree)
    comparisons: list[Comparison] = []
    for name, wanted in expect.items():
        told = result.root if name == ROOT else result.pools[name]
        actual = {
            "total_resource_flow_ratio": told.total_flow_ratio,
            "total_burst_ratio": told.total_burst_ratio,
            "specified_absent": seen[ROOT_POOL if name == ROOT else name].specified_resource_flow_ratio is None
            and told.flow_ratio == told.burst_ratio == 0.0,
        }
        comparisons += all_compared(wanted, actual, name)
    return comparisons


def _planned(pools: dict[str, Any], engine: Engine) -> dict[str, Any]:
    """How large a cluster the guarantees need, and what they would need if all were strong."""
    most = {name: max(pool.get("flow", 0), pool.get("burst", 0)) for name, pool in pools.items()}
    needed = _smallest(pools, engine)
    told = engine.update(tree_of(needed, pools)).root
    told_of = distribution(cpu_amount(needed), [], told.total_flow_ratio, told.total_burst_ratio)
    return {
        "cores_needed": needed,
        "strong_only_cores": _smallest({name: {"strong": cores} for name, cores in most.items()}, engine),
        "sum_flow": told_of.distributed_resource_flow["cpu"],
        "sum_burst": told_of.distributed_burst_guarantee_resources["cpu"],
        "alert_at_2000": _overcommitted(engine.update(tree_of(2000, pools))),
        "alert_at_1999": _overcommitted(engine.update(tree_of(1999, pools))),
    }


def _smallest(pools: dict[str, Any], engine: Engine) -> int:
    """The smallest cluster, in whole cores, that keeps all that is promised."""
    low, high = 1, 1 << 20
    while low < high:
        middle = (low + high) // 2
        if _overcommitted(engine.update(tree_of(middle, pools))):
            low = middle + 1
        else:
            high = middle
    return low


def _ceiling(flow: float, multiplier: float, engine: Engine) -> float:
    """What a relaxed pool is granted that wants all of a large cluster and has endless savings."""
    total = 100 * flow * multiplier
    pool = {"type": "relaxed", "flow": flow, "multiplier": multiplier, "demand": total, "volume": "huge"}
    return engine.update(tree_of(total, {"a": pool})).pools["a"].integral_part[CPU] * total


def _accrual(total: Resources, flow: Resources, expect: dict[str, Any], engine: Engine) -> list[Comparison]:
    pool = PoolInput(name="a", parent=-1, integral=IntegralType.RELAXED, resource_flow=flow)
    tree = TreeInput(total=total, pools=[pool])
    volume = dict(zip(RESOURCE_NAMES, engine.update(tree, dt_us=1_000_000).integral["a"].volume, strict=True))
    volume["cpu"] /= 100
    actual: dict[str, Any] = {"specified_resource_flow_ratio": specified_ratio(flow, total)}
    only_keys(expect, {*actual, "accrual_per_second"}, "expect")
    comparisons = all_compared(expect["accrual_per_second"], volume, "accrual_per_second")
    return comparisons + all_compared({key: expect[key] for key in actual if key in expect}, actual)


def _until_empty(given: dict[str, Any], ratio: float, engine: Engine) -> dict[str, Any]:
    """Savings of so many cluster-seconds: what flows in meanwhile if the whole cluster does."""
    total = given["total_cpu"]
    tree = tree_of(total, {"a": {"type": "burst", "flow": total}})
    saved = engine.update(tree, dt_us=round(ratio * 1e6)).integral["a"]
    drained, flowing = given["usage_cpu"] / total, given["inflow_cpu"] / total
    return {
        "accumulated_volume_cpu_seconds": cores_saved(saved),
        "seconds_until_empty_ideal": estimated_burst_usage_duration_seconds(ratio, drained, flowing),
    }


def share(case: dict[str, Any], engine: Engine) -> list[Comparison]:
    """One update after some time of saving from nothing."""
    given = case["given"]
    only_keys(given, {"total_cpu", "accrual_before_update_seconds", "pools", "volume"}, "given")
    pools = {name: dict(pool) for name, pool in given["pools"].items()}
    for pool in pools.values():
        if "volume" in given and pool.get("type", "none") != "none":
            pool.setdefault("volume", given["volume"])
    seconds = given.get("accrual_before_update_seconds") or 0
    result = engine.update(tree_of(given["total_cpu"], pools), dt_us=round(seconds * 1e6) if seconds else None)
    comparisons: list[Comparison] = []
    for name, wanted in _of_each(case["expect"], list(result.pools)).items():
        only_keys(wanted, set(_SHARES), f"expect {name}")
        element = result.root if name == ROOT else result.pools[name]
        for part, figure in wanted.items():
            actual = getattr(element, _SHARES[part])[CPU]
            comparisons.append(compared(f"{name} {part}", figure, actual, 1e-7))
    return comparisons


def _of_each(expect: dict[str, Any], pools: list[str]) -> dict[str, Any]:
    """The expectation of each pool; one of all pools is said once."""
    of_all = expect.get("all_pools")
    return expect if of_all is None else dict.fromkeys(pools, of_all)


def _overcommitted(result: UpdateResult) -> bool:
    return any(error.kind in (ErrorKind.OVERCOMMIT_FLOW, ErrorKind.OVERCOMMIT_BURST) for error in result.errors)


def _ratio_volume(volume: Volume, total: Resources) -> float:
    parts = (volume.user_slots, volume.cpu, volume.gpu, volume.memory, volume.network)
    return float(ratio_volumes(np.array([parts], np.float64).T, total)[0])
