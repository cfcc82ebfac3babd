"""Updates of a tree with YARN's shares. All other results of an update are computed as in any tree.

Guarantees are minimums and limits are maximums. The guarantees, the limits and the total are rounded down to YARN's whole units: MiB, and
cores. Demand and integral guarantees have no effect.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from headrace.resources import LARGEST_SUM, RESOURCE_NAMES
from headrace_fair_share.hdrf.arrays import RESOURCES, Bools, Floats, Ints, shares_of
from headrace_fair_share.hdrf.incremental_input import IncrementalInput
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.share_distribution import detailed_shares
from headrace_fair_share.hdrf.tree_update import TreeShares, limits_of_operations, usage_and_demand
from headrace_fair_share.yarn.shortage import AMOUNTS_IN_UNIT
from headrace_fair_share.yarn.tree_division import Sharers, active_elements, tree_division

_MEMORY: Final = RESOURCE_NAMES.index("memory")
#: Amount of each resource in one unit of YARN, as a column.
_UNITS: Final = np.array(AMOUNTS_IN_UNIT).reshape(RESOURCES, 1)


class YarnShareUpdater:
    """Computes YARN's shares of one tree repeatedly."""

    def __init__(self) -> None:
        self._input = IncrementalInput()

    def update(self, tree: TreeInput) -> TreeShares:
        """Compute the shares of all elements. Raises `BrokenInvariant`."""
        self._input.read(tree)
        layout, fixed, operations = self._input.layout, self._input.fixed, self._input.operations
        usage, demand = usage_and_demand(layout, operations)
        limits = fixed.limits.copy()
        limits[:, layout.of_operation] = limits_of_operations(operations, fixed)
        sharers, total = self._sharers(tree), (fixed.total // _UNITS)[:, 0]
        units = tree_division(layout, total, sharers)
        # YARN's steady share: the share of each pool if every pool had operations. YARN shows it but decides nothing by it.
        all_pools = np.zeros(layout.size, np.bool_)
        all_pools[layout.of_pool] = True
        steady = tree_division(layout, total, sharers._replace(active=all_pools))
        fixed = replace(fixed, estimated=shares_of(steady * _UNITS, fixed.total))
        demand_share = shares_of(demand, fixed.total)
        fair_share = _of_all_resources(
            shares_of(units * _UNITS, fixed.total), demand_share, self._input.pools.memory_only[layout.parent]
        )
        nothing, integral = np.zeros_like(fair_share), fixed.integral.all
        return TreeShares(
            tree=tree,
            layout=layout,
            fixed=fixed,
            usage=usage,
            demand=demand,
            usage_share=shares_of(usage, fixed.total),
            demand_share=demand_share,
            limits=limits,
            fair_share=fair_share,
            details=detailed_shares(layout, fair_share, fixed.strong, nothing),
            promised=nothing,
            proposed=nothing,
            effective_fifo_index=np.full(layout.size, -1, np.int64),
            short_of=np.full(layout.size, -1, np.int64),
            volume=np.zeros((RESOURCES, len(integral))),
            last_share_ratio=np.zeros(len(integral)),
        )

    def _sharers(self, tree: TreeInput) -> Sharers:
        layout, pools, operations = self._input.layout, self._input.pools, self._input.operations
        taking_part, began_ms = np.zeros(layout.size, np.bool_), np.zeros(layout.size, np.int64)
        taking_part[layout.of_operation] = operations.takes_part
        began_ms[layout.of_operation] = operations.start_time_ms
        return Sharers(
            # Weights are rounded as in YARN, which stores them in 32 bits.
            weight=self._input.fixed.weight.astype(np.float32).astype(np.float64),
            least=_in_units(pools.strong),
            most=_in_units(pools.limits),
            active=active_elements(layout, taking_part),
            fifo=pools.fifo,
            memory_only=pools.memory_only,
            began_ms=began_ms,
        )


def _of_all_resources(fair_share: Floats, demand_share: Floats, memory_only: Bools) -> Floats:
    """Return the shares. In children of memory-only pools, the share of every resource but memory equals the demand.

    YARN gives these children no share of the other resources, since a memory-only pool divides and compares memory only. Code that compares
    all resources must not find an element above or below its share of a resource that is not divided.
    """
    takes = memory_only & (fair_share[_MEMORY] > 0.0)
    takes[0] = False
    found = np.where(takes, demand_share, fair_share)
    found[_MEMORY] = fair_share[_MEMORY]
    return np.asarray(found)


def _in_units(amounts: Ints) -> Ints:
    """Convert amounts to whole units. `LARGEST_SUM`, which means no limit, stays as it is."""
    return np.where(amounts >= LARGEST_SUM, LARGEST_SUM, amounts // _UNITS)
