"""The check of incremental updates: each update from scratch is compared with an incremental one. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace_fair_share.hdrf.tree_shares import TreeShares
from headrace_fair_share.update.elements import Elements

#: Difference of fair shares above which two updates count as different. Adding the same numbers in another order makes a smaller
#: difference. In improved mode the last bits matter most.
NOTICED: Final = 1e-6


class UpdatesDiffer(ArithmeticError):
    """An incremental update gave another fair share than an update from scratch."""


def difference(elements: Elements, anew: TreeShares, before: Elements, going_on: TreeShares) -> UpdatesDiffer | None:
    """Return an error that names the element whose fair share differs most, or None if both updates agree.

    If a gang or a limit ends exactly at another value, rounding in the last bit of a sum decides the result. Such a tie is reported as
    well, because the shares of such a tree jump.
    """
    if before.keys != elements.keys:
        return UpdatesDiffer("the two updates have different elements")
    sizes = np.abs(_in_order(anew) - _in_order(going_on)).max(axis=0)
    place = int(sizes.argmax())
    if sizes[place] <= NOTICED:
        return None
    return UpdatesDiffer(f"the fair share of {elements.names[place]} differs by {sizes[place]:.3g}")


def _in_order(shares: TreeShares) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    layout = shares.layout
    return shares.fair_share[:, np.concatenate(([0], layout.of_pool, layout.of_operation))]
