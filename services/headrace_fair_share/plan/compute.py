"""One update of the tree that a file describes, and what binds each of its elements.

Savings of integral pools for which the file names none are what a pool in steady demand holds: the flow of one smooth period. With it
a pool gets its flow, no more and no less.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import IntegralType
from headrace.resources import RESOURCE_NAMES, Resources, Share
from headrace.satisfaction import INFINITE_SATISFACTION, local_satisfaction
from headrace.wire.plan import Bound, Plan, PlanElement, Scaled
from headrace.wire.snapshots import DetailedShare, ElementKind, ShareComplaint, ShareItem
from headrace_fair_share.configuration.rules import Bounds, broken_rules
from headrace_fair_share.hdrf.model import ElementShares, OperationInput, PoolInput, UpdateResult
from headrace_fair_share.hdrf.tree_update import update
from headrace_fair_share.plan.binding import Bindings
from headrace_fair_share.plan.description import Description

__all__ = ["computed"]

#: Configured guarantees and those in force are told apart where they differ by more than this part.
_NEARLY: Final = 1e-6


def computed(description: Description, file: str) -> Plan:
    """Computes the plan. Raises `BrokenInvariant`."""
    return _Planned(description, update(description.input)).plan(file)


class _Planned:
    """A tree and what came out, side by side."""

    def __init__(self, description: Description, result: UpdateResult) -> None:
        self._description = description
        self._tree = tree = description.input
        self._result = result
        self._total = tree.total
        self._paths: dict[str, str] = {ROOT_POOL: ""}
        for pool in tree.pools:
            self._paths[pool.name] = f"{self._paths[self._name(pool.parent)]}/{pool.name}"
        self._satisfaction = self._satisfactions()

    def plan(self, file: str) -> Plan:
        return Plan(
            file=file,
            total=self._total,
            elements=self._elements(),
            complaints=[
                ShareComplaint(error.kind, error.text, [PoolName(name) for name in error.pools])
                for error in self._result.errors
            ],
            warnings=[refusal.text() for refusal in broken_rules(self._description.tree, Bounds())],
        )

    def _name(self, place: int) -> str:
        return self._tree.pools[place].name if place >= 0 else ROOT_POOL

    def _elements(self) -> list[PlanElement]:
        """The root, then each pool with all that stands in it."""
        below: dict[int, list[int]] = {}
        for place, pool in enumerate(self._tree.pools):
            below.setdefault(pool.parent, []).append(place)
        inside: dict[int, list[OperationInput]] = {}
        for operation in self._tree.operations:
            inside.setdefault(operation.pool, []).append(operation)
        bindings = Bindings(self._tree, self._result)
        elements = [self._root(bindings)]
        waiting: list[int | OperationInput] = list(reversed(below.get(-1, [])))
        while waiting:
            match waiting.pop():
                case int(place):
                    elements.append(self._pool(self._tree.pools[place], bindings))
                    waiting += reversed(inside.get(place, []))
                    waiting += reversed(below.get(place, []))
                case operation:
                    elements.append(self._operation(operation, bindings))
        return elements

    def _root(self, bindings: Bindings) -> PlanElement:
        shares = self._result.root
        item = _item(ElementKind.ROOT, ROOT_POOL, "", shares, self._satisfaction[ROOT_POOL])
        return self._element(item, shares, "/", 0, bindings.of_root())

    def _pool(self, pool: PoolInput, bindings: Bindings) -> PlanElement:
        shares = self._result.pools[pool.name]
        item = _item(ElementKind.POOL, pool.name, self._name(pool.parent), shares, self._satisfaction[pool.name])
        flow, burst = pool.resource_flow.share_of(self._total), pool.burst_guarantee.share_of(self._total)
        volume = None
        if pool.integral is not IntegralType.NONE:
            volume = _ratio_volume(self._result.integral[pool.name].volume, self._total)
            item = msgspec.structs.replace(
                item,
                accumulated_ratio_volume=volume,
                specified_resource_flow_ratio=max(flow),
                specified_burst_ratio=max(burst) if pool.integral is IntegralType.BURST else 0.0,
            )
        line = self._description.pool_lines[pool.name]
        made = self._element(item, shares, self._paths[pool.name], line, bindings.of_pool(pool))
        return msgspec.structs.replace(
            made, scaled=_scaled(pool, shares, self._total), accumulated_resource_ratio_volume=volume
        )

    def _operation(self, operation: OperationInput, bindings: Bindings) -> PlanElement:
        shares = self._result.operations[operation.name]
        parent = self._name(operation.pool)
        own = local_satisfaction(shares.usage_share, shares.fair_share, shares.demand_share)
        item = _item(ElementKind.OPERATION, operation.name, parent, shares, (own, own))
        path = f"{self._paths[parent]}/{operation.name}"
        line = self._description.operation_lines[operation.name]
        made = self._element(item, shares, path, line, bindings.of_operation(operation))
        return msgspec.structs.replace(made, gang=operation.gang)

    def _element(self, item: ShareItem, shares: ElementShares, path: str, line: int, bound: Bound) -> PlanElement:
        return PlanElement(
            kind=item.kind,
            name=item.name,
            path=path,
            line=line,
            share=item,
            bound=bound,
            guarantee=_amounts(shares.strong_guarantee_share, self._total),
            fair_resources=_amounts(shares.fair_share, self._total),
            usage=_amounts(shares.usage_share, self._total),
            demand=_amounts(shares.demand_share, self._total),
        )

    def _satisfactions(self) -> dict[str, tuple[float, float]]:
        """Of the root and the pools: the least of all operations below, and their own."""
        least = dict.fromkeys((ROOT_POOL, *(pool.name for pool in self._tree.pools)), INFINITE_SATISFACTION)
        for operation in self._tree.operations:
            shares = self._result.operations[operation.name]
            own = local_satisfaction(shares.usage_share, shares.fair_share, shares.demand_share)
            name = self._name(operation.pool)
            least[name] = min(least[name], own)
        for pool in reversed(self._tree.pools):
            parent = self._name(pool.parent)
            least[parent] = min(least[parent], least[pool.name])
        pools = {ROOT_POOL: self._result.root, **self._result.pools}
        return {
            name: (least[name], local_satisfaction(each.usage_share, each.fair_share, each.demand_share))
            for name, each in pools.items()
        }


def _item(
    kind: ElementKind, name: str, parent: str, shares: ElementShares, satisfaction: tuple[float, float]
) -> ShareItem:
    return ShareItem(
        kind=kind,
        name=name,
        parent=PoolName(parent),
        fair_share=DetailedShare(
            shares.strong_part, shares.integral_part, shares.weight_proportional_part, shares.fair_share
        ),
        usage_share=shares.usage_share,
        demand_share=shares.demand_share,
        limits_share=shares.limits_share,
        strong_guarantee_share=shares.strong_guarantee_share,
        promised_fair_share=shares.promised_guarantee_fair_share,
        estimated_guarantee_share=shares.estimated_guarantee_share,
        weight=shares.weight,
        dominant_resource=RESOURCE_NAMES[shares.dominant_resource],
        satisfaction_ratio=satisfaction[0],
        local_satisfaction_ratio=satisfaction[1],
        fifo_index=shares.fifo_index,
        effective_fifo_index=shares.effective_fifo_index,
        proposed_integral_share=shares.integral_guarantee_share,
        total_resource_flow_ratio=shares.total_flow_ratio,
        total_burst_ratio=shares.total_burst_ratio,
    )


def _amounts(share: Share, total: Resources) -> Resources:
    user_slots, cpu, gpu, memory, network = (
        int(part * whole + 0.5) for part, whole in zip(share, total.as_tuple(), strict=True)
    )
    return Resources(user_slots, cpu, gpu, memory, network).within_wire()


def _ratio_volume(volume: tuple[float, ...], total: Resources) -> float:
    return min((each / there for each, there in zip(volume, total.as_tuple(), strict=True) if there), default=0.0)


def _scaled(pool: PoolInput, shares: ElementShares, total: Resources) -> list[Scaled]:
    """Guarantees of which less is in force than was configured, resource by resource."""
    found: list[Scaled] = []
    strong = _amounts(shares.strong_guarantee_share, total).as_tuple()
    for name, asked, has in zip(RESOURCE_NAMES, pool.strong_guarantee, strong, strict=True):
        if asked and getattr(total, name) and asked - has > max(1, _NEARLY * asked):
            found.append(Scaled("strong_guarantee_resources", name, asked, has))
    if pool.integral is IntegralType.BURST:
        wanted = pool.burst_guarantee.share_of(total)
        part = shares.burst_ratio / max(wanted) if max(wanted) > 0 else 1.0
        for name, asked in zip(RESOURCE_NAMES, pool.burst_guarantee.as_tuple(), strict=True):
            if asked and part < 1.0 - _NEARLY:
                found.append(Scaled("burst_guarantee_resources", name, asked, int(asked * part + 0.5)))
    return found
