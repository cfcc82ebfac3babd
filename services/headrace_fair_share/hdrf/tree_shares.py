"""The result of an update as arrays by element.

Section: docs/reference/fair-share-algorithm.md#3-one-update
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace_fair_share.hdrf.arrays import CPU, Floats, Ints
from headrace_fair_share.hdrf.fixed_attributes import FixedAttributes
from headrace_fair_share.hdrf.layout import Layout
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.share_distribution import DetailedShares


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
    #: The resource of which the nodes where an operation can run have no more for it; -1 where that is not what bounds it.
    short_of: Ints
    #: By place in `fixed.integral.all`.
    volume: Floats
    last_share_ratio: Floats

    def dominant_resources(self) -> Ints:
        """Finds the resource with the largest share of each element's usage, or of its demand if it uses nothing.

        The earlier one of equals. The algorithm itself never uses it.
        """
        shares = np.where(self.usage.any(axis=0), self.usage_share, self.demand_share)
        return np.where(shares.max(axis=0) > 0.0, shares.argmax(axis=0), CPU)
