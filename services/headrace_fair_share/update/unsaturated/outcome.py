"""All results of an update of a small unsaturated tree: share items, pool results, starvation clocks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from headrace.ids import PoolName
from headrace.pools import PreemptionPolicy
from headrace.pools.amounts import NOTHING
from headrace.resources import RESOURCE_NAMES, ZERO_SHARE, Share
from headrace.satisfaction import INFINITE_SATISFACTION, local_satisfaction
from headrace.wire.snapshots import (
    DetailedShare,
    PreemptionPriority,
    SchedulingStatus,
    ShareItem,
    StarvationReason,
    StarvationStatus,
)
from headrace_fair_share.starvation.clocks import NO_TIME, Clocks
from headrace_fair_share.update.algorithm_input import UpdateInput
from headrace_fair_share.update.elements import Elements
from headrace_fair_share.update.results import PoolResults
from headrace_fair_share.update.unsaturated.clocks import unsaturated_clocks
from headrace_fair_share.update.unsaturated.resting import DirectCounts
from headrace_fair_share.update.unsaturated.shares import PlainShares, unsaturated_shares
from headrace_fair_share.update.update_facts import UpdateFacts

#: Number of elements above which the numpy computation is faster.
MOST_ELEMENTS: Final = 128
_NOBODY_RESTS: Final[Mapping[PoolName, DirectCounts]] = {}


class UnsaturatedResults(NamedTuple):
    """The results of all elements that were computed."""

    #: Share items by key.
    items: dict[str, ShareItem]
    pool_results: dict[PoolName, PoolResults]
    clocks: Clocks


def unsaturated_outcome(
    cut: UpdateFacts,
    given: UpdateInput,
    resting: Mapping[PoolName, DirectCounts] = _NOBODY_RESTS,
    places: Sequence[int] | None = None,
) -> UnsaturatedResults | None:
    """Compute all results of an unsaturated tree without numpy. Return None if the tree does not qualify.

    A tree does not qualify if some demand does not fit, or if an element has a guarantee or starves. The caller then uses the numpy
    computation. `places` are the positions to compute, the position of the root first. The elements at other positions have no usage and no
    demand. `resting` counts, for each pool, the operations directly in the pool that are not among the elements.
    """
    if cut.pools.options.preemption_policy is not PreemptionPolicy.YTSAURUS:
        return None
    elements = given.elements
    places = range(len(elements.names)) if places is None else places
    shares = unsaturated_shares(given.tree, elements.above, places)
    if shares is None:
        return None
    schedulable = [True] * elements.pools + [demand.is_pending for demand in given.demands]
    clocks = unsaturated_clocks(cut, given, shares, schedulable, places)
    if clocks is None:
        return None
    items = _items(cut, given, shares, clocks, schedulable, places)
    return UnsaturatedResults(items, _pool_results(given, shares, schedulable, resting, places), clocks)


def _items(
    cut: UpdateFacts,
    given: UpdateInput,
    shares: PlainShares,
    clocks: Clocks,
    schedulable: Sequence[bool],
    places: Sequence[int],
) -> dict[str, ShareItem]:
    elements, tree = given.elements, given.tree
    local = {
        place: local_satisfaction(shares.usage_share[place], shares.fair_share[place], shares.demand_share[place])
        for place in places
    }
    satisfaction = _least_below(local, elements)
    weights = [1.0, *(1.0 if pool.weight is None else pool.weight for pool in tree.pools)]
    weights += [operation.weight for operation in tree.operations]
    items, below_since = {}, clocks.below_since.tolist()
    for place in places:
        is_pool, fair, since = place < elements.pools, shares.fair_share[place], below_since[place]
        is_below = since != NO_TIME
        items[elements.keys[place]] = ShareItem(
            elements.kind(place),
            elements.names[place],
            elements.parents[place],
            DetailedShare(ZERO_SHARE, ZERO_SHARE, fair, fair),
            shares.usage_share[place],
            shares.demand_share[place],
            shares.limits_share[place],
            weight=float(weights[place]),
            dominant_resource=_dominant(shares, place),
            satisfaction_ratio=satisfaction[place],
            local_satisfaction_ratio=local[place],
            scheduling_status=SchedulingStatus.BELOW_FAIR_SHARE if is_below else SchedulingStatus.NORMAL,
            starvation_status=StarvationStatus.NON_STARVING,
            below_fair_share_since_ms=max(0, since + cut.clock_offset_ms) if is_below else None,
            schedulable=schedulable[place],
            owed_everything=not is_pool,
            ephemeral=elements.is_ephemeral(place),
            limits=elements.limits[place] if is_pool else NOTHING,
            preemption_priority=PreemptionPriority.NONE,
            starvation_reason=StarvationReason.NONE,
            options=elements.options[place] if is_pool else None,
            rank=elements.ranks[place],
            tag_filter_limits=given.most[place],
        )
    return items


def _least_below(local: Mapping[int, float], elements: Elements) -> dict[int, float]:
    """Return the satisfaction of operations, and for each pool the lowest satisfaction of all operations below it."""
    ratios = {place: INFINITE_SATISFACTION if place < elements.pools else ratio for place, ratio in local.items()}
    for place in reversed(list(ratios)[1:]):
        above = elements.above[place]
        if ratios[place] < ratios[above]:
            ratios[above] = ratios[place]
    return ratios


def _dominant(shares: PlainShares, place: int) -> str:
    """Return the resource with the largest share of the usage, or of the demand if nothing is used."""
    uses = any(shares.usage[place].as_tuple())
    of: Share = shares.usage_share[place] if uses else shares.demand_share[place]
    most = max(of)
    return RESOURCE_NAMES[of.index(most)] if most > 0.0 else "cpu"


def _pool_results(
    given: UpdateInput,
    shares: PlainShares,
    schedulable: Sequence[bool],
    resting: Mapping[PoolName, DirectCounts],
    places: Sequence[int],
) -> dict[PoolName, PoolResults]:
    elements, pools = given.elements, given.elements.pools
    own = [resting.get(PoolName(name), DirectCounts()) for name in elements.names[:pools]]
    for above, runs, takes_part in zip(elements.above[pools:], given.runs, schedulable[pools:], strict=True):
        own[above] = own[above].plus(DirectCounts(1, int(runs), int(takes_part)))
    below = own.copy()
    for place in range(pools - 1, 0, -1):
        below[elements.above[place]] = below[elements.above[place]].plus(below[place])
    return {
        PoolName(elements.names[place]): PoolResults(
            shares.usage[place],
            shares.demand[place],
            below[place].operations,
            below[place].running,
            # Lightweight operations exist in fifo pools only, and trees with fifo pools are not computed here.
            lightweight_operations=0,
            schedulable_operations=below[place].schedulable,
            own_operations=own[place].operations,
        )
        for place in places
        if place < pools
    }


def first_difference(one: dict[str, ShareItem], other: dict[str, ShareItem]) -> str:
    """Return the key of the first item that differs between the two, or is missing in either."""
    return next(key for key in {**one, **other} if one.get(key) != other.get(key))
