"""The momentary scheduling status: normal or below fair share, of all elements side by side. Pure.

Shares are arrays of shape (5, elements), resources in the order of `headrace.resources.RESOURCE_NAMES`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace_fair_share.hdrf.arrays import Bools, Floats

__all__ = ["NEARLY", "below_fair_share", "owed_everything"]

#: An operation whose fair share comes this near to its demand is owed its whole demand.
NEARLY: Final = 1e-4


def owed_everything(fair: Floats, demand: Floats) -> Bools:
    """True where the fair share covers the demand in every resource."""
    return np.asarray((fair + NEARLY >= demand).all(axis=0))


def below_fair_share(
    usage: Floats, fair: Floats, demand: Floats, tolerance: Floats | float, is_operation: Bools
) -> Bools:
    """True where an element has less than min(tolerance * fair share, demand).

    It must be less in every resource in which more fair share would help (fair share < demand); in any, if it would help in none.
    The tolerance of an operation that is owed everything is 1: it needs its last job.
    """
    whole = is_operation & owed_everything(fair, demand)
    bound = np.minimum(np.where(whole, 1.0, tolerance) * fair, demand)
    above, helps = bound > usage, fair < demand
    return np.where(helps.any(axis=0), (above | ~helps).all(axis=0), above.any(axis=0))
