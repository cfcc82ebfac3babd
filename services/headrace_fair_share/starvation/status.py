"""The momentary scheduling status: normal or below fair share, of all elements side by side. Pure.

Shares are arrays of shape (5, elements), resources in the order of `headrace.resources.RESOURCE_NAMES`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.resources import EPS
from headrace_fair_share.hdrf.arrays import Bools, Floats

#: An operation whose fair share comes this near to its demand is owed its whole demand.
NEARLY: Final = 1e-4


def owed_everything(fair: Floats, demand: Floats) -> Bools:
    """True where the fair share covers the demand in every resource."""
    return np.asarray((fair + NEARLY >= demand).all(axis=0))


def below_fair_share(
    usage: Floats, fair: Floats, demand: Floats, tolerance: Floats | float, is_operation: Bools
) -> Bools:
    """True where an element has less than min(tolerance * fair share, demand).

    The tolerance of an operation that is owed everything is 1: it needs its last job.
    """
    whole = is_operation & owed_everything(fair, demand)
    return _is_above(np.minimum(np.where(whole, 1.0, tolerance) * fair, demand), usage, fair, demand)


def lacks_a_job(usage: Floats, fair: Floats, demand: Floats, min_needed: Floats) -> Bools:
    """True where an element lacks more of its fair share than its smallest job needs, or is owed everything."""
    return owed_everything(fair, demand) | _is_above(fair - usage, min_needed, fair, demand)


def below_guarantee(usage: Floats, strong: Floats, fair: Floats, demand: Floats) -> Bools:
    """True where a pool has less than min(strong guarantee, demand), without tolerance."""
    return _is_above(np.minimum(strong, demand), usage, fair, demand)


def _is_above(one: Floats, other: Floats, fair: Floats, demand: Floats) -> Bools:
    """True where `one` is greater in every resource of which more would help, or in any if none would.

    What is greater by no more than `EPS` is so by rounding: else who has exactly what it is owed could starve for ever.
    """
    above, helps = one - other > EPS, fair < demand
    return np.where(helps.any(axis=0), (above | ~helps).all(axis=0), above.any(axis=0))
