"""The arithmetic of integral guarantees: volumes are spent and refilled for all pools at once, exact to the last bit.

A volume is an amount times seconds. The flow of a pool is the same share of every resource of the cluster, so it is a single number. So is
the grant of a pool. Volumes are arrays with one column for each pool, and rows in the order of `headrace.resources.RESOURCE_NAMES`. An
amount times a real number is rounded to whole units, halves away from zero. A volume times a real number is rounded in its cpu part only
(hundredths of a core-second); the other parts are plain doubles. Every product is rounded by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.resources import RESOURCE_NAMES, Resources

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

CPU: Final = RESOURCE_NAMES.index("cpu")
_LAST_BITS: Final = 2.0**-50
#: Counted units in one unit of each resource: 100 for cpu, which is counted in hundredths of a core.
_UNITS: Final = np.array([[100.0 if name == "cpu" else 1.0] for name in RESOURCE_NAMES])


@dataclass(frozen=True, slots=True)
class Refill:
    """All inputs that determine how the volumes of some pools change over a time."""

    total: Resources
    seconds: float
    saturation_period_s: float
    #: Share of the total that flows into each pool.
    flow: Floats
    #: Share that was granted to each pool during `seconds`, even if the pool did not use it.
    drawn: Floats
    accepts_free_volume: Flags


@dataclass(frozen=True, slots=True)
class Refilled:
    """For each pool, after some time: its volume, the overflow that did not fit, the volume that it would still accept, its capacity."""

    volume: Floats
    overflow: Floats
    acceptable: Floats
    capacity: Floats


def refilled(before: Floats, refill: Refill) -> Refilled:
    """Advance the volumes by some time: add the flow, subtract what was granted, and stop at the capacity.

    volume = min(max(volume + total x seconds x (flow - granted), 0), capacity), in resource x seconds, with capacity =
    total x flow x saturation period. A volume that is already above its capacity is kept and does not grow.
    """
    total = np.array(refill.total.as_tuple(), np.float64)[:, np.newaxis]
    capacity = _times(rounded(total * refill.flow), refill.saturation_period_s)
    passed = _times(total, refill.seconds)
    volume = before + _times(passed, refill.flow) - _times(passed, refill.drawn)
    volume = np.maximum(volume, 0.0)
    upper = np.maximum(before, capacity)
    return Refilled(
        volume=np.minimum(volume, upper),
        overflow=np.maximum(volume - upper, 0.0),
        acceptable=np.where(refill.accepts_free_volume, np.maximum(capacity - volume, 0.0), 0.0),
        capacity=capacity,
    )


def keeps_bounds(before: Floats, after: Floats, capacity: Floats) -> Flags:
    """True for each pool whose volume is not negative and not above its capacity.

    Two exceptions also give True: a volume that was above its capacity before and did not grow, and a volume that exceeds the capacity by a
    rounding error, which occurs when free volume fills a pool.
    """
    within = (after >= 0.0) & (after <= np.maximum(before, capacity) * (1.0 + _LAST_BITS))
    return np.asarray(within.all(axis=0))


def ratio_volumes(volume: Floats, total: Resources) -> Floats:
    """Return the smallest quotient of volume and total over all resources, in shares times seconds. It is 0 if the tree has
    no resources.
    """
    whole = np.array(total.as_tuple(), np.float64)[:, np.newaxis]
    there = whole[:, 0] > 0.0
    if not there.any():
        return np.zeros(volume.shape[1])
    # Amounts are converted to cores first, as everywhere when shares are computed from amounts. With hundredths of cores, the last bit of
    # the quotient could differ.
    return np.asarray(((volume / _UNITS)[there] / (whole / _UNITS)[there]).min(axis=0))


def rounded(figures: Floats) -> Floats:
    """Return the nearest whole numbers, halves rounded away from zero."""
    size = np.abs(figures)
    whole = np.floor(size)
    return np.asarray(np.copysign(whole + (size - whole >= 0.5), figures))


def _times(volume: Floats, factor: Floats | float) -> Floats:
    product = np.multiply(volume, factor)
    product[CPU] = rounded(product[CPU])
    return product
