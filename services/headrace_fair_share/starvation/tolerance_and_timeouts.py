"""Tolerance and timeouts of starvation, by pool. Pure.

The tree's options hold for all pools; a pool may replace each for itself and all below it. Operations have those of their pool.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.ids import PoolName
from headrace.pools import PoolTree
from headrace_fair_share.hdrf.model import PoolInput
from headrace_fair_share.starvation.clocks import Timeouts

__all__ = ["ToleranceAndTimeouts", "tolerance_and_timeouts_of"]


class ToleranceAndTimeouts(msgspec.Struct, frozen=True):
    """The values in force for one pool."""

    #: The part of its fair share that counts as having it.
    tolerance: float
    timeouts: Timeouts


def tolerance_and_timeouts_of(tree: PoolTree, pools: Sequence[PoolInput]) -> list[ToleranceAndTimeouts]:
    """Returns those of the root, then of each of the pools, of which parents stand before their children."""
    options = tree.options
    aggressive_ms = options.fair_share_aggressive_starvation_timeout
    found = [
        ToleranceAndTimeouts(
            options.fair_share_starvation_tolerance,
            Timeouts(
                starving_ms=options.fair_share_starvation_timeout,
                aggressive_ms=aggressive_ms,
                aggressive_enabled=options.enable_aggressive_starvation,
            ),
        )
    ]
    for pool in pools:
        above, own = found[pool.parent + 1], tree.settings(PoolName(pool.name))
        timeout_ms, aggressive = own.fair_share_starvation_timeout, own.enable_aggressive_starvation
        tolerance = own.fair_share_starvation_tolerance
        found.append(
            ToleranceAndTimeouts(
                above.tolerance if tolerance is None else tolerance,
                Timeouts(
                    starving_ms=above.timeouts.starving_ms if timeout_ms is None else timeout_ms,
                    aggressive_ms=aggressive_ms,
                    aggressive_enabled=above.timeouts.aggressive_enabled if aggressive is None else aggressive,
                ),
            )
        )
    return found
