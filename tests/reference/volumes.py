"""Savings of integral pools (sections 5.1, 5.2, 5.5). cpu volumes are whole hundredths of a core-second, the others plain doubles."""

from __future__ import annotations

from tests.reference.elements import Pool, Tree
from tests.reference.values import (
    CPU,
    EPS,
    ZEROS,
    Values,
    add,
    half_away,
    larger,
    share,
    smaller,
    subtract,
    sum_in_order,
    total_of,
)

__all__ = ["advance", "hand_out_free_volume", "ratio_by_volume"]


def _volume(numbers: Values, factor: float) -> Values:
    """Times a number; cpu is rounded."""
    return tuple(float(half_away(n * factor)) if r == CPU else n * factor for r, n in enumerate(numbers))


def advance(tree: Tree, pool: Pool, dt: float) -> None:
    """Section 5.1 for one pool."""
    total = tree.total.as_tuple()
    income = tuple(float(half_away(amount * pool.flow_ratio)) for amount in total)
    capacity = _volume(income, tree.options.saturation_period_s)
    period = _volume(tuple(float(amount) for amount in total), dt)
    old = pool.volume
    volume = add(old, _volume(period, pool.flow_ratio))
    volume = larger(subtract(volume, _volume(period, pool.last_share_ratio)), ZEROS)
    upper = larger(old, capacity)
    pool.overflow = larger(subtract(volume, upper), ZEROS)
    if pool.given.can_accept_free_volume:
        pool.acceptable = larger(subtract(capacity, volume), ZEROS)
    pool.volume = smaller(volume, upper)


def ratio_by_volume(tree: Tree, pool: Pool) -> float:
    """Section 5.2: the share that the savings can pay for during one smooth period."""
    period = tree.options.smooth_period_s
    pairs = zip(share(pool.volume, tree.total), tree.total.as_tuple(), strict=True)
    return min((part / period for part, there_is in pairs if there_is), default=0.0)


def hand_out_free_volume(tree: Tree) -> None:
    """Section 5.5: what some pools cannot keep goes to their hungry siblings."""
    _collect(tree.root)
    _distribute(tree, tree.root)


def _collect(pool: Pool) -> None:
    if pool.is_integral:
        return
    for child in pool.pools():
        _collect(child)
    spare = total_of(child.overflow for child in pool.pools())
    wanted = total_of(child.acceptable for child in pool.pools())
    pool.overflow_of_children = spare
    accepts = pool.given.can_accept_free_volume
    pool.overflow = tuple(s - w if s > w else 0.0 for s, w in zip(spare, wanted, strict=True))
    pool.acceptable = tuple(0.0 if s > w or not accepts else w - s for s, w in zip(spare, wanted, strict=True))


def _distribute(tree: Tree, pool: Pool) -> None:
    if pool.is_integral:
        pool.volume = add(pool.volume, pool.accepted)
        return
    distributes = pool.given.distribute_free_volume
    if distributes is None:
        distributes = tree.options.distribute_free_volume
    if distributes and not pool.is_root:
        free = add(pool.accepted, pool.overflow_of_children)
        for r, amount in enumerate(free):
            if amount != 0:
                _share_out(pool, r, amount)
    for child in pool.pools():
        _distribute(tree, child)


def _share_out(pool: Pool, r: int, free: float) -> None:
    """One resource, to the children nearest to their capacity first."""
    hungry = [child for child in pool.pools() if child.acceptable[r] > EPS and child.total_flow > EPS]
    hungry.sort(key=lambda child: child.acceptable[r] / child.total_flow)
    weights = sum_in_order(child.total_flow for child in hungry)
    full = True
    for child in hungry:
        offer = free * child.total_flow / weights
        if r == CPU:
            offer = float(half_away(offer))
        full = full and offer >= child.acceptable[r]
        if full:
            offer = child.acceptable[r]
            free -= offer
            weights -= child.total_flow
        child.accepted = tuple(offer if at == r else old for at, old in enumerate(child.accepted))
