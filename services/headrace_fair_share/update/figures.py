"""What an update came to for every element, as arrays in the order of the roster; objects are made only of what changed; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from headrace.ids import PoolName
from headrace.resources import RESOURCE_NAMES, ZERO, Resources
from headrace.wire.snapshots import DetailedShare, SchedulingStatus, ShareItem, StarvationStatus
from headrace_fair_share.hdrf.arrays import Bools, BrokenInvariant, Floats, Ints
from headrace_fair_share.update.input import Elements

__all__ = ["NO_MOMENT", "STARVATION", "Figures", "PoolFigures", "differing", "items_of", "pool_figures_of"]

#: Codes of statuses are places here.
STARVATION: Final = tuple(StarvationStatus)
#: Stands where there is no moment.
NO_MOMENT: Final = -1


class PoolFigures(msgspec.Struct, frozen=True):
    """Figures of a pool beside its share item."""

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
class Figures:
    """Figures of all elements: shape (5, elements) by resource, (elements,) else."""

    usage: Ints
    demand: Ints
    fair_share: Floats
    strong_part: Floats
    integral_part: Floats
    weight_proportional_part: Floats
    usage_share: Floats
    demand_share: Floats
    limits_share: Floats
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
    schedulable: Bools
    preemptible: Bools
    ratio_volume: Floats
    #: -1 outside of fifo pools, and where the order stayed what it was.
    fifo_index: Ints
    effective_fifo_index: Ints
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

    def check(self, elements: Elements) -> None:
        """Raises `BrokenInvariant` where a figure is not a number or not finite."""
        for field in fields(self):
            column = getattr(self, field.name)
            if column.dtype.kind == "f" and not np.isfinite(column).all():
                place = int(np.flatnonzero(~np.isfinite(column.reshape(-1, len(elements.names))).all(axis=0))[0])
                raise BrokenInvariant(f"{field.name} of {elements.keys[place]} is {column[..., place]}")


def differing(now: Figures, before: Figures, place_before: Ints | None) -> Ints:
    """Places of elements of which some figure is not what it was.

    `place_before` says where each stood, -1 where it is new; None: all stand where they stood.
    """
    count = len(now.weight)
    different = np.zeros(count, np.bool_)
    if place_before is not None:
        different |= place_before < 0
    for field in fields(Figures):
        column, old = getattr(now, field.name), getattr(before, field.name)
        if place_before is not None:
            old = old[..., place_before]
        changed = column != old
        different |= changed if changed.ndim == 1 else changed.any(axis=0)
    return np.flatnonzero(different)


def items_of(elements: Elements, figures: Figures, places: Ints) -> list[ShareItem]:
    """Share items of the elements at some places."""

    def rows(column: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
        return map(tuple, column[:, places].T.tolist())

    def moments(column: Ints) -> Iterator[int | None]:
        return (None if moment == NO_MOMENT else moment for moment in column[places].tolist())

    fair = map(
        DetailedShare,
        rows(figures.strong_part),
        rows(figures.integral_part),
        rows(figures.weight_proportional_part),
        rows(figures.fair_share),
    )
    at = places.tolist()
    columns = zip(
        map(elements.kind, at),
        (elements.names[place] for place in at),
        (elements.parents[place] for place in at),
        fair,
        rows(figures.usage_share),
        rows(figures.demand_share),
        rows(figures.limits_share),
        rows(figures.strong_guarantee_share),
        rows(figures.promised_fair_share),
        rows(figures.estimated_guarantee_share),
        figures.weight[places].tolist(),
        (RESOURCE_NAMES[r] for r in figures.dominant_resource[places].tolist()),
        figures.satisfaction[places].tolist(),
        figures.local_satisfaction[places].tolist(),
        map(_status, figures.below_since_ms[places].tolist()),
        (STARVATION[code] for code in figures.starvation[places].tolist()),
        moments(figures.below_since_ms),
        moments(figures.starving_since_ms),
        figures.schedulable[places].tolist(),
        figures.preemptible[places].tolist(),
        figures.ratio_volume[places].tolist(),
        map(elements.is_ephemeral, at),
        moments(figures.fifo_index),
        moments(figures.effective_fifo_index),
        rows(figures.proposed_integral_share),
        figures.flow_ratio[places].tolist(),
        figures.burst_ratio[places].tolist(),
        figures.total_flow_ratio[places].tolist(),
        figures.total_burst_ratio[places].tolist(),
        strict=True,
    )
    return [ShareItem(*one) for one in columns]


def pool_figures_of(elements: Elements, figures: Figures, places: Ints) -> dict[PoolName, PoolFigures]:
    """The other figures of the pools at some places; operations have none."""
    places = places[places < elements.pools]
    columns = zip(
        (PoolName(elements.names[place]) for place in places.tolist()),
        figures.usage[:, places].T.tolist(),
        figures.demand[:, places].T.tolist(),
        figures.operations[places].tolist(),
        figures.running_operations[places].tolist(),
        figures.schedulable_operations[places].tolist(),
        figures.own_operations[places].tolist(),
        figures.grant_ratio[places].tolist(),
        strict=True,
    )
    return {
        name: PoolFigures(Resources(*usage), Resources(*demand), *others) for name, usage, demand, *others in columns
    }


def _status(below_since_ms: int) -> SchedulingStatus:
    return SchedulingStatus.NORMAL if below_since_ms == NO_MOMENT else SchedulingStatus.BELOW_FAIR_SHARE
