"""Trees whose shares hang on the last bit.

A fair share jumps where a gang fits or does not, and where a pool's function jumps. Where such a place lies exactly on a limit, on a
guarantee or on the end of the cluster, two engines that differ in nothing but rounding may take different sides, by whole shares. Such a
tie shows itself: figures disturbed by far less than anybody would notice move shares by far more than they were disturbed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from headrace_fair_share.hdrf.arrays import ROUNDING
from headrace_fair_share.hdrf.model import TreeInput
from tests.reference.comparing import elements_of
from tests.reference.elements import Operation, Pool, Tree
from tests.reference.update import update
from tests.reference.values import Invariant, Values, smaller
from tests.support.update_result import UpdateResult

__all__ = ["DISTURBED", "NOTICED", "is_tie"]

#: By how much, relatively, figures are disturbed; rounding is a thousandth of that at most.
DISTURBED: Final = 1e-10
#: A share that moves by more than this hangs on the last bit.
NOTICED: Final = 1e-7
_TRIES: Final = 64
#: Less than a share of any job; and by so much two engines may always differ.
_SLIGHT: Final = 1e-4
_EXACT: Final = 1e-9


def is_tie(given: TreeInput, result: UpdateResult) -> bool:
    """True if the engine's result is what the twin computes when figures move by next to nothing.

    That the twin's own shares move is not enough: an engine may give a third answer, which is a fault and no tie.
    """
    wanted = _shares(result)
    disturbances: list[Callable[[Tree], None]] = [partial(_let_cluster_grow, by=ROUNDING)]
    disturbances += [partial(_disturb, rng=random.Random(seed)) for seed in range(_TRIES)]
    if any(_gives(given, wanted, disturb) for disturb in disturbances):
        return True
    return _is_within_noise(given, wanted) or _is_within_rounding(given, wanted)


def _is_within_noise(given: TreeInput, wanted: list[float]) -> bool:
    """True if each share differs slightly, and by no more than the twin's own share moves when figures are disturbed.

    Where weights differ by many orders of magnitude, digits are lost in the fit factor, and no two engines lose the same.
    """
    twin = _shares(update(given))
    apart = [abs(a - b) for a, b in zip(twin, wanted, strict=True)]
    if max(apart) > _SLIGHT:
        return False
    moved = [_EXACT] * len(twin)
    for seed in range(_TRIES):
        rng = random.Random(seed)
        with suppress(Invariant):
            disturbed = _shares(update(given, disturb=partial(_disturb, rng=rng)))
            moved = [max(most, abs(a - b)) for most, a, b in zip(moved, disturbed, twin, strict=True)]
    return all(difference <= most for difference, most in zip(apart, moved, strict=True))


def _is_within_rounding(given: TreeInput, wanted: list[float]) -> bool:
    """True if each share is between that of the cluster and that of a cluster with twice as much more as the engine takes for rounding.

    Where weights differ by many orders of magnitude, a share may rise so fast in between that two engines do not stop at the same one.
    """
    twin = _shares(update(given))
    try:
        grown = _shares(update(given, disturb=partial(_let_cluster_grow, by=2 * ROUNDING)))
    except Invariant:
        return False
    return all(
        min(a, b) - NOTICED <= share <= max(a, b) + NOTICED for a, b, share in zip(twin, grown, wanted, strict=True)
    )


def _shares(result: UpdateResult) -> list[float]:
    return [
        share
        for _, each in sorted(elements_of(result).items())
        for figures in (each.fair_share, each.promised_guarantee_fair_share, each.integral_guarantee_share)
        for share in figures
    ]


def _gives(given: TreeInput, wanted: list[float], disturb: Callable[[Tree], None]) -> bool:
    try:
        disturbed = update(given, disturb=disturb)
    except Invariant:
        return False
    return all(abs(a - b) <= NOTICED for a, b in zip(_shares(disturbed), wanted, strict=True))


def _let_cluster_grow(tree: Tree, by: float) -> None:
    """Let the cluster have as much more as the engine takes for rounding: a share may rise ten million times as fast as that."""
    tree.root.limits_share = tuple(limit * (1 + by) for limit in tree.root.limits_share)


def _disturb(tree: Tree, rng: random.Random) -> None:
    factors: dict[tuple[int, float], float] = {}

    def factor(resource: int, share: float) -> float:
        # Amounts are whole numbers: a demand of exactly the guarantee, or of the whole cluster, is no rounding.
        if share == 1.0:
            return 1.0
        return factors.setdefault((resource, share), 1 + rng.uniform(-DISTURBED, DISTURBED))

    def nearly(numbers: Values) -> Values:
        return tuple(number * factor(resource, number) for resource, number in enumerate(numbers))

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
