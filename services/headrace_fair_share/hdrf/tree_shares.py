"""The result of an update as arrays by element. Objects of single elements are made only if somebody asks for them.

Section: docs/reference/fair-share-algorithm.md#3-one-update
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace_fair_share.hdrf.arrays import CPU, Floats, Ints, as_share, shares_of
from headrace_fair_share.hdrf.fixed_attributes import FixedAttributes
from headrace_fair_share.hdrf.layout import Layout
from headrace_fair_share.hdrf.model import ElementShares, IntegralState, TreeInput, UpdateResult
from headrace_fair_share.hdrf.share_distribution import DetailedShares

__all__ = ["TreeShares"]


@dataclass(frozen=True, slots=True)
class TreeShares:
    """The result of one update, by element."""

    tree: TreeInput
    layout: Layout
    fixed: FixedAttributes
    #: With everything below, in amounts.
    usage: Ints
    demand: Ints
    usage_share: Floats
    demand_share: Floats
    limits: Floats
    fair_share: Floats
    details: DetailedShares
    promised: Floats
    #: Integral shares that were granted, to the pools themselves and to all above them.
    proposed: Floats
    #: -1 where the order of operations stayed what it was.
    effective_fifo_index: Ints
    #: By place in `fixed.integral.all`.
    volume: Floats
    last_share_ratio: Floats

    def dominant_resources(self) -> Ints:
        """Finds the resource with the largest share of each element's usage, or of its demand if it uses nothing.

        The earlier one of equals. The algorithm itself never uses it.
        """
        total = self.fixed.total
        used = self.usage.any(axis=0)
        shares = np.where(used, shares_of(self.usage, total), shares_of(self.demand, total))
        return np.where(shares.max(axis=0) > 0.0, shares.argmax(axis=0), CPU)

    def integral_states(self) -> dict[str, IntegralState]:
        """Makes the states of integral pools after this update, by name. Volumes are as they came."""
        states = dict(self.tree.integral)
        place = np.full(self.layout.size, -1, np.int64)
        place[self.layout.of_pool] = np.arange(len(self.layout.of_pool))
        members = place[self.fixed.integral.all].tolist()
        for pool, volume, last_share_ratio in zip(members, self.volume.T, self.last_share_ratio.tolist(), strict=True):
            states[self.tree.pools[pool].name] = IntegralState(as_share(volume), last_share_ratio)
        return states

    def result(self) -> UpdateResult:
        """Makes the objects of all elements."""
        dominant = self.dominant_resources()
        pools = zip(self.tree.pools, self.layout.of_pool.tolist(), strict=True)
        operations = zip(self.tree.operations, self.layout.of_operation.tolist(), strict=True)
        return UpdateResult(
            root=self.element(0, int(dominant[0])),
            pools={pool.name: self.element(at, int(dominant[at])) for pool, at in pools},
            operations={each.name: self.element(at, int(dominant[at])) for each, at in operations},
            integral=self.integral_states(),
            errors=self.fixed.errors,
        )

    def element(self, at: int, dominant: int | None = None) -> ElementShares:
        """Makes the object of one element."""
        fixed, ratios = self.fixed, self.fixed.ratios
        rank, effective = int(fixed.fifo_index[at]), int(self.effective_fifo_index[at])
        return ElementShares(
            fair_share=as_share(self.fair_share[:, at]),
            strong_part=as_share(self.details.strong[:, at]),
            integral_part=as_share(self.details.integral[:, at]),
            weight_proportional_part=as_share(self.details.weight_proportional[:, at]),
            promised_guarantee_fair_share=as_share(self.promised[:, at]),
            demand_share=as_share(self.demand_share[:, at]),
            usage_share=as_share(self.usage_share[:, at]),
            limits_share=as_share(self.limits[:, at]),
            strong_guarantee_share=as_share(fixed.strong[:, at]),
            integral_guarantee_share=as_share(self.proposed[:, at]),
            estimated_guarantee_share=as_share(fixed.estimated[:, at]),
            weight=float(fixed.weight[at]),
            dominant_resource=int(self.dominant_resources()[at]) if dominant is None else dominant,
            fifo_index=None if rank < 0 else rank,
            effective_fifo_index=None if effective < 0 else effective,
            flow_ratio=float(ratios.flow[at]),
            burst_ratio=float(fixed.burst[at]),
            total_flow_ratio=float(ratios.total_flow[at]),
            total_burst_ratio=float(ratios.total_burst[at]),
        )
