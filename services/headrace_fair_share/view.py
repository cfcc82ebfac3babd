"""Pools as displayed: the present configuration with the results of the last update. Pure."""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import IntegralType, PoolConfig
from headrace.suggestions import near
from headrace.wire.integral import Volume
from headrace.wire.pools import GetPools, PoolList, PoolView, ResourceDistribution
from headrace.wire.refusals import NotFound
from headrace.wire.snapshots import ElementKind, PreemptionPriority, ShareItem, StarvationStatus
from headrace.wire.version import Version
from headrace_fair_share.engine import FairShareEngine
from headrace_fair_share.facts.known_volumes import saturation_period_s
from headrace_fair_share.integral_guarantees import (
    accumulated_resource_volume,
    distribution,
    estimated_burst_usage_duration_seconds,
    integral_pool_capacity,
    integral_pool_capacity_ratio,
    resources_of_ratio,
    specified_ratio,
)
from headrace_fair_share.starvation_outlook import outlooks_of
from headrace_fair_share.update.elements import pool_key
from headrace_fair_share.update.results import PoolResults

#: Largest size of a page; pools that do not fit go to the next page.
_PAGE_BYTES: Final = 64 * 1024

_encode = msgspec.msgpack.Encoder().encode


def pool_list(engine: FairShareEngine, request: GetPools, version: Version) -> PoolList | NotFound:
    """Return the requested pools, as many as fit a page, but at least one if there is any."""
    view = _View(engine)
    order = view.order()
    for name in filter(None, (request.name, request.parent)):
        if name not in order:
            return NotFound(what="pool", name=name, near=near(name, order))
    if request.name:
        order = [PoolName(request.name)]
    first = _first(order, request)
    matching = (place for place in range(first, len(order)) if view.matches(order[place], request))
    # One pool more than fits the page is looked for. If there is such a pool, another page follows.
    places = list(islice(matching, request.limit + 1))
    wanted = [order[place] for place in places[: request.limit]]
    operations = view.operations(wanted, request) if request.operations else {}
    outlooks = outlooks_of(engine, request.outlook_of) if request.outlook_of and not request.first else []
    answer = PoolList(view.configured.name, [], engine.frame, version, engine.configuration.revision, outlooks=outlooks)
    left_bytes = _PAGE_BYTES - len(_encode(answer))
    left_out = 0
    for name in wanted:
        pool, inside = view.pool(name), operations.get(name, [])
        told, left_bytes = _within(inside, left_bytes - len(_encode(pool)))
        if answer.pools and left_bytes < 0:
            break
        answer.pools.append(pool)
        answer.operations.extend(told)
        left_out = len(inside) - len(told)
    more = len(answer.pools) < len(places)
    next_first = places[len(answer.pools) - 1] + 1 if answer.pools else len(order)
    return msgspec.structs.replace(answer, more=more, operations_left_out=left_out, next_first=next_first)


def _first(order: list[PoolName], request: GetPools) -> int:
    """Return the position at which the page begins."""
    if not request.after:
        return request.first
    try:
        return order.index(PoolName(request.after)) + 1
    except ValueError:
        return max(0, request.first - 1)


def _within(items: list[ShareItem], most_bytes: int) -> tuple[list[ShareItem], int]:
    """Return the first items that fit, and the remaining bytes, which are negative if items are left out."""
    for place, item in enumerate(items):
        most_bytes -= len(_encode(item))
        if most_bytes < 0:
            return items[:place], most_bytes
    return items, most_bytes


