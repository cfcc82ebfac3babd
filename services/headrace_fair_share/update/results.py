"""The results of an update for every element, as arrays in the order of `Elements`, and the share items made from them.

Share items are made only for elements whose results changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from headrace.ids import PoolName
from headrace.pools.amounts import NOTHING
from headrace.resources import LARGEST_SUM, RESOURCE_NAMES, ZERO, Resources
from headrace.wire.snapshots import DetailedShare, SchedulingStatus, ShareItem
from headrace_fair_share.hdrf.arrays import Bools, BrokenInvariant, Floats, Ints
from headrace_fair_share.starvation.clocks import STARVATION, STARVATION_REASON
from headrace_fair_share.starvation.rules import PREEMPTION_PRIORITY
from headrace_fair_share.update.elements import Elements, pool_key

_S = TypeVar("_S", bound=msgspec.Struct)

#: Marks a missing timestamp (milliseconds of Unix time).
NO_VALUE: Final = -1
#: Rounding error that `check_shares` allows in a sum of shares.
_ROUNDING: Final = 1e-6


class PoolResults(msgspec.Struct, frozen=True):
    """Results of a pool that are not part of its item in the share snapshot."""

    usage: Resources = ZERO
    demand: Resources = ZERO
    operations: int = 0
    running_operations: int = 0
    lightweight_operations: int = 0
    #: Number of operations with pending jobs in the pool and below it.
    schedulable_operations: int = 0
    #: Number of all operations directly in the pool.
    own_operations: int = 0
    #: Largest component of the integral share that was granted to the pool, even if the pool does not use it; 0 without a grant. The pool's
    #: volume is charged for it.
    grant_ratio: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementResults:
    """The results of all elements. Arrays have the shape (5, elements) where they are per resource, else (elements,)."""

    usage: Ints
    demand: Ints
    fair_share: Floats
    strong_part: Floats
    integral_part: Floats
    weight_proportional_part: Floats
    usage_share: Floats
    demand_share: Floats
    limits_share: Floats
    #: Resources of the nodes that match the element's tag filters; `LARGEST_SUM` if it has no filters.
    tag_filter_limits: Ints
    #: Effective strong guarantee as a share: amounts that are not configured are inferred, and guarantees that do not all fit are reduced.
    strong_guarantee_share: Floats
    promised_fair_share: Floats
    estimated_guarantee_share: Floats
    #: Integral share that this update granted to each element, even if the element does not use it.
    proposed_integral_share: Floats
    #: Largest component of the granted integral share before it was clipped to the limits. The pool's volume is charged for it.
    grant_ratio: Floats
    #: Effective weight.
    weight: Floats
    dominant_resource: Ints
    satisfaction: Floats
    local_satisfaction: Floats
    #: Start of the time below the fair share, in milliseconds of Unix time, or `NO_VALUE`.
    below_since_ms: Ints
    starving_since_ms: Ints
    #: Starvation status of each element, as an index into `STARVATION`.
    starvation: Ints
    #: Reason of each element's starvation, as an index into `STARVATION_REASON`.
    starvation_reason: Ints
    #: Preemption priority of each operation, as an index into `PREEMPTION_PRIORITY`; 0 for pools.
    preemption_priority: Ints
    schedulable: Bools
    owed_everything: Bools
    ratio_volume: Floats
    #: Position in the order of a fifo pool; -1 outside fifo pools.
    fifo_index: Ints
    #: Position in the order of a fifo pool after gangs that do not fit into a guarantee were moved back. -1 outside fifo pools, and in a
    #: fifo pool that was not reordered.
    effective_fifo_index: Ints
    #: Number that breaks ties between children with equal satisfaction.
    rank: Ints
    #: Index of the resource that runs out on the nodes where the operation can run; -1 if those nodes do not limit its fair share.
    short_of: Ints
    #: Flow ratio of the element's own integral guarantee.
    flow_ratio: Floats
    #: Burst ratio of the element's own integral guarantee.
    burst_ratio: Floats
    #: Sum of the flow ratios of the element and everything below.
    total_flow_ratio: Floats
    #: Sum of the burst ratios of the element and everything below.
    total_burst_ratio: Floats
    #: Number of operations in the pool and below it; 0 for an element that is an operation.
    operations: Ints
    running_operations: Ints
    lightweight_operations: Ints
    schedulable_operations: Ints
    #: Number of operations directly in the pool.
    own_operations: Ints
    #: Amounts that elements are short of their fair shares; used under a YARN policy only. The amounts of a pool include everything below
    #: it.
    due_to_fair_share: Ints
    #: Amounts that elements are short of their minimums; used under a YARN policy only. The amounts of a pool include everything below it.
    due_to_min_share: Ints
    claims: Bools

    def check(self, elements: Elements) -> None:
        """Raise `BrokenInvariant` if a result is not a finite number."""
        count = len(elements.names)
        finite = [np.isfinite(getattr(self, name)).reshape(-1, count) for name in _COLUMNS]
        if np.concatenate(finite).all():
            return
        name, wrong = next((name, ~each) for name, each in zip(_COLUMNS, finite, strict=True) if not each.all())
        place = int(np.flatnonzero(wrong.any(axis=0))[0])
        raise BrokenInvariant(f"{name} of {elements.keys[place]} is {getattr(self, name)[..., place]}")


_COLUMNS: Final = tuple(field.name for field in fields(ElementResults))
#: One bit per column, so that a set of columns is a sum of bits.
_BIT: Final = {name: 1 << number for number, name in enumerate(_COLUMNS)}
ALL_COLUMNS: Final = sum(_BIT.values())
#: If at most this many elements changed in the same columns, their items are made from scratch: a partial copy costs as much.
MAX_REBUILT_ITEMS: Final = 16


class Differences(NamedTuple):
    """The elements with at least one result that changed."""

    places: Ints
    #: For each element in `places`, the columns that changed, as a sum of bits; `ALL_COLUMNS` if the element is new.
    columns: Ints


def differing(now: ElementResults, before: ElementResults, place_before: Ints | None) -> Differences:
    """Return the elements with at least one result that changed.

    `place_before` gives the old position of each element, -1 if the element is new. None means that no element moved.
    """
    count = len(now.weight)
    # The columns are joined and compared in one numpy call, because even in a small tree each call takes some time.
    changes = []
    for name in _COLUMNS:
        old = getattr(before, name)
        if place_before is not None:
            old = old.take(place_before, axis=-1)
        changes.append((getattr(now, name) != old).reshape(-1, count))
    rows = np.concatenate(changes)
    if place_before is not None:
        rows |= place_before < 0
    places = np.flatnonzero(rows.any(axis=0))
    first = np.cumsum([0, *map(len, changes[:-1])])
    columns = np.array(list(_BIT.values())) @ np.logical_or.reduceat(rows[:, places], first)
    return Differences(places, columns)


class _Field(NamedTuple):
    """One field of share items: the function that computes its values at given positions, and the bits of the columns that it reads."""

    columns: int
    values: Callable[[Elements, ElementResults, Ints], Iterable[Any]]


def _plain(name: str, read: Callable[[Any], Any] | None = None) -> _Field:
    """Return a field that copies one column, as a tuple per element if the column is per resource. `read` converts each value."""

    def values(_: Elements, results: ElementResults, at: Ints) -> Iterable[Any]:
        column = getattr(results, name)[..., at]
        # The few rows are converted and zipped: `tolist` of the transposed array would make a separate array for each element.
        figures = zip(*column.tolist(), strict=True) if column.ndim > 1 else column.tolist()
        return figures if read is None else map(read, figures)

    return _Field(_BIT[name], values)


def _of_element(read: Callable[[Elements, int], Any]) -> _Field:
    """Return a field that is read from the element itself, such as its options. `Elements.differs` detects changes of such fields."""
    return _Field(0, lambda elements, _, at: (read(elements, place) for place in at.tolist()))


def _known(value: int) -> int | None:
    return None if value == NO_VALUE else value


def _resource(place: int) -> str:
    return RESOURCE_NAMES[place] if place >= 0 else ""


def _due(amounts: tuple[int, ...]) -> Resources | None:
    return Resources(*amounts) if any(amounts) else None


def _filter_limits(amounts: tuple[int, ...]) -> Resources | None:
    return None if amounts[0] >= LARGEST_SUM else Resources(*amounts)


def _status(below_since_ms: int) -> SchedulingStatus:
    return SchedulingStatus.NORMAL if below_since_ms == NO_VALUE else SchedulingStatus.BELOW_FAIR_SHARE


#: The parts of `ShareItem.fair_share`, in the order in which its type declares them.
_PARTS: Final = {
    "strong_guarantee": _plain("strong_part"),
    "integral_guarantee": _plain("integral_part"),
    "weight_proportional": _plain("weight_proportional_part"),
    "total": _plain("fair_share"),
}


def _fair_share(elements: Elements, results: ElementResults, at: Ints) -> Iterable[DetailedShare]:
    return map(DetailedShare, *(part.values(elements, results, at) for part in _PARTS.values()))


#: The fields of `ShareItem`, in the order in which the type declares them.
_FIELDS: Final = {
    "kind": _of_element(Elements.kind),
    "name": _of_element(lambda elements, place: elements.names[place]),
    "parent": _of_element(lambda elements, place: elements.parents[place]),
    "fair_share": _Field(sum(part.columns for part in _PARTS.values()), _fair_share),
    "usage_share": _plain("usage_share"),
    "demand_share": _plain("demand_share"),
    "limits_share": _plain("limits_share"),
    "strong_guarantee_share": _plain("strong_guarantee_share"),
    "promised_fair_share": _plain("promised_fair_share"),
    "estimated_guarantee_share": _plain("estimated_guarantee_share"),
    "weight": _plain("weight"),
    "dominant_resource": _plain("dominant_resource", RESOURCE_NAMES.__getitem__),
    "satisfaction_ratio": _plain("satisfaction"),
    "local_satisfaction_ratio": _plain("local_satisfaction"),
    "scheduling_status": _plain("below_since_ms", _status),
    "starvation_status": _plain("starvation", STARVATION.__getitem__),
    "below_fair_share_since_ms": _plain("below_since_ms", _known),
    "starving_since_ms": _plain("starving_since_ms", _known),
    "schedulable": _plain("schedulable"),
    "owed_everything": _plain("owed_everything"),
    "accumulated_ratio_volume": _plain("ratio_volume"),
    "ephemeral": _of_element(Elements.is_ephemeral),
    "fifo_index": _plain("fifo_index", _known),
    "effective_fifo_index": _plain("effective_fifo_index", _known),
    "proposed_integral_share": _plain("proposed_integral_share"),
    "specified_resource_flow_ratio": _plain("flow_ratio"),
    "specified_burst_ratio": _plain("burst_ratio"),
    "total_resource_flow_ratio": _plain("total_flow_ratio"),
    "total_burst_ratio": _plain("total_burst_ratio"),
    "limits": _of_element(lambda elements, place: elements.limits[place] if place < elements.pools else NOTHING),
    "preemption_priority": _plain("preemption_priority", PREEMPTION_PRIORITY.__getitem__),
    "starvation_reason": _plain("starvation_reason", STARVATION_REASON.__getitem__),
    "options": _of_element(lambda elements, place: elements.options[place] if place < elements.pools else None),
    "rank": _plain("rank"),
    "tag_filter_limits": _plain("tag_filter_limits", _filter_limits),
    "due_to_fair_share": _plain("due_to_fair_share", _due),
    "due_to_min_share": _plain("due_to_min_share", _due),
    "claims": _plain("claims"),
    "short_of": _plain("short_of", _resource),
}


def items_of(elements: Elements, results: ElementResults, places: Ints) -> list[ShareItem]:
    """Return the share items of the elements at the given positions."""
    values = (field.values(elements, results, places) for field in _FIELDS.values())
    return [ShareItem(*one) for one in zip(*values, strict=True)]


def items_after(
    elements: Elements, results: ElementResults, differences: Differences, before: Mapping[str, ShareItem], few: int
) -> list[ShareItem]:
    """Return the share items of the elements that differ. Fields that depend on no changed column are copied from the old item.

    When a cluster is short of resources, one changed share changes the shares of thousands of elements, but few of their other fields.
    Groups of up to `few` elements with the same changed columns are made from scratch.
    """
    places, columns = differences
    made: dict[int, ShareItem] = {}
    kinds, counts = np.unique(columns, return_counts=True)
    for which in kinds[(counts > few) & (kinds != ALL_COLUMNS)].tolist():
        here = places[columns == which]
        old = [before[elements.keys[place]] for place in here.tolist()]
        made.update(zip(here.tolist(), _with_columns(elements, results, here, which, old), strict=True))
    others = np.array([place for place in places.tolist() if place not in made], np.int64)
    made.update(zip(others.tolist(), items_of(elements, results, others), strict=True))
    return [made[place] for place in places.tolist()]


def _with_columns(
    elements: Elements, results: ElementResults, places: Ints, columns: int, before: list[ShareItem]
) -> Iterable[ShareItem]:
    """Return the items with new values in the fields that depend on the given columns."""
    given: dict[str, Iterable[Any]] = {
        name: field.values(elements, results, places) for name, field in _FIELDS.items() if field.columns & columns
    }
    if "fair_share" in given:
        parts = {
            name: part.values(elements, results, places) for name, part in _PARTS.items() if part.columns & columns
        }
        given["fair_share"] = _replaced((item.fair_share for item in before), parts)
    return _replaced(before, given) if given else before


def _replaced(before: Iterable[_S], given: Mapping[str, Iterable[Any]]) -> Iterator[_S]:
    """Yield copies of the structs with new values in the given fields."""
    for one, values in zip(before, zip(*given.values(), strict=True), strict=True):
        yield replace(one, **dict(zip(given, values, strict=True)))


def pool_results_of(elements: Elements, results: ElementResults, places: Ints) -> dict[PoolName, PoolResults]:
    """Return the `PoolResults` of the pools at the given positions. Operations among the positions are skipped."""
    places = places[places < elements.pools]
    columns = zip(
        (PoolName(elements.names[place]) for place in places.tolist()),
        results.usage[:, places].T.tolist(),
        results.demand[:, places].T.tolist(),
        results.operations[places].tolist(),
        results.running_operations[places].tolist(),
        results.lightweight_operations[places].tolist(),
        results.schedulable_operations[places].tolist(),
        results.own_operations[places].tolist(),
        results.grant_ratio[places].tolist(),
        strict=True,
    )
    return {
        name: PoolResults(Resources(*usage), Resources(*demand), *others) for name, usage, demand, *others in columns
    }


def check_shares(items: Mapping[str, ShareItem], pools: Iterable[PoolName]) -> list[str]:
    """Return an error for each pool whose child pools together have a larger fair share than the pool. Rounding errors are ignored."""
    sums: dict[str, list[float]] = {}
    for name in pools:
        item = items.get(pool_key(name))
        if item is None:
            return [f"results of pool {name}, which has no share item"]
        together = sums.setdefault(item.parent, [0.0] * len(RESOURCE_NAMES))
        for place, share in enumerate(item.fair_share.total):
            together[place] += share
    return [
        f"pool {parent}: the fair shares of its child pools are {together} in sum, and its own is {own.fair_share.total}"
        for parent, together in sums.items()
        if (own := items.get(pool_key(PoolName(parent)))) is not None
        and any(sum_ > share + _ROUNDING for sum_, share in zip(together, own.fair_share.total, strict=True))
    ]
