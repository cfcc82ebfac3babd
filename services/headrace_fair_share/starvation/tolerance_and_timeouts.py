"""How much less than its fair share counts as having it, and how long being short becomes starving: by pool, inherited downwards; pure.

The tree says it for all; a pool may replace each option for itself and all that is below it. Operations have what their pool has.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.ids import PoolName
from headrace.pools import PoolTree
from headrace_fair_share.hdrf.model import PoolInput
from headrace_fair_share.starvation.clocks import Timeouts

__all__ = ["Patience", "patience_of"]


class Patience(msgspec.Struct, frozen=True):
    """What is in force for one pool."""

    #: The part of its fair share that counts as having it.
    tolerance: float
    timeouts: Timeouts


def patience_of(tree: PoolTree, pools: Sequence[PoolInput]) -> list[Patience]:
    """Of the root, then of each of the pools, of which parents stand before their children."""
    options = tree.options
    aggressive_ms = options.fair_share_aggressive_starvation_timeout
    found = [
        Patience(
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
            Patience(
                above.tolerance if tolerance is None else tolerance,
                Timeouts(
                    starving_ms=above.timeouts.starving_ms if timeout_ms is None else timeout_ms,
                    aggressive_ms=aggressive_ms,
                    aggressive_enabled=above.timeouts.aggressive_enabled if aggressive is None else aggressive,
                ),
            )
        )
    return found
