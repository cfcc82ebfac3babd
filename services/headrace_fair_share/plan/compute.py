"""One update of the tree that a file describes, and what limits each of its elements.

If the file gives no volume for an integral pool, the pool has the volume of a pool with steady demand: what its flow adds in one smooth
period. With this volume a pool gets its flow, no more and no less.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from headrace.ids import PoolName
from headrace.pools import IntegralType, Pool
from headrace.pools.amounts import NOTHING
from headrace.resources import RESOURCE_NAMES
from headrace.wire.plan import Bound, BoundKind, Plan, PlanElement, Scaled
from headrace.wire.snapshots import ShareComplaint, ShareItem
from headrace_fair_share.configuration.rules import TreeBounds, broken_rules
from headrace_fair_share.facts.operations import Demand
from headrace_fair_share.facts.pool_inputs import effective_options_of
from headrace_fair_share.hdrf.integral_shares import ratio_by_volume
from headrace_fair_share.hdrf.tree_update import TreeShares
from headrace_fair_share.plan.description import Description
from headrace_fair_share.update.algorithm_input import UpdateInput
from headrace_fair_share.update.binding import Bindings
from headrace_fair_share.update.elements import Elements, elements_of
from headrace_fair_share.update.results import items_of
from headrace_fair_share.update.update_facts import UpdateFacts
from headrace_fair_share.update.updater import results_of, share_updater

#: Relative difference above which configured and effective guarantees count as different.
_NEARLY: Final = 1e-6


def computed(description: Description, file: str) -> Plan:
    """Compute the plan. Raises `BrokenInvariant`."""
    tree = description.input
    pools = [description.tree.pools[name] for name in description.tree.preorder]
    limits = [NOTHING, *(pool.settings.resource_limits for pool in pools)]
    elements = elements_of(tree, len(pools), effective_options_of(description.tree, pools), limits)
    shares = share_updater(tree.options.sharing).update(tree)
    return Plan(
        file=file,
        total=tree.total,
        elements=_Planned(description, elements, shares).elements(),
        complaints=[
            ShareComplaint(error.kind, error.text, [PoolName(name) for name in error.pools])
            for error in shares.fixed.errors
        ],
        warnings=[
            *(
                f"Headrace would refuse this: {refusal.text()}"
                for refusal in broken_rules(description.tree, TreeBounds())
            ),
            *(_unknown_nodes(pool) for pool in pools if pool.settings.scheduling_tag_filter),
        ],
    )


def _unknown_nodes(pool: Pool) -> str:
    return f"pool {pool.name}: a plan has no nodes with tags, so its scheduling_tag_filter has no effect here"


class _Planned:
    """The tree of a plan and the results of its update, from which the elements of the plan are made."""

    def __init__(self, description: Description, elements: Elements, shares: TreeShares) -> None:
        self._tree = tree = description.input
        self._elements = elements
        self._lines = [
            0,
            *(description.pool_lines[pool.name] for pool in tree.pools),
            *(description.operation_lines[operation.name] for operation in tree.operations),
        ]
        saved = np.zeros(shares.layout.size)
        saved[shares.fixed.integral.all] = ratio_by_volume(shares.volume, shares.fixed.total, 1.0)
        #: Effective bursts, by position of the pool in the input.
        self._bursts = shares.fixed.burst[shares.layout.of_pool].tolist()
        #: Volumes, by position of the pool in the input.
        self._saved = saved[shares.layout.of_pool].tolist()
        demands = [Demand(each.demand, each.usage, is_pending=True) for each in tree.operations]
        running, lightweight = [True] * len(demands), [False] * len(demands)
        given = UpdateInput(elements, tree, demands, running, lightweight, [None] * len(elements.names))
        results, _ = results_of(UpdateFacts(pools=description.tree), given, shares)
        self._items = items_of(elements, results, np.arange(len(elements.names)))
        gangs = {
            operation.name
            for operation in tree.operations
            if operation.gang and tree.options.gang_step_function and tree.pools[operation.pool].gang_step_function
        }
        self._bindings = Bindings({item.key: item for item in self._items}, tree.total, gangs)

    def elements(self) -> list[PlanElement]:
        """Return the root, then each pool followed by everything in it."""
        below: dict[int, list[int]] = {}
        for place, above in enumerate(self._elements.parent.tolist()):
            below.setdefault(above, []).append(place)
        paths = {-1: "", 0: ""}
        planned: list[PlanElement] = []
        waiting = [0]
        while waiting:
            place = waiting.pop()
            item = self._items[place]
            if place:
                paths[place] = f"{paths[self._elements.parent[place]]}/{item.name}"
            planned.append(self._element(place, item, paths[place] or "/"))
            waiting += reversed(below.get(place, []))
        return planned

    def _element(self, place: int, item: ShareItem, path: str) -> PlanElement:
        total, pools = self._tree.total, self._elements.pools
        element = PlanElement(
            kind=item.kind,
            name=item.name,
            path=path,
            line=self._lines[place],
            share=item,
            bound=self._bound(place, item),
            guarantee=total.part(item.strong_guarantee_share),
            fair_resources=total.part(item.fair_share.total),
            usage=total.part(item.usage_share),
            demand=total.part(item.demand_share),
        )
        if place >= pools:
            return msgspec.structs.replace(element, gang=self._tree.operations[place - pools].gang)
        if not place:
            return element
        element = msgspec.structs.replace(element, scaled=self._scaled(place - 1, item))
        if self._tree.pools[place - 1].integral is IntegralType.NONE:
            return element
        saved = self._saved[place - 1]
        item = msgspec.structs.replace(item, accumulated_ratio_volume=saved)
        return msgspec.structs.replace(element, share=item, accumulated_resource_ratio_volume=saved)

    def _bound(self, place: int, item: ShareItem) -> Bound:
        if place >= self._elements.pools:
            demand = self._tree.operations[place - self._elements.pools].demand
            for name, wants, there in zip(RESOURCE_NAMES, demand.as_tuple(), self._tree.total.as_tuple(), strict=True):
                if wants and not there:
                    return Bound(BoundKind.ABSENT, name)
        return self._bindings.of(item.key)

    def _scaled(self, at: int, item: ShareItem) -> list[Scaled]:
        """Return the guarantees that are effectively smaller than configured, by resource."""
        found: list[Scaled] = []
        pool, total = self._tree.pools[at], self._tree.total
        strong = total.part(item.strong_guarantee_share).as_tuple()
        for name, asked, has in zip(RESOURCE_NAMES, pool.strong_guarantee, strong, strict=True):
            if asked and getattr(total, name) and asked - has > max(1, _NEARLY * asked):
                found.append(Scaled("strong_guarantee_resources", name, asked, has))
        if pool.integral is IntegralType.BURST and item.specified_burst_ratio > 0.0:
            part = self._bursts[at] / item.specified_burst_ratio
            for name, asked in zip(RESOURCE_NAMES, pool.burst_guarantee.as_tuple(), strict=True):
                if asked and part < 1.0 - _NEARLY:
                    found.append(Scaled("burst_guarantee_resources", name, asked, int(asked * part + 0.5)))
        return found
