"""The timeouts of starvation in force, of many elements side by side or of a few. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headrace.pools import TreeOptions
from headrace_fair_share.hdrf.arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Timeouts:
    """Lengths of time after which elements starve, by place, in milliseconds."""

    starving_ms: Floats
    aggressive_ms: Floats
    aggressive_enabled: Bools
    #: Infinite where no element starves for its strong guarantee.
    short_ms: Floats


def part_of_timeouts(needed_slots: Ints | int, coefficient: float) -> Floats:
    """The part of their timeouts after which operations starve, from 0 to 1: min(needed slots / coefficient, 1).

    `coefficient` is the tree's `allocation_count_preemption_timeout_coefficient`, from 1 on.
    """
    return np.asarray(np.minimum(needed_slots / coefficient, 1.0))


def timeouts_in_force(
    starving_ms: Floats, aggressive_enabled: Bools, short_ms: Floats, needed_slots: Iterable[int], options: TreeOptions
) -> Timeouts:
    """Returns the timeouts of elements by what is set for each. Those of operations that need few slots are shortened.

    Operations come last. `needed_slots` counts for them the slots that their waiting jobs need, and is read only where that matters.
    """
    part = np.ones(len(starving_ms))
    coefficient = options.allocation_count_preemption_timeout_coefficient
    if coefficient > 1.0:
        of_operations = part_of_timeouts(np.fromiter(needed_slots, np.int64), coefficient)
        part[len(part) - len(of_operations) :] = of_operations
    return Timeouts(
        starving_ms=starving_ms * part,
        aggressive_ms=options.fair_share_aggressive_starvation_timeout * part,
        aggressive_enabled=aggressive_enabled,
        short_ms=short_ms,
    )
