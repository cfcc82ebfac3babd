"""The results of an update for every element, as arrays in the order of `Elements`. Objects are made only of what changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from headrace.ids import PoolName
from headrace.pools.amounts import NOTHING
from headrace.resources import LARGEST_SUM, RESOURCE_NAMES, ZERO, Resources
from headrace.wire.snapshots import DetailedShare, SchedulingStatus, ShareItem
from headrace_fair_share.hdrf.arrays import Bools, BrokenInvariant, Floats, Ints
from headrace_fair_share.starvation.clocks import STARVATION, STARVATION_REASON
from headrace_fair_share.starvation.priority import PREEMPTION_PRIORITY
from headrace_fair_share.update.elements import Elements, pool_key

#: Stands where there is no moment of Unix time.
NO_MOMENT: Final = -1
#: Sums of shares may be above what they should be by this much.
_ROUNDING: Final = 1e-6


class PoolResults(msgspec.Struct, frozen=True):
    """Results of a pool beside its share item."""

    usage: Resources = ZERO
    demand: Resources = ZERO
    operations: int = 0
    running_operations: int = 0
    #: Those that take part in scheduling, and those in the pool itself.
    schedulable_operations: int = 0
    own_operations: int = 0
    #: Largest component of the integral share that was granted, used or not: what its savings are charged for; 0 without any.
    grant_ratio: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementResults:
    """Results of all elements: shape (5, elements) by resource, (elements,) else."""

    usage: Ints
    demand: Ints
    fair_share: Floats
    strong_part: Floats
    integral_part: Floats
    weight_proportional_part: Floats
    usage_share: Floats
    demand_share: Floats
    limits_share: Floats
    #: What nodes have that match the filters of an element; `LARGEST_SUM` where it has none.
    tag_filter_limits: Ints
    #: After inference and fitting.
    strong_guarantee_share: Floats
    promised_fair_share: Floats
    estimated_guarantee_share: Floats
    #: Integral share that was granted, used or not.
    proposed_integral_share: Floats
    #: Its largest component before it was brought within the limits to the last bit: what savings are charged for.
    grant_ratio: Floats
    #: In force.
    weight: Floats
    dominant_resource: Ints
    satisfaction: Floats
    local_satisfaction: Floats
    #: Milliseconds of Unix time, or `NO_MOMENT`.
    below_since_ms: Ints
    starving_since_ms: Ints
    #: Places in `STARVATION`.
    starvation: Ints
    #: Places in `STARVATION_REASON`, and of operations in `PREEMPTION_PRIORITY`.
    starvation_reason: Ints
    preemption_priority: Ints
    schedulable: Bools
    owed_everything: Bools
    ratio_volume: Floats
    #: -1 outside of fifo pools, and where the order stayed what it was.
    fifo_index: Ints
    effective_fifo_index: Ints
    #: Order of equally satisfied children.
    rank: Ints
    #: Integral guarantees as numbers, own and with all below.
    flow_ratio: Floats
    burst_ratio: Floats
    total_flow_ratio: Floats
    total_burst_ratio: Floats
    #: In the pool and all below it; 0 at operations.
    operations: Ints
    running_operations: Ints
    schedulable_operations: Ints
    #: In the pool itself.
    own_operations: Ints
    #: Under a YARN policy, of pools with all below.
    due_to_fair_share: Ints
    due_to_min_share: Ints
    claims: Bools

    def check(self, elements: Elements) -> None:
        """Raises `BrokenInvariant` where a result is not a number or not finite."""
        count = len(elements.names)
        finite = [np.isfinite(getattr(self, name)).reshape(-1, count) for name in _COLUMNS]
        if np.concatenate(finite).all():
            return
        name, wrong = next((name, ~each) for name, each in zip(_COLUMNS, finite, strict=True) if not each.all())
        place = int(np.flatnonzero(wrong.any(axis=0))[0])
        raise BrokenInvariant(f"{name} of {elements.keys[place]} is {getattr(self, name)[..., place]}")


_COLUMNS: Final = tuple(field.name for field in fields(ElementResults))


def differing(now: ElementResults, before: ElementResults, place_before: Ints | None) -> Ints:
    """Places of elements of which some result is not what it was.

    `place_before` says where each stood, -1 where it is new, None if all stand where they stood.
    """
    count = len(now.weight)
    # One look at all of them together: in a small tree each step of numpy costs as much as in a large one.
    changes = [] if place_before is None else [(place_before < 0).reshape(1, count)]
    for name in _COLUMNS:
        old = getattr(before, name)
        if place_before is not None:
            old = old.take(place_before, axis=-1)
        changes.append((getattr(now, name) != old).reshape(-1, count))
    return np.flatnonzero(np.concatenate(changes).any(axis=0))


def items_of(elements: Elements, results: ElementResults, places: Ints) -> list[ShareItem]:
    """Makes share items of the elements at some places."""

    def rows(column: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
        return map(tuple, column[:, places].T.tolist())

    def moments(column: Ints) -> Iterator[int | None]:
        return (None if moment == NO_MOMENT else moment for moment in column[places].tolist())

    fair = map(
        DetailedShare,
        rows(results.strong_part),
        rows(results.integral_part),
        rows(results.weight_proportional_part),
        rows(results.fair_share),
    )
    at = places.tolist()
    columns = zip(
        map(elements.kind, at),
        (elements.names[place] for place in at),
        (elements.parents[place] for place in at),
        fair,
        rows(results.usage_share),
        rows(results.demand_share),
        rows(results.limits_share),
        rows(results.strong_guarantee_share),
        rows(results.promised_fair_share),
        rows(results.estimated_guarantee_share),
        results.weight[places].tolist(),
        (RESOURCE_NAMES[r] for r in results.dominant_resource[places].tolist()),
        results.satisfaction[places].tolist(),
        results.local_satisfaction[places].tolist(),
        map(_status, results.below_since_ms[places].tolist()),
        (STARVATION[code] for code in results.starvation[places].tolist()),
        moments(results.below_since_ms),
        moments(results.starving_since_ms),
        results.schedulable[places].tolist(),
        results.owed_everything[places].tolist(),
        results.ratio_volume[places].tolist(),
        map(elements.is_ephemeral, at),
        moments(results.fifo_index),
        moments(results.effective_fifo_index),
        rows(results.proposed_integral_share),
        results.flow_ratio[places].tolist(),
        results.burst_ratio[places].tolist(),
        results.total_flow_ratio[places].tolist(),
        results.total_burst_ratio[places].tolist(),
        (elements.limits[place] if place < elements.pools else NOTHING for place in at),
        (PREEMPTION_PRIORITY[code] for code in results.preemption_priority[places].tolist()),
        (STARVATION_REASON[code] for code in results.starvation_reason[places].tolist()),
        (elements.options[place] if place < elements.pools else None for place in at),
        results.rank[places].tolist(),
        map(_filter_limits, results.tag_filter_limits[:, places].T.tolist()),
        map(_due, results.due_to_fair_share[:, places].T.tolist()),
        map(_due, results.due_to_min_share[:, places].T.tolist()),
        results.claims[places].tolist(),
        strict=True,
    )
    return [ShareItem(*one) for one in columns]


def _due(amounts: list[int]) -> Resources | None:
    return Resources(*amounts) if any(amounts) else None


def _filter_limits(amounts: list[int]) -> Resources | None:
    return None if amounts[0] >= LARGEST_SUM else Resources(*amounts)


def pool_results_of(elements: Elements, results: ElementResults, places: Ints) -> dict[PoolName, PoolResults]:
    """Returns the results beside share items of the pools at some places. Operations have none."""
    places = places[places < elements.pools]
    columns = zip(
        (PoolName(elements.names[place]) for place in places.tolist()),
        results.usage[:, places].T.tolist(),
        results.demand[:, places].T.tolist(),
        results.operations[places].tolist(),
        results.running_operations[places].tolist(),
        results.schedulable_operations[places].tolist(),
        results.own_operations[places].tolist(),
        results.grant_ratio[places].tolist(),
        strict=True,
    )
    return {
        name: PoolResults(Resources(*usage), Resources(*demand), *others) for name, usage, demand, *others in columns
    }


def check_shares(items: Mapping[str, ShareItem], pools: Iterable[PoolName]) -> list[str]:
    """The fair shares of the pools in a pool are not above its own in sum, rounding aside."""
    sums: dict[str, list[float]] = {}
    for name in pools:
        item = items.get(pool_key(name))
        if item is None:
            return [f"results of pool {name}, which has no share item"]
        together = sums.setdefault(item.parent, [0.0] * len(RESOURCE_NAMES))
        for place, share in enumerate(item.fair_share.total):
            together[place] += share
    return [
        f"pool {parent}: the fair shares of its pools are {together}, its own {own.fair_share.total}"
        for parent, together in sums.items()
        if (own := items.get(pool_key(PoolName(parent)))) is not None
        and any(sum_ > share + _ROUNDING for sum_, share in zip(together, own.fair_share.total, strict=True))
    ]


def _status(below_since_ms: int) -> SchedulingStatus:
    return SchedulingStatus.NORMAL if below_since_ms == NO_MOMENT else SchedulingStatus.BELOW_FAIR_SHARE
