"""The check of updates that go on from the one before. Each one from scratch is held against one of those. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace_fair_share.hdrf.tree_shares import TreeShares
from headrace_fair_share.update.elements import Elements

#: Two updates that add the same figures up in another order differ by less. In improved mode the last bits weigh most.
NOTICED: Final = 1e-6


class UpdatesDiffer(ArithmeticError):
    """An update that went on from the one before gave another fair share than one from scratch."""


def difference(elements: Elements, anew: TreeShares, before: Elements, going_on: TreeShares) -> UpdatesDiffer | None:
    """Names the element whose fair share differs most between both, or None where they agree.

    A gang or a limit whose end coincides exactly with another figure may fall on either side by the last bit of a sum. Such a tie is
    told as well: who plans on it gets shares that jump.
    """
    if before.keys != elements.keys:
        return UpdatesDiffer("both have other elements")
    sizes = np.abs(_in_order(anew) - _in_order(going_on)).max(axis=0)
    place = int(sizes.argmax())
    if sizes[place] <= NOTICED:
        return None
    return UpdatesDiffer(f"the fair share of {elements.names[place]} differs by {sizes[place]:.3g}")


def _in_order(shares: TreeShares) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    layout = shares.layout
    return shares.fair_share[:, np.concatenate(([0], layout.of_pool, layout.of_operation))]
