"""Trees of the cases of integral guarantees: few pools, one resource; and how their figures are compared."""

from __future__ import annotations

import math
from typing import Any, Final

from headrace.pools import IntegralType
from headrace.resources import RESOURCE_NAMES, Resources
from headrace.wire.integral import Volume
from headrace_fair_share.hdrf.model import (
    NO_LIMIT,
    IntegralState,
    Limits,
    OperationInput,
    PoolInput,
    TreeInput,
    UpdateOptions,
)
from tests.conformance.reporting import Comparison, Problem, only_keys
from tests.conformance.trees import amounts, within

__all__ = [
    "CPU",
    "ROOT",
    "all_compared",
    "compared",
    "cores_saved",
    "cpu_amount",
    "cpu_volume",
    "tree_of",
    "volume_of",
    "volume_parts",
]

CPU: Final = RESOURCE_NAMES.index("cpu")
ROOT: Final = "<Root>"
#: Savings that nothing exhausts.
_HUGE_S: Final = 1e6


def cpu_amount(cores: float) -> Resources:
    return amounts({"cpu": cores})


def only_cpu(cores: float | None) -> Limits:
    return NO_LIMIT if cores is None else (None, cpu_amount(cores).cpu, None, None, None)


def cpu_volume(core_seconds: float) -> IntegralState:
    return IntegralState((0.0, float(round(core_seconds * 100)), 0.0, 0.0, 0.0))


_POOL: Final = {
    *("type", "flow", "burst", "strong", "limit", "weight", "demand"),
    *("volume", "volume_cpu_s", "multiplier", "relaxed_share_multiplier_limit"),
}


def tree_of(total_cpu: float, pools: dict[str, dict[str, Any]], options: UpdateOptions | None = None) -> TreeInput:
    """Pools by name, `x<y` for a pool x in y; each with an operation of its demand."""
    total = cpu_amount(total_cpu)
    inputs: list[PoolInput] = []
    operations: list[OperationInput] = []
    savings: dict[str, IntegralState] = {}
    for key, given in pools.items():
        only_keys(given, _POOL, f"pool {key}")
        name, _, parent = key.partition("<")
        place = next((at for at, pool in enumerate(inputs) if pool.name == parent), -1)
        if parent and place < 0:
            raise Problem(f"pool {name} stands before its parent {parent}")
        pool = PoolInput(
            name=name,
            parent=place,
            weight=given.get("weight"),
            strong_guarantee=only_cpu(given.get("strong")),
            limits=only_cpu(given.get("limit")),
            integral=IntegralType(given.get("type", "none")),
            resource_flow=cpu_amount(given.get("flow") or 0.0),
            burst_guarantee=cpu_amount(given.get("burst") or 0.0),
            relaxed_share_multiplier_limit=given.get("multiplier", given.get("relaxed_share_multiplier_limit")),
        )
        if given.get("volume") == "huge":
            savings[name] = cpu_volume(total_cpu * _HUGE_S)
        elif "volume" in given or "volume_cpu_s" in given:
            savings[name] = cpu_volume(given["volume_cpu_s"] if "volume_cpu_s" in given else given["volume"])
        if "demand" in given:
            demand = cpu_amount(given["demand"])
            operations.append(OperationInput(name=f"of {name}", pool=len(inputs), demand=demand))
        inputs.append(pool)
    if options is None:
        options = UpdateOptions(charge_skipped_relaxed_pools=True)
    return TreeInput(total=total, options=options, pools=inputs, operations=operations, integral=savings)


def cores_saved(state: IntegralState) -> float:
    return state.volume[CPU] / 100


def compared(what: str, expected: Any, actual: Any, tolerance: float = 1e-9) -> Comparison:
    if isinstance(expected, bool) or isinstance(actual, bool | None):
        return Comparison(what, str(expected), str(actual), expected == actual)
    return Comparison(what, str(expected), str(actual), within(expected, actual, tolerance))


def all_compared(expected: dict[str, Any], actual: dict[str, Any], place: str = "") -> list[Comparison]:
    only_keys(expected, set(actual), f"expect {place}".strip())
    return [compared(f"{place} {key}".strip(), want, actual[key], 1e-8) for key, want in expected.items()]


def volume_parts(figures: dict[str, float]) -> tuple[float, float, float, float, float]:
    only_keys(figures, set(RESOURCE_NAMES), "a volume")
    u, c, g, m, n = (float(figures.get(name, 0.0)) for name in RESOURCE_NAMES)
    if not math.isfinite(u + c + g + m + n):
        raise Problem(f"{figures} is no volume")
    return (u, float(round(c * 100)), g, m, n)


def volume_of(figures: dict[str, float]) -> Volume:
    user_slots, cpu, gpu, memory, network = volume_parts(figures)
    return Volume(user_slots, int(cpu), gpu, memory, network)