class _View:
    """The pools at one point in time."""

    def __init__(self, engine: FairShareEngine) -> None:
        self._engine = engine
        self.configured = engine.configuration.pools
        self._ephemeral = {pool.name: pool for pool in engine.ephemeral_pools()}
        self._paths: dict[PoolName, str] = {}
        # Parents come before the pools below them, so their paths are known.
        for name, pool in self._ephemeral.items():
            above = "" if pool.parent == ROOT_POOL else self._path(pool.parent)
            self._paths[name] = f"{above}/{name}"

    def order(self) -> list[PoolName]:
        """Return the root, configured pools (parents first), then ephemeral pools by path."""
        return [ROOT_POOL, *self.configured.preorder, *sorted(self._ephemeral, key=self._path)]

    def matches(self, name: PoolName, request: GetPools) -> bool:
        """Return True if the request asks for the pool `name`."""
        if not name.startswith(request.name_prefix):
            return False
        if request.parent and (name == ROOT_POOL or self._parent(name) != request.parent):
            return False
        item = self._engine.items.get(pool_key(name)) if request.starving else None
        return not request.starving or (item is not None and _starves(item))

    def operations(self, pools: list[PoolName], request: GetPools) -> dict[PoolName, list[ShareItem]]:
        """Return the operations in some pools: all of them, or only the operations that starve or may preempt."""
        found: dict[PoolName, list[ShareItem]] = {name: [] for name in pools}
        everybody = not request.only_starving
        for item in self._engine.items.values():
            if item.kind is ElementKind.OPERATION and item.parent in found and (everybody or _is_hungry(item)):
                found[item.parent].append(item)
        if request.outlook_of:
            # The requested operation comes first, because a page may be too small for all operations of a large pool.
            for items in found.values():
                items.sort(key=lambda item: item.key != request.outlook_of)
        return found

    def pool(self, name: PoolName) -> PoolView:
        """Return one pool with all its fields."""
        engine, pools = self._engine, self.configured
        pool, parent = pools.pools.get(name) or self._ephemeral.get(name), self._parent(name)
        settings = pool.settings if pool is not None else PoolConfig()
        ephemeral = name != ROOT_POOL and name not in pools.pools
        item = engine.items.get(pool_key(name)) or _new_item(name, parent, settings, ephemeral=ephemeral)
        results, total = engine.pool_results.get(name, PoolResults()), engine.frame.total
        demand = results.demand.within_wire()
        limits = total.part(item.limits_share)
        view = PoolView(
            name=name,
            parent=parent,
            path=self._path(name),
            ephemeral=ephemeral,
            settings=settings,
            share=item,
            fair_resources=total.part(item.fair_share.total),
            usage=results.usage.within_wire(),
            demand=demand,
            operation_count=results.operations,
            running_operation_count=results.running_operations,
            lightweight_running_operation_count=results.lightweight_operations,
            total_resource_flow_ratio=item.total_resource_flow_ratio,
            total_burst_ratio=item.total_burst_ratio,
            resource_distribution_info=self._distribution() if name == ROOT_POOL else None,
            resource_limits=limits,
            limited_resource_demand=demand.within(limits),
            effective_strong_guarantee_resources=total.part(item.strong_guarantee_share),
            estimated_guarantee_resources=total.part(item.estimated_guarantee_share),
            promised_fair_resources=total.part(item.promised_fair_share),
            schedulable_operation_count=results.schedulable_operations,
            pool_operation_count=results.own_operations,
            child_pool_count=len(pools.children.get(name, ())),
            max_operation_count=pools.operation_limit(settings) if ephemeral else pools.max_operation_count(name),
            max_running_operation_count=(
                pools.running_operation_limit(settings) if ephemeral else pools.max_running_operation_count(name)
            ),
        )
        if settings.integral_guarantees.guarantee_type is IntegralType.NONE:
            return view
        return self._with_integral_fields(view)

    def _parent(self, name: PoolName) -> PoolName:
        """Return the parent of a pool; empty for the root."""
        pool = self.configured.pools.get(name) or self._ephemeral.get(name)
        return PoolName("") if name == ROOT_POOL else pool.parent if pool else ROOT_POOL

    def _path(self, name: PoolName) -> str:
        """Return the path of a pool from the top down. The parent of an ephemeral pool is the parent that admission gave it."""
        if name not in self._paths:
            self._paths[name] = self.configured.path(name)
        return self._paths[name]

    def _with_integral_fields(self, view: PoolView) -> PoolView:
        """Add the fields of an integral guarantee, computed with the total of the last update."""
        total, period_s = self._engine.frame.total, saturation_period_s(self.configured)
        integral, volumes = view.settings.integral_guarantees, self._engine.volumes
        flow = specified_ratio(integral.resource_flow.whole, total)
        burst = specified_ratio(integral.burst_guarantee_resources.whole, total)
        saved = volumes.of.get(view.name)
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
            downtime=volumes.downtime,
        )

    def _distribution(self) -> ResourceDistribution:
        """Return how much of the tree's resources is guaranteed."""
        pools, root = self.configured, self._engine.items.get(pool_key(ROOT_POOL))
        strong = [pools.settings(name).strong_guarantee_resources.whole for name in pools.children[ROOT_POOL]]
        ratios = (root.total_resource_flow_ratio, root.total_burst_ratio) if root else (0.0, 0.0)
        return distribution(self._engine.frame.total, strong, *ratios)


def _starves(item: ShareItem) -> bool:
    return item.starvation_status is not StarvationStatus.NON_STARVING


def _is_hungry(item: ShareItem) -> bool:
    return _starves(item) or item.preemption_priority is not PreemptionPriority.NONE


def _new_item(name: PoolName, parent: PoolName, settings: PoolConfig, *, ephemeral: bool) -> ShareItem:
    """Return the share item of a pool that no update contains yet."""
    kind = ElementKind.ROOT if name == ROOT_POOL else ElementKind.POOL
    weight = 1.0 if settings.weight is None else settings.weight
    return ShareItem(kind=kind, name=name, parent=parent, weight=weight, ephemeral=ephemeral)
