"""The present scheduling status of all elements: normal or below fair share. Pure.

Shares are arrays of shape (5, elements), resources in the order of `headrace.resources.RESOURCE_NAMES`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.resources import EPS
from headrace_fair_share.hdrf.arrays import Bools, Floats

#: Largest difference between demand and fair share at which an operation counts as owed its whole demand.
NEARLY: Final = 1e-4


def owed_everything(fair: Floats, demand: Floats) -> Bools:
    """Return True where the fair share covers the demand in every resource."""
    return np.asarray((fair + NEARLY >= demand).all(axis=0))


def below_fair_share(
    usage: Floats, fair: Floats, demand: Floats, tolerance: Floats | float, is_operation: Bools
) -> Bools:
    """Return True where an element uses less than min(tolerance * fair share, demand).

    For an operation whose fair share covers its demand the tolerance is 1, because it needs its last job.
    """
    whole = is_operation & owed_everything(fair, demand)
    return _is_above(np.minimum(np.where(whole, 1.0, tolerance) * fair, demand), usage, fair, demand)


def lacks_a_job(usage: Floats, fair: Floats, demand: Floats, min_needed: Floats) -> Bools:
    """Return True where an operation lacks more of its fair share than its smallest job needs, or is owed its whole demand."""
    return owed_everything(fair, demand) | _is_above(fair - usage, min_needed, fair, demand)


def below_guarantee(usage: Floats, strong: Floats, fair: Floats, demand: Floats) -> Bools:
    """Return True where a pool uses less than min(strong guarantee, demand), without tolerance."""
    return _is_above(np.minimum(strong, demand), usage, fair, demand)


def _is_above(one: Floats, other: Floats, fair: Floats, demand: Floats) -> Bools:
    """Return True where `one` is greater in every resource in which a larger fair share helps, or in any resource if none helps.

    A difference up to `EPS` counts as rounding. Otherwise an element that has exactly its fair share could starve forever.
    """
    above, helps = one - other > EPS, fair < demand
    return np.where(helps.any(axis=0), (above | ~helps).all(axis=0), above.any(axis=0))
