"""The shares of a small unsaturated tree: the fair share of each element is its demand. Pure.

Section: docs/reference/fair-share-algorithm.md#3-one-update
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.pools import IntegralType, PoolMode
from headrace.resources import EPS, ZERO, ZERO_SHARE, Resources, Share
from headrace_fair_share.hdrf.model import NO_LIMIT, UNLIMITED, Limits, OperationInput, PoolInput, Sharing, TreeInput

#: Largest demand of the root that is computed here, in units of a resource. The numpy computation handles larger sums.
_LARGEST: Final = 2**61
_Wholes = tuple[float, float, float, float, float]


class PlainShares(NamedTuple):
    """Amounts and shares by position: the root, pools (parents first), operations. Elements that were not computed have zeros."""

    #: Usage of each element. The values of a pool include everything below it, here and in the next four fields.
    usage: list[Resources]
    demand: list[Resources]
    usage_share: list[Share]
    demand_share: list[Share]
    fair_share: list[Share]
    #: Limits of the computed elements only.
    limits_share: dict[int, Share]


def unsaturated_shares(tree: TreeInput, above: Sequence[int], places: Sequence[int]) -> PlainShares | None:
    """Return shares in which every element has its demand. None if something does not fit, or if anything but demand may matter.

    The result is as exact as `everything_fits` of the numpy computation, but fewer trees qualify: no guarantees, no fifo pools, no tiny
    weights. `tests/properties/test_fair_share_unsaturated.py` compares the results of both computations to the last bit.

    `above` gives the position of each element's parent. Only the elements at `places` are computed, in this order, the root first.
    """
    if not _is_plain(tree, places):
        return None
    usage, demand = (
        _with_all_below(own, above, 1 + len(tree.pools), places)
        for own in ([each.usage for each in tree.operations], [each.demand for each in tree.operations])
    )
    if max(demand[0].as_tuple()) >= _LARGEST:
        return None
    amounts = tree.total.as_tuple()
    wholes = _in_units(amounts)
    if tree.node_sets and not _nodes_have_all(tree, wholes):
        return None
    full = _share(amounts, wholes)
    demand_share, usage_share = [ZERO_SHARE] * len(above), [ZERO_SHARE] * len(above)
    limits_share: dict[int, Share] = {}
    # The root comes first, so that no other element is computed if the cluster is too small.
    all_limits = (NO_LIMIT, *(pool.limits for pool in tree.pools), *(each.limits for each in tree.operations))
    for place in places:
        limits = all_limits[place]
        demand_share[place] = _share(demand[place].as_tuple(), wholes)
        limits_share[place] = full if limits == NO_LIMIT else _limits(limits, amounts, wholes)
        if not _fits(demand_share[place], limits_share[place]):
            return None
        usage_share[place] = _share(usage[place].as_tuple(), wholes)
    fair_share = demand_share.copy()
    top = [place for place in places if above[place] == 0]
    if top:
        fair_share[0] = _sum(demand_share, top)
    return PlainShares(usage, demand, usage_share, demand_share, fair_share, limits_share)


def _is_plain(tree: TreeInput, places: Sequence[int]) -> bool:
    """Return True if the tree has no guarantees, no pools whose order matters, and no weights close to zero."""
    return (
        tree.options.sharing is Sharing.VECTOR
        and not tree.integral
        and all(_is_plain_pool(tree.pools[place - 1]) for place in places if 0 < place <= len(tree.pools))
        and all(map(is_plain_operation, tree.operations))
    )


def _is_plain_pool(pool: PoolInput) -> bool:
    return (
        pool.mode is PoolMode.FAIR_SHARE
        and pool.integral is IntegralType.NONE
        and (pool.weight is None or EPS < pool.weight < math.inf)
        and not any(pool.strong_guarantee)
        and not pool.compute_promised_guarantee
        and not pool.priority_strong_guarantee
        and not pool.historic_usage_weights
    )


def is_plain_operation(operation: OperationInput) -> bool:
    """Return True if an operation has a normal weight, demands at least its usage, and is not limited by its best allocation share."""
    return (
        EPS < operation.weight < math.inf
        and operation.demand.dominates(operation.usage)
        and operation.best_allocation_share == UNLIMITED
    )


def _with_all_below(own: list[Resources], above: Sequence[int], pools: int, places: Sequence[int]) -> list[Resources]:
    sums = [ZERO] * pools + own
    for place in reversed(places[1:]):
        sums[above[place]] += sums[place]
    return sums


def _fits(demand: Share, limits: Share) -> bool:
    # A demand that is within the rounding error of a limit does not count as fitting, so it is left to the numpy computation.
    return all(share == 0.0 or share < most - EPS for share, most in zip(demand, limits, strict=True))


def _nodes_have_all(tree: TreeInput, wholes: _Wholes) -> bool:
    """Return True if each set of nodes certainly has all resources that are demanded by the operations that can run only on this set."""
    wanted = [Resources.sum(tree.operations[place].demand for place in places) for places in tree.node_classes]
    for each in tree.node_sets:
        demand = _share(Resources.sum(wanted[number] for number in each.classes).as_tuple(), wholes)
        have = _share(each.resources.as_tuple(), wholes)
        # The margin is twice that of `_fits`. The numpy computation adds up shares, and here amounts are added up and then converted to a
        # share. The results differ in their last bits.
        if not all(share == 0.0 or share < most - 2 * EPS for share, most in zip(demand, have, strict=True)):
            return False
    return True


def _limits(limits: Limits, total: tuple[int, ...], wholes: _Wholes) -> Share:
    pairs = zip(limits, total, strict=True)
    u, c, g, m, n = (whole if limit is None else min(limit, whole) for limit, whole in pairs)
    return _share((u, c, g, m, n), wholes)


def _in_units(amounts: tuple[int, int, int, int, int]) -> _Wholes:
    """Return amounts in the units in which the algorithm divides: cpu in cores, not in hundredths of a core."""
    u, c, g, m, n = amounts
    return float(u), c / 100.0, float(g), float(m), float(n)


def _share(amounts: tuple[int, int, int, int, int], wholes: _Wholes) -> Share:
    u, c, g, m, n = amounts
    all_u, all_c, all_g, all_m, all_n = wholes
    return (
        u / all_u if all_u else 0.0,
        c / 100.0 / all_c if all_c else 0.0,
        g / all_g if all_g else 0.0,
        m / all_m if all_m else 0.0,
        n / all_n if all_n else 0.0,
    )


def _sum(shares: Sequence[Share], places: Sequence[int]) -> Share:
    """Return the sum of the shares, added one after another: the rounding of Python's `sum` of floats differs between versions."""
    u, c, g, m, n = ZERO_SHARE
    for place in places:
        of_u, of_c, of_g, of_m, of_n = shares[place]
        u, c, g, m, n = u + of_u, c + of_c, g + of_g, m + of_m, n + of_n
    return u, c, g, m, n
