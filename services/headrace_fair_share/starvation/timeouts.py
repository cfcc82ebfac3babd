"""The effective starvation timeouts of many elements at once, or of a few. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headrace.pools import TreeOptions
from headrace_fair_share.hdrf.arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Timeouts:
    """The time after which elements starve, by position, in milliseconds."""

    starving_ms: Floats
    aggressive_ms: Floats
    aggressive_enabled: Bools
    #: Timeout below the strong guarantee; infinite if the element never starves for it.
    short_ms: Floats


def part_of_timeouts(needed_slots: Ints | int, coefficient: float) -> Floats:
    """Return the fraction of their timeouts after which operations starve, from 0 to 1: min(needed slots / coefficient, 1).

    `coefficient` is the tree's `allocation_count_preemption_timeout_coefficient`, at least 1.
    """
    return np.asarray(np.minimum(needed_slots / coefficient, 1.0))


def timeouts_in_force(
    starving_ms: Floats, aggressive_enabled: Bools, short_ms: Floats, needed_slots: Iterable[int], options: TreeOptions
) -> Timeouts:
    """Return the effective timeouts of elements from their settings. Operations that need few slots have shorter timeouts.

    Operations come last. `needed_slots` gives the slots that their pending jobs need; it is read only if the option is on.
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
