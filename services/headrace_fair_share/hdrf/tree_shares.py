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
    """The result of one update, as arrays by element."""

    tree: TreeInput
    layout: Layout
    fixed: FixedAttributes
    #: Amounts, including everything below.
    usage: Ints
    demand: Ints
    usage_share: Floats
    demand_share: Floats
    limits: Floats
    fair_share: Floats
    details: DetailedShares
    promised: Floats
    #: Integral shares granted to pools, included in the figures of all pools above them.
    proposed: Floats
    #: Position of an operation after reordering; -1 if its pool was not reordered.
    effective_fifo_index: Ints
    #: Index of the resource that runs out on the nodes where the operation can run; -1 if those nodes do not limit its fair share.
    short_of: Ints
    #: By position in `fixed.integral.all`.
    volume: Floats
    last_share_ratio: Floats

    def dominant_resources(self) -> Ints:
        """Return the index of the resource with the largest share of each element's usage, or of its demand if it uses nothing.

        If shares are equal the earlier resource counts. The algorithm itself does not use dominant resources.
        """
        shares = np.where(self.usage.any(axis=0), self.usage_share, self.demand_share)
        return np.where(shares.max(axis=0) > 0.0, shares.argmax(axis=0), CPU)
