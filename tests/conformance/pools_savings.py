"""Cases of savings: how they go over time, and how they are kept."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace.ids import PoolName
from headrace.pools import IntegralType
from headrace.resources import RESOURCE_NAMES, Resources
from headrace.wire.codec import decode, encode
from headrace.wire.integral import PoolFlow, PoolVolume
from headrace.wire.version import Version
from headrace_fair_share.facts.unconfirmed_advances import AdvanceChain
from headrace_fair_share.hdrf.model import IntegralState, OperationInput, PoolInput, TreeInput, UpdateOptions
from headrace_integral.engine import IntegralEngine, VolumesRecord
from tests.conformance.engines import Engine
from tests.conformance.integral_trees import (
    CPU,
    all_compared,
    compared,
    cores_saved,
    cpu_amount,
    cpu_volume,
    tree_of,
    volume_of,
    volume_parts,
)
from tests.conformance.reporting import Comparison, Problem, only_keys
from tests.conformance.trees import amounts
from tests.support.clocks import NOW
from tests.support.savings import TREE
from tests.support.update_result import UpdateResult

__all__ = ["housekeeping", "series"]

#: A cluster for cases that name none.
_CORES: Final = 1000.0
_DAY_S: Final = 86_400.0
#: Figures of series know no rounding to hundredths of a core-second. Shares are the same in a cluster so many times as large,
#: where that rounding is far below their tolerance.
_LARGER: Final = 10_000


def series(case: dict[str, Any], engine: Engine) -> list[Comparison]:
    """One pool alone, update after update; each point is what stands after refill, charge and the new share."""
    given = case["given"]
    only_keys(
        given,
        {
            *("total_cpu", "flow", "burst", "kind", "strong", "limit", "demand"),
            *("dt", "v0", "saturation", "smooth", "multiplier"),
        },
        "given",
    )
    total, dt = float(given["total_cpu"]), float(given["dt"])
    options = UpdateOptions(
        saturation_period_s=float(given.get("saturation", _DAY_S)),
        smooth_period_s=float(given.get("smooth", 60.0)),
        charge_skipped_relaxed_pools=True,
    )
    amounts_of = {
        key: given[key] * _LARGER for key in ("flow", "burst", "strong", "limit") if given.get(key) is not None
    }
    rest = {"type": given["kind"], "volume": given["v0"] * _LARGER, "multiplier": given.get("multiplier")}
    tree = tree_of(total * _LARGER, {"a": {**amounts_of, **rest}}, options)
    tolerance = float(case.get("tolerance_relative", 1e-6))
    points = {round(point["t"] / dt): point for point in case["expect"]}
    comparisons: list[Comparison] = []
    for number in range(max(points) + 1):
        at = number * dt
        demand = next((cores for until, cores in given["demand"] if at < until), given["demand"][-1][1])
        operation = OperationInput(name="x", pool=0, demand=cpu_amount(demand * _LARGER))
        tree = msgspec.structs.replace(tree, operations=[operation])
        result = engine.update(tree, dt_us=round(dt * 1e6) if number else None)
        tree = msgspec.structs.replace(tree, integral=result.integral)
        if number in points:
            comparisons += _at_point(points[number], result, total, tolerance)
    return comparisons


def _at_point(point: dict[str, Any], result: UpdateResult, total: float, tolerance: float) -> list[Comparison]:
    shares = result.pools["a"]
    volume = cores_saved(result.integral["a"]) / _LARGER
    actual = {
        "t": point["t"],
        "volume_core_seconds": volume,
        "ratio_volume": volume / total,
        "integral_cores": shares.integral_part[CPU] * total,
        "strong_cores": shares.strong_part[CPU] * total,
        "free_cores": shares.weight_proportional_part[CPU] * total,
    }
    only_keys(point, set(actual), "expect")
    return [compared(f"t={point['t']} {key}", want, actual[key], tolerance) for key, want in point.items()]


def housekeeping(case: dict[str, Any], engine: Engine) -> list[Comparison]:
    """How savings are kept; which rule is asked for shows in what is given."""
    given, expect = case["given"], case["expect"]
    match given:
        case {"persisted": volume, "guarantee_type_now": kind}:
            only_keys(given, {"persisted", "guarantee_type_now"}, "given")
            return all_compared(expect, {"volume": _restarted(volume, 0.1, kind, 0.0)})
        case {"volume_before_restart": volume, "downtime_seconds": seconds, "flow": flow}:
            only_keys(given, {"volume_before_restart", "downtime_seconds", "flow"}, "given")
            kept = _restarted(volume, flow / _CORES, "burst", seconds)
            return all_compared(expect, {"volume_after_first_update": kept})
        case {"children": children}:
            only_keys(given, {"overflow", "children", "distribution"}, "given")
            received = _received(given["overflow"], children, given.get("distribution", False), engine)
            only_keys(expect, {"received", "lost"}, "expect")
            comparisons = all_compared(expect.get("received", {}), received, "received")
            lost = {"lost": given["overflow"] - sum(received.values())}
            return comparisons + all_compared({key: expect[key] for key in lost if key in expect}, lost)
        case {"idle_seconds": seconds}:
            only_keys(given, {"idle_seconds", "total_cpu", "flow", "volume", "distribution"}, "given")
            before = cpu_volume(given["volume"])
            if given["distribution"]:
                raise Problem("a parent that gives overflow away has no children here")
            after = _passed(cpu_amount(given["total_cpu"]), cpu_amount(given["flow"]), before, seconds, engine)
            lost = given["volume"] + given["flow"] * seconds - cores_saved(after)
            return all_compared(expect, {"volume": cores_saved(after), "overflow_lost": lost})
        case {"granted_share": granted, "total": total}:
            only_keys(given, {"granted_share", "total", "seconds", "flow_ratio", "volume"}, "given")
            if given["flow_ratio"]:
                raise Problem("a flow beside a granted share is not read")
            charged = _granted(amounts(total), granted, engine).last_share_ratio
            before = IntegralState(volume_parts(given["volume"]), charged)
            after = _passed(amounts(total), Resources(), before, given["seconds"], engine)
            plain = dict(zip(RESOURCE_NAMES, after.volume, strict=True))
            plain["cpu"] /= 100
            return all_compared(expect["volume"], plain, "volume")
        case _:
            known = {"total_cpu", "flow", "granted_integral_cores", "actually_used_cores", "seconds", "volume"}
            only_keys(given, {*known, "previous_update_time"}, "given")
            if given.get("previous_update_time") is not None:
                raise Problem("only null is read of previous_update_time: there was no update before")
            # The whole grant is charged, however much of it was used: the figure may be given, and has no effect.
            given.get("actually_used_cores")
            cores = given.get("total_cpu", _CORES)
            charged = given.get("granted_integral_cores", 0.0) / (cores or 1.0)
            before = IntegralState(volume_parts({"cpu": given["volume"]}), charged)
            seconds = given.get("seconds")
            after = _passed(cpu_amount(cores), cpu_amount(given["flow"]), before, seconds, engine)
            return all_compared(expect, {"volume": cores_saved(after)})


def _passed(
    total: Resources, flow: Resources, before: IntegralState, seconds: float | None, engine: Engine
) -> IntegralState:
    """A pool alone after a time; None: there was no update before."""
    pool = PoolInput(name="a", parent=-1, integral=IntegralType.BURST, resource_flow=flow, burst_guarantee=flow)
    tree = TreeInput(total=total, pools=[pool], integral={"a": before})
    return engine.update(tree, dt_us=None if seconds is None else round(seconds * 1e6)).integral["a"]


def _granted(total: Resources, shares: dict[str, float], engine: Engine) -> IntegralState:
    """A pool with more savings than it needs, after an update that granted it these shares of the cluster."""
    whole = dict(zip(RESOURCE_NAMES, total.as_tuple(), strict=True))
    demand = Resources(**{name: round(whole[name] * share) for name, share in shares.items()})
    slots, cpu, gpu, memory, network = (amount * 1e6 for amount in total.as_tuple())
    savings = IntegralState((slots, cpu, gpu, memory, network))
    pool = PoolInput(name="a", parent=-1, integral=IntegralType.BURST, resource_flow=total, burst_guarantee=total)
    operation = OperationInput(name="x", pool=0, demand=demand)
    tree = TreeInput(total=total, pools=[pool], operations=[operation], integral={"a": savings})
    return engine.update(tree).integral["a"]


def _restarted(volume: float, flow: float, kind: str, downtime_s: float) -> float:
    """Both services start anew on what was saved, and update for the first time."""
    pool = PoolName("a")
    saved = VolumesRecord(tree=TREE, version=Version(1, 7), pools=[PoolVolume(pool, volume_of({"cpu": volume}), 0.0)])
    integral = IntegralEngine(TREE, 2, decode(encode(saved), VolumesRecord))
    chain = AdvanceChain(TREE, 2, 10)
    flows = [PoolFlow(pool, flow, flow, 0.0, kind)]
    for _ in range(2 if kind == "none" else 1):
        chain.add(round(downtime_s * 1e6), cpu_amount(_CORES), flows, _DAY_S)
        head = chain.head()
        assert head is not None
        outcome = integral.on_advance(head, NOW)
        assert outcome.effects
        assert chain.on_confirmed(integral.on_saved(outcome.effects[0].record, NOW).answer)
        # Should it become one again later, it begins with nothing.
        flows = [PoolFlow(pool, flow, flow, 0.0, "burst")]
    (after,) = integral.record.pools
    return after.volume.cpu / 100


def _received(overflow: float, children: dict[str, Any], distribution_on: bool, engine: Engine) -> dict[str, float]:
    """What children accept of the overflow of a full sibling, beside their own income."""
    seconds = 60.0
    parent = PoolInput(name="p", parent=-1, distribute_free_volume=distribution_on)
    flow = overflow / seconds
    pools = [parent, _child("full", flow, accepts=True)]
    savings = {"full": cpu_volume(flow * _DAY_S)}
    for name, child in children.items():
        only_keys(child, {"flow_ratio", "acceptable", "can_accept_free_volume"}, f"child {name}")
        cores = child["flow_ratio"] * _CORES
        pools.append(_child(name, cores, accepts=child.get("can_accept_free_volume", True)))
        savings[name] = cpu_volume(cores * (_DAY_S - seconds) - child["acceptable"])
    tree = TreeInput(total=cpu_amount(_CORES), pools=pools, integral=savings)
    after = engine.update(tree, dt_us=round(seconds * 1e6)).integral
    income = {name: children[name]["flow_ratio"] * _CORES * seconds for name in children}
    return {name: cores_saved(after[name]) - cores_saved(savings[name]) - income[name] for name in children}


def _child(name: str, flow: float, *, accepts: bool) -> PoolInput:
    return PoolInput(
        name=name,
        parent=0,
        integral=IntegralType.RELAXED,
        resource_flow=cpu_amount(flow),
        can_accept_free_volume=accepts,
    )
