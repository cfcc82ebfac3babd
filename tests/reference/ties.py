"""Trees whose shares hang on the last bit.

A fair share jumps where a gang fits or does not, and where a pool's function jumps. Where such a place lies exactly on a limit, on a
guarantee or on the end of the cluster, two engines that differ in nothing but rounding may take different sides, by whole shares. Such a
tie shows itself: figures disturbed by far less than anybody would notice move shares by far more than they were disturbed.
"""

from __future__ import annotations

import random
from typing import Final

from headrace_fair_share.hdrf.model import TreeInput
from tests.reference.elements import Operation, Pool, Tree
from tests.reference.update import compute
from tests.reference.values import Invariant, Values, smaller

__all__ = ["DISTURBED", "NOTICED", "is_tie"]

#: By how much, relatively, figures are disturbed; rounding is a thousandth of that at most.
DISTURBED: Final = 1e-10
#: A share that moves by more than this hangs on the last bit.
NOTICED: Final = 1e-7
_TRIES: Final = 16


def is_tie(given: TreeInput) -> bool:
    """True when the fair share of some element moves as soon as figures move by next to nothing."""
    undisturbed = _fair_shares(compute(given)[0])
    return any(_moves(given, undisturbed, seed) for seed in range(_TRIES))


def _fair_shares(tree: Tree) -> list[Values]:
    return [
        figures for each in (*tree.pools, *tree.operations) for figures in (each.fair, each.promised, each.proposed)
    ]


def _moves(given: TreeInput, undisturbed: list[Values], seed: int) -> bool:
    rng = random.Random(seed)
    try:
        tree, _ = compute(given, disturb=lambda tree: _disturb(tree, rng))
    except Invariant:
        return False
    return any(
        abs(a - b) > NOTICED
        for one, other in zip(undisturbed, _fair_shares(tree), strict=True)
        for a, b in zip(one, other, strict=True)
    )


def _disturb(tree: Tree, rng: random.Random) -> None:
    def nearly(numbers: Values) -> Values:
        return tuple(number * (1 + rng.uniform(-DISTURBED, DISTURBED)) for number in numbers)

    for element in (tree.root, *tree.pools, *tree.operations):
        element.weight *= 1 + rng.uniform(-DISTURBED, DISTURBED)
        if not (isinstance(element, Pool) and element.is_root):
            element.limits_share = smaller(nearly(element.limits_share), (1.0,) * len(element.limits_share))
        element.strong = smaller(nearly(element.strong), element.limits_share)
        match element:
            case Pool():
                element.burst_ratio *= 1 + rng.uniform(-DISTURBED, DISTURBED)
                element.flow_ratio *= 1 + rng.uniform(-DISTURBED, DISTURBED)
                element.volume = nearly(element.volume)
            case Operation():
                element.demand_share = nearly(element.demand_share)
                element.usage_share = smaller(nearly(element.usage_share), element.demand_share)
            case _:
                raise AssertionError(element)
