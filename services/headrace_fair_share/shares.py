"""How much each element of a tree is owed: weights, strong guarantees and demand, by dominant resource; pure.

This module is the seam of the algorithm: `distribute` gets an immutable description of the tree and gives each element its shares.
Nothing else in the service knows how they come about.

Demand is measured by its dominant share: an operation's is the largest component of its demand share, a pool's the sum of its
children's (so that a share of a pool is always enough for its children side by side, whatever resources they want). A pool hands to
each child first what it is guaranteed and wants, then the rest by weight as far as the child's demand goes. An operation's share is
its demand share scaled to what it got; a pool's is the sum of its children's.

Invariants: parts are never negative and add up to the total; no element gets more than it demands; the root gets at most everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import fsum

import msgspec

from headrace.resources import ZERO, ZERO_SHARE, Resources, Share
from headrace.wire.snapshots import DetailedShare

__all__ = ["Distribution", "Element", "Handed", "distribute", "fill"]

#: Children of one element, by their places.
_Children = list[list[int]]


class Element(msgspec.Struct, frozen=True):
    """One element of the tree: the root (at place 0), a pool or an operation. Amounts are of operations only."""

    #: Place of the parent, lower than its own; -1 for the root.
    parent: int
    weight: float = 1.0
    demand: Resources = ZERO
    usage: Resources = ZERO
    strong_guarantee: Resources = ZERO


class Handed(msgspec.Struct, frozen=True):
    """What one element has, wants and is owed."""

    usage: Resources
    demand: Resources
    usage_share: Share
    demand_share: Share
    #: After scaling to what there is.
    strong_guarantee_share: Share
    fair_share: DetailedShare
    dominant_resource: str


class Distribution(msgspec.Struct, frozen=True):
    """The outcome for every element, in their order, and what could not be kept, in words."""

    elements: list[Handed]
    errors: list[str]


def distribute(total: Resources, elements: Sequence[Element]) -> Distribution:
    """Shares out `total` over the tree."""
    children: _Children = [[] for _ in elements]
    for place, element in enumerate(elements[1:], start=1):
        children[element.parent].append(place)
    demands, usages = _sums(elements, [e.demand for e in elements]), _sums(elements, [e.usage for e in elements])
    wanted = _wanted([demand.share_of(total) for demand in demands], children)
    guarantees, errors = _fit_guarantees(total, elements, children)
    scalars = _hand_out(elements, children, wanted, [max(share) for share in guarantees])
    return Distribution(
        elements=_details(total, elements, children, demands, usages, wanted, guarantees, scalars), errors=errors
    )


def _sums(elements: Sequence[Element], own: list[Resources]) -> list[Resources]:
    """Amounts of operations, and of pools the sums of what stands in them."""
    for place in range(len(elements) - 1, 0, -1):
        if own[place] != ZERO:
            own[elements[place].parent] = own[elements[place].parent] + own[place]
    return own


def _wanted(demand_shares: list[Share], children: _Children) -> list[float]:
    wanted = [max(share) for share in demand_shares]
    for place in range(len(wanted) - 1, -1, -1):
        if children[place]:
            wanted[place] = fsum(wanted[child] for child in children[place])
    return wanted


def _fit_guarantees(
    total: Resources, elements: Sequence[Element], children: _Children
) -> tuple[list[Share], list[str]]:
    """Guarantees as shares; those of one parent's children are scaled by one factor where they do not fit into it."""
    shares = [element.strong_guarantee.share_of(total) for element in elements]
    errors: list[str] = []
    for place, below in enumerate(children):
        promised = fsum(max(shares[child]) for child in below)
        room = 1.0 if place == 0 else max(shares[place])
        if promised > room:
            factor = room / promised
            for child in below:
                shares[child] = _scaled(shares[child], factor)
            if place == 0:
                errors.append(
                    f"strong guarantees of the top pools add up to {promised:.6g} of the cluster by their dominant "
                    f"resources; each was scaled by {factor:.6g}"
                )
    shares[0] = _sum_shares([shares[child] for child in children[0]])
    return shares, errors


