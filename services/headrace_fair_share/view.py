"""Pools as people see them: what is configured now, with the figures of the last update; pure."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.near import near
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, MessageTooLarge, encode
from headrace.wire.integral import Volume
from headrace.wire.pools import GetPools, IntegralType, PoolConfig, PoolList, PoolView, ResourceDistribution
from headrace.wire.refusals import NotFound
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace.wire.version import Version
from headrace_fair_share.engine import FairShareEngine
from headrace_fair_share.integral_fields import (
    accumulated_resource_volume,
    distribution,
    estimated_burst_usage_duration_seconds,
    integral_pool_capacity,
    integral_pool_capacity_ratio,
    resources_of_ratio,
    specified_ratio,
)
from headrace_fair_share.update.figures import PoolFigures
from headrace_fair_share.update.input import pool_key

__all__ = ["pool_list"]

#: What a page may take; above it pools go to the next page.
_PAGE_BYTES: Final = LARGEST_MESSAGE_BYTES // 2


def pool_list(engine: FairShareEngine, request: GetPools, version: Version) -> PoolList | NotFound:
    """The pools that were asked for, as many as fit a page; at least one if there is any."""
    order = _order(engine)
    if request.name:
        if request.name not in order:
            return NotFound(what="pool", name=request.name, near=near(request.name, order))
        order = [PoolName(request.name)]
    wanted = order[request.first : request.first + request.limit]
    while True:
        operations = _operations(engine, wanted) if request.operations else []
        left_out = 0
        while True:
            answer = PoolList(
                tree=engine.book.pools.name,
                pools=[_view(engine, name) for name in wanted],
                frame=engine.frame,
                version=version,
                revision=engine.book.revision,
                operations=operations,
                more=request.first + len(wanted) < len(order),
                operations_left_out=left_out,
            )
            if _fits(answer) or len(wanted) > 1 or not operations:
                break
            kept = len(operations) // 2
            left_out, operations = left_out + len(operations) - kept, operations[:kept]
        if _fits(answer) or len(wanted) <= 1:
            return answer
        wanted = wanted[: len(wanted) // 2]


def _fits(answer: PoolList) -> bool:
    try:
        return len(encode(answer)) <= _PAGE_BYTES
    except MessageTooLarge:
        return False


def _order(engine: FairShareEngine) -> list[PoolName]:
    """The root, configured pools with parents first, then ephemeral ones by path."""
    ephemeral = sorted((guest.name for guest in engine.guests()), key=lambda name: _path(engine, name))
    return [ROOT_POOL, *engine.book.pools.preorder, *ephemeral]


def _path(engine: FairShareEngine, name: PoolName) -> str:
    """Names from the top down; an ephemeral pool stands where admission has put it."""
    guest = engine.guest(name)
    if guest is None:
        return engine.book.pools.path(name)
    above = _path(engine, guest.parent)
    return f"{above if guest.parent != ROOT_POOL else ''}/{name}"


def _operations(engine: FairShareEngine, pools: list[PoolName]) -> list[ShareItem]:
    chosen = set(pools)
    return [item for item in engine.items.values() if item.kind is ElementKind.OPERATION and item.parent in chosen]


def _view(engine: FairShareEngine, name: PoolName) -> PoolView:
    configured = engine.book.pools.pools.get(name) or engine.guest(name)
    parent = PoolName("") if name == ROOT_POOL else configured.parent if configured else ROOT_POOL
    settings = configured.settings if configured is not None else PoolConfig()
    kind = ElementKind.ROOT if name == ROOT_POOL else ElementKind.POOL
    ephemeral = name != ROOT_POOL and name not in engine.book.pools.pools
    item = engine.items.get(pool_key(name))
    if item is None:
        weight = 1.0 if settings.weight is None else settings.weight
        item = ShareItem(kind=kind, name=name, parent=parent, weight=weight, ephemeral=ephemeral)
    figures, pools, total = engine.figures.get(name, PoolFigures()), engine.book.pools, engine.frame.total
    demand = figures.demand.within_wire()
    limits = total.part(item.limits_share)
    view = PoolView(
        name=name,
        parent=parent,
        path=_path(engine, name),
        ephemeral=ephemeral,
        settings=settings,
        share=item,
        fair_resources=total.part(item.fair_share.total),
        usage=figures.usage.within_wire(),
        demand=demand,
        operation_count=figures.operations,
        running_operation_count=figures.running_operations,
        total_resource_flow_ratio=item.total_resource_flow_ratio,
        total_burst_ratio=item.total_burst_ratio,
        resource_distribution_info=_distribution(engine) if name == ROOT_POOL else None,
        resource_limits=limits,
        limited_resource_demand=demand.within(limits),
        effective_strong_guarantee_resources=total.part(item.strong_guarantee_share),
        estimated_guarantee_resources=total.part(item.estimated_guarantee_share),
        promised_fair_resources=total.part(item.promised_fair_share),
        schedulable_operation_count=figures.schedulable_operations,
        pool_operation_count=figures.own_operations,
        child_pool_count=len(pools.children.get(name, ())),
        max_operation_count=pools.operation_limit(settings) if ephemeral else pools.max_operation_count(name),
        max_running_operation_count=(
            pools.running_operation_limit(settings) if ephemeral else pools.max_running_operation_count(name)
        ),
    )
    if settings.integral_guarantees.guarantee_type is IntegralType.NONE:
        return view
    return _with_integral_fields(engine, view)


def _with_integral_fields(engine: FairShareEngine, view: PoolView) -> PoolView:
    """The fields of an integral guarantee, by the total of the last update."""
    total, period_s = engine.frame.total, engine.saturation_period_s
    integral = view.settings.integral_guarantees
    flow = specified_ratio(integral.resource_flow.whole, total)
    burst = specified_ratio(integral.burst_guarantee_resources.whole, total)
    saved = engine.volumes.get(view.name)
    ratio = saved.ratio_volume if saved else 0.0
    return msgspec.structs.replace(
        view,
        accumulated_resource_volume=accumulated_resource_volume(saved.volume if saved else Volume()),
        accumulated_resource_ratio_volume=ratio,
        integral_pool_capacity=integral_pool_capacity(total, flow, period_s),
        integral_pool_capacity_ratio=integral_pool_capacity_ratio(flow, period_s),
        estimated_burst_usage_duration_seconds=estimated_burst_usage_duration_seconds(ratio, burst, flow),
        specified_resource_flow_ratio=flow,
        specified_burst_ratio=burst,
        specified_resource_flow=resources_of_ratio(total, flow),
        specified_burst_guarantee_resources=resources_of_ratio(total, burst),
        downtime=engine.downtime,
    )


def _distribution(engine: FairShareEngine) -> ResourceDistribution:
    """How much of the tree is promised."""
    pools, root = engine.book.pools, engine.items.get(pool_key(ROOT_POOL))
    strong = [pools.settings(name).strong_guarantee_resources.whole for name in pools.children[ROOT_POOL]]
    ratios = (root.total_resource_flow_ratio, root.total_burst_ratio) if root else (0.0, 0.0)
    return distribution(engine.frame.total, strong, *ratios)
