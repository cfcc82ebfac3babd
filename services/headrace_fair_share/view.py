"""Pools as people see them: what is configured now, with the figures of the last update; pure."""

from __future__ import annotations

from typing import Final

from headrace.ids import ROOT_POOL, PoolName
from headrace.near import near
from headrace.resources import RESOURCE_NAMES
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, MessageTooLarge, encode
from headrace.wire.integral import PoolVolume
from headrace.wire.pools import GetPools, IntegralType, PoolList, PoolSettings, PoolView
from headrace.wire.refusals import NotFound
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace.wire.version import Version
from headrace_fair_share.engine import FairShareEngine
from headrace_fair_share.figures import PoolFigures
from headrace_fair_share.roster import pool_key

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
    """The root, configured pools with parents first, then ephemeral ones by name."""
    configured = engine.book.pools.preorder
    known = set(configured)
    ephemeral = sorted(name for name in engine.in_use() if name not in known)
    return [ROOT_POOL, *configured, *ephemeral]


def _operations(engine: FairShareEngine, pools: list[PoolName]) -> list[ShareItem]:
    chosen = set(pools)
    return [item for item in engine.items.values() if item.kind is ElementKind.OPERATION and item.parent in chosen]


def _view(engine: FairShareEngine, name: PoolName) -> PoolView:
    configured = engine.book.pools.pools.get(name)
    parent = PoolName("") if name == ROOT_POOL else configured.parent if configured else ROOT_POOL
    settings = configured.settings if configured is not None else PoolSettings()
    kind = ElementKind.ROOT if name == ROOT_POOL else ElementKind.POOL
    ephemeral = configured is None and name != ROOT_POOL
    item = engine.items.get(pool_key(name))
    if item is None:
        weight = 1.0 if settings.weight is None else settings.weight
        item = ShareItem(kind=kind, name=name, parent=parent, weight=weight, ephemeral=ephemeral)
    figures = engine.figures.get(name, PoolFigures())
    integral = settings.integral_guarantees.guarantee_type is not IntegralType.NONE
    volume = engine.volumes.get(name) if integral else None
    return PoolView(
        name=name,
        parent=parent,
        path=engine.book.pools.path(name),
        ephemeral=ephemeral,
        settings=settings,
        share=item,
        fair_resources=engine.frame.total.part(item.fair_share.total),
        usage=figures.usage.within_wire(),
        demand=figures.demand.within_wire(),
        operation_count=figures.operations,
        running_operation_count=figures.running_operations,
        accumulated_resource_volume=_volume(volume) if integral else None,
        accumulated_resource_ratio_volume=(volume.ratio_volume if volume else 0.0) if integral else None,
    )


def _volume(volume: PoolVolume | None) -> dict[str, float]:
    """Resource times seconds, cpu in cores."""
    if volume is None:
        return dict.fromkeys(RESOURCE_NAMES, 0.0)
    parts = volume.volume
    return {
        "user_slots": parts.user_slots,
        "cpu": parts.cpu / 100,
        "gpu": parts.gpu,
        "memory": parts.memory,
        "network": parts.network,
    }