def _hand_out(
    elements: Sequence[Element], children: _Children, wanted: list[float], guaranteed: list[float]
) -> list[float]:
    """The scalar share of each element, from the root down."""
    scalars = [0.0] * len(elements)
    scalars[0] = min(1.0, wanted[0])
    for place, below in enumerate(children):
        if below:
            parts = fill(
                scalars[place],
                [wanted[child] for child in below],
                [min(guaranteed[child], wanted[child]) for child in below],
                [elements[child].weight for child in below],
            )
            for child, part in zip(below, parts, strict=True):
                scalars[child] = part
    return scalars


def fill(room: float, wanted: list[float], first: list[float], weights: list[float]) -> list[float]:
    """Shares out `room`: to each what it gets `first`, then the rest by weight up to what it has `wanted`.

    Exact: the level at which the rest runs out is found among the sorted levels at which somebody has enough.
    Where even the first parts do not fit, all of them are scaled by one factor.
    """
    if fsum(wanted) <= room:
        return wanted
    promised = fsum(first)
    if promised >= room:
        factor = room / promised if promised > 0 else 0.0
        return [part * factor for part in first]
    open_ = [want - part for want, part in zip(wanted, first, strict=True)]
    level = _level(room - promised, open_, weights)
    return [
        min(want, part + min(gap, weight * level))
        for want, part, gap, weight in zip(wanted, first, open_, weights, strict=True)
    ]


def _level(rest: float, gaps: list[float], weights: list[float]) -> float:
    """The largest level at which nobody who has not enough stands below another, per weight, and `rest` is given out."""
    order = sorted((gap / weight, gap, weight) for gap, weight in zip(gaps, weights, strict=True) if gap > 0)
    # Weights may differ by a factor of 10^16. What is left of their sum is summed up: taking away would leave nothing but rounding.
    weights_left = list(accumulate((weight for _, _, weight in reversed(order)), initial=0.0))
    given = 0.0
    for at, (enough_at, gap, _) in enumerate(order):
        weight_left = weights_left[len(order) - at]
        if given + enough_at * weight_left >= rest:
            return max(0.0, rest - given) / weight_left
        given += gap
    return order[-1][0] if order else 0.0


def _details(
    total: Resources,
    elements: Sequence[Element],
    children: _Children,
    demands: list[Resources],
    usages: list[Resources],
    wanted: list[float],
    guarantees: list[Share],
    scalars: list[float],
) -> list[Handed]:
    totals: list[Share] = [ZERO_SHARE] * len(elements)
    handed: list[Handed] = []
    for place in range(len(elements) - 1, -1, -1):
        demand_share = demands[place].share_of(total)
        if children[place]:
            fair = _sum_shares([totals[child] for child in children[place]])
        elif scalars[place] >= wanted[place]:
            fair = demand_share
        else:
            fair = _scaled(demand_share, scalars[place] / wanted[place])
        totals[place] = fair
        leading = usages[place] if usages[place] != ZERO else demands[place]
        handed.append(
            Handed(
                usage=usages[place],
                demand=demands[place],
                usage_share=usages[place].share_of(total),
                demand_share=demand_share,
                strong_guarantee_share=guarantees[place],
                fair_share=_detailed(fair, guarantees[place]),
                dominant_resource=leading.dominant(total),
            )
        )
    handed.reverse()
    return handed


def _detailed(fair: Share, guarantee: Share) -> DetailedShare:
    u, c, g, m, n = (min(part, most) for part, most in zip(fair, guarantee, strict=True))
    strong: Share = (u, c, g, m, n)
    u, c, g, m, n = (part - part_strong for part, part_strong in zip(fair, strong, strict=True))
    return DetailedShare(strong_guarantee=strong, weight_proportional=(u, c, g, m, n), total=fair)


def _scaled(share: Share, factor: float) -> Share:
    u, c, g, m, n = share
    return (u * factor, c * factor, g * factor, m * factor, n * factor)


def _sum_shares(shares: Sequence[Share]) -> Share:
    if not shares:
        return ZERO_SHARE
    if len(shares) == 1:
        return shares[0]
    u, c, g, m, n = (fsum(parts) for parts in zip(*shares, strict=True))
    return (u, c, g, m, n)
