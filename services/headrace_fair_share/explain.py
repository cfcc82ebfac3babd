"""The explanation of a pool: its path from the root, and the pools and operations that hold the resources that it lacks. Pure.

An explanation reads every element of the tree once. Therefore it is made in a worker thread, from a copy of one update's results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName, UserName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.tree_options import PreemptionPolicy
from headrace.resources import RESOURCE_NAMES, ZERO, Resources
from headrace.suggestions import near
from headrace.wire.plan import BoundKind
from headrace.wire.pool_explanations import (
    Division,
    ExplainPool,
    Holder,
    Holders,
    IntegralGuarantee,
    PoolExplained,
    ShareStep,
    Sibling,
)
from headrace.wire.refusals import NotFound, NotReady
from headrace.wire.snapshots import ElementKind, ShareFrame, ShareItem
from headrace_fair_share.engine import FairShareEngine
from headrace_fair_share.facts.operations import KnownOperation
from headrace_fair_share.update.binding import NEAR, Bindings

_MOST_SIBLINGS: Final = 3
_MOST_HOLDERS: Final = 10
_MOST_STEPS: Final = 34
#: Kinds of bounds. An element whose share has such a bound would get more if its pool had more. A limit counts only if a pool above the
#: element sets it.
_DIVIDED: Final = frozenset({BoundKind.FULL, BoundKind.LIMIT, BoundKind.SHAPE})


class Shares(msgspec.Struct, frozen=True):
    """The results of one update, and the operations at that time; later updates do not change this copy."""

    tree: TreeName
    frame: ShareFrame
    items: Mapping[str, ShareItem]
    operations: Mapping[OperationId, KnownOperation]
    #: Configured strong guarantees.
    guarantees: Mapping[PoolName, PartialResources]

    @staticmethod
    def of(engine: FairShareEngine) -> Shares:
        """Copy from the engine what an explanation needs."""
        pools = engine.configuration.in_force.pools
        guarantees = {name: pool.settings.strong_guarantee_resources for name, pool in pools.items()}
        return Shares(
            engine.configuration.pools.name,
            engine.frame,
            dict(engine.items),
            dict(engine.operations.by_id),
            {name: amounts for name, amounts in guarantees.items() if amounts != NOTHING},
        )


def explain_pool(shares: Shares, request: ExplainPool) -> PoolExplained | NotFound | NotReady:
    """Explain a pool, and a second pool for comparison if the request names one."""
    if f"/{ROOT_POOL}" not in shares.items:
        return NotReady("no shares were computed yet")
    for name in (request.name, *filter(None, [request.against])):
        if f"/{name}" not in shares.items:
            names = [item.name for item in shares.items.values() if item.kind is not ElementKind.OPERATION]
            return NotFound(what="pool", name=name, near=near(name, names))
    return _Explainer(shares).explained(request)


class _Explainer:
    """Explains the pools of one update."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._total = shares.frame.total
        gangs = {name for name, each in shares.operations.items() if each.is_gang}
        self._bindings = Bindings(shares.items, self._total, gangs)

    def explained(self, request: ExplainPool) -> PoolExplained:
        steps = self._steps(request.name)
        return PoolExplained(
            self._shares.tree,
            self._shares.frame.at_ms,
            self._shares.frame.usage_version,
            self._total,
            steps=steps,
            against=self._steps(request.against) if request.against else [],
            holders=self._holders(PoolName(request.name), steps[-1].resource or steps[-1].dominant_resource),
        )

    # --- from the root down -----------------------------------------------------------------------------------------

    def _steps(self, name: str) -> list[ShareStep]:
        path = [self._shares.items[f"/{name}"]]
        while path[-1].parent:
            path.append(self._shares.items[f"/{path[-1].parent}"])
        return [self._step(item) for item in reversed(path[-_MOST_STEPS:])]

    def _step(self, item: ShareItem) -> ShareStep:
        total, fair = self._total, item.fair_share
        bound = self._bindings.of(item.key)
        resource = bound.resource or item.dominant_resource
        siblings = [each for each in self._bindings.children.get(item.parent, ()) if each is not item]
        sharing = [item, *filter(self._wants_more, siblings)]
        least = total.part(item.limits_share)
        limits = [
            amount if share < 1.0 - NEAR and whole else None
            for share, amount, whole in zip(item.limits_share, least.as_tuple(), total.as_tuple(), strict=True)
        ]
        by_nodes = item.tag_filter_limits is not None and item.limits != PartialResources(*limits)
        has_savings = item.specified_resource_flow_ratio or item.specified_burst_ratio
        return ShareStep(
            pool=PoolName(item.name),
            bound_by=bound.kind,
            resource=bound.resource,
            limited_above=PoolName(bound.pool),
            division=self._division(item, siblings) if self._wants_more(item) else Division.NONE,
            dominant_resource=item.dominant_resource,
            weight=item.weight,
            usage=total.part(item.usage_share),
            demand=total.part(item.demand_share),
            fair_resources=total.part(fair.total),
            by_strong_guarantee=total.part(fair.strong_guarantee),
            by_integral_guarantee=total.part(fair.integral_guarantee),
            by_weight=total.part(fair.weight_proportional),
            guarantee=total.part(item.strong_guarantee_share),
            configured_guarantee=self._shares.guarantees.get(PoolName(item.name), NOTHING),
            limits=PartialResources(*limits),
            limited_by_nodes=by_nodes,
            savings=IntegralGuarantee(
                item.specified_resource_flow_ratio,
                item.specified_burst_ratio,
                item.accumulated_ratio_volume,
                max(item.proposed_integral_share),
            )
            if has_savings
            else None,
            starvation_status=item.starvation_status,
            weights=sum(each.weight for each in sharing),
            sharing=len(sharing),
            siblings=[self._sibling(each) for each in self._first(siblings, resource)],
        )

    def _division(self, item: ShareItem, siblings: list[ShareItem]) -> Division:
        if item.kind is ElementKind.ROOT:
            return Division.NONE
        if all(max(each.fair_share.total) <= NEAR for each in siblings):
            return Division.ALONE
        if not any(max(each.fair_share.weight_proportional) > NEAR for each in (item, *siblings)):
            return Division.GUARANTEES
        return Division.WEIGHT if any(map(self._wants_more, siblings)) else Division.REST

    def _wants_more(self, item: ShareItem) -> bool:
        """Return True if the element would get more, should its pool get a larger share."""
        bound = self._bindings.of(item.key)
        return bound.kind in _DIVIDED and (bound.kind is not BoundKind.LIMIT or bool(bound.pool))

    def _first(self, siblings: list[ShareItem], resource: str) -> list[ShareItem]:
        owed = [each for each in siblings if max(each.fair_share.total) > NEAR]
        return nlargest(_MOST_SIBLINGS, owed, key=lambda each: (_of(each.fair_share.total, resource), each.key))

    def _sibling(self, item: ShareItem) -> Sibling:
        return Sibling(
            item.kind,
            PoolName(item.name),
            item.weight,
            usage=self._total.part(item.usage_share),
            fair_resources=self._total.part(item.fair_share.total),
            demand=self._total.part(item.demand_share),
        )

    # --- holders of what the pool lacks -----------------------------------------------------------------------------

    def _holders(self, name: PoolName, resource: str) -> Holders:
        items, total = self._shares.items, self._total
        own, root = items[f"/{name}"], items[f"/{ROOT_POOL}"]
        has = total.part(own.usage_share)
        inside = self._below(name)
        operations = [
            self._holder(item)
            for pool, children in self._bindings.children.items()
            if pool not in inside
            for item in children
            if item.kind is ElementKind.OPERATION and max(item.usage_share) > 0.0
        ]
        # The excess of a pool over its share is what its operations have beyond their shares, minus what other operations of the pool lack
        # of their shares.
        beyond = {each.pool: self._beyond(items[f"/{each.pool}"]) for each in operations}
        pools = [
            msgspec.structs.replace(
                each, beyond=beyond[each.pool].within(each.usage), exempt_time_ms=self._exempt_time_ms(each.pool)
            )
            for each in _summed(operations, lambda one: Holder(OperationId(""), one.pool, UserName(""), ZERO, ZERO))
        ]
        people = _summed(operations, lambda one: Holder(OperationId(""), PoolName(""), one.user, ZERO, ZERO))

        def most(holders: Iterable[Holder]) -> list[Holder]:
            def place(one: Holder) -> tuple[int, int, str]:
                return (getattr(one.beyond, resource), getattr(one.usage, resource), one.operation or one.pool)

            return nlargest(_MOST_HOLDERS, (one for one in holders if getattr(one.usage, resource)), key=place)

        return Holders(
            resource,
            owed=(total.part(own.fair_share.total) - has).within_wire(),
            wanted=(total.part(own.demand_share) - has).within_wire(),
            free=(total - total.part(root.usage_share)).within_wire(),
            pools=most(pools),
            operations=most(operations),
            people=most(people),
            pool_count=len(pools),
            operation_count=len(operations),
            people_count=len(people),
        )

    def _below(self, name: PoolName) -> set[str]:
        """Return the pool and all pools below it."""
        inside: set[str] = set()
        waiting: list[str] = [name]
        while waiting:
            pool = waiting.pop()
            inside.add(pool)
            children = self._bindings.children.get(pool, ())
            waiting += [child.name for child in children if child.kind is ElementKind.POOL]
        return inside

    def _holder(self, item: ShareItem) -> Holder:
        operation = OperationId(item.name)
        known = self._shares.operations.get(operation)
        return Holder(
            operation,
            item.parent,
            UserName(known.user if known is not None else ""),
            usage=self._total.part(item.usage_share),
            beyond=self._beyond(item),
            started_at_ms=known.started_at_ms if known is not None else None,
        )

    def _exempt_time_ms(self, pool: PoolName) -> int:
        options = self._shares.items[f"/{pool}"].options
        if options is None or self._shares.frame.options.preemption_policy is not PreemptionPolicy.YTSAURUS:
            return 0
        return options.preemption_exempt_time_ms

    def _beyond(self, item: ShareItem) -> Resources:
        return (self._total.part(item.usage_share) - self._total.part(item.fair_share.total)).within_wire()


def _of(share: tuple[float, ...], resource: str) -> float:
    return share[RESOURCE_NAMES.index(resource)]


def _summed(holders: Iterable[Holder], group: Callable[[Holder], Holder]) -> list[Holder]:
    sums: dict[tuple[str, str], Holder] = {}
    for each in holders:
        blank = group(each)
        key = (blank.pool, blank.user)
        before = sums.get(key, blank)
        sums[key] = msgspec.structs.replace(
            before,
            usage=(before.usage + each.usage).within_wire(),
            beyond=(before.beyond + each.beyond).within_wire(),
        )
    return list(sums.values())
