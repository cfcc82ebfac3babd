"""Integral shares of burst pools, one by one, and of relaxed pools, together (sections 5.3, 5.4, 5.6)."""

from __future__ import annotations

import math

from tests.reference.elements import Pool, Tree
from tests.reference.functions import make_functions
from tests.reference.search import largest_double
from tests.reference.values import (
    EPS,
    ONES,
    ZEROS,
    Values,
    add,
    ensure,
    fill,
    fits,
    larger,
    largest,
    smaller,
    subtract,
    total_of,
)
from tests.reference.volumes import ratio_by_volume

__all__ = ["grant_burst", "grant_relaxed"]

#: How many doubles a share may be stepped back to be within the limits exactly.
_STEPS = 32


def _room(pool: Pool) -> Values:
    """What the limits of the pool and of those above it leave."""
    room = fill(math.inf)
    for above in pool.upwards():
        room = smaller(room, subtract(above.limits_share, add(above.strong, above.proposed)))
    ensure(fits(room, ZEROS, EPS), f"there is room under the limits above {pool.name}: {room}")
    return larger(room, ZEROS)


def _clip(pool: Pool, proposed: Values) -> Values:
    """At most so much that strong and integral guarantee are within the limits exactly."""
    limits, strong = pool.limits_share, pool.strong
    ensure(fits(limits, strong), f"the strong guarantee of {pool.name} is within its limits")
    ensure(fits(limits, add(strong, proposed), EPS), f"the guarantees of {pool.name} are within its limits, nearly")
    clipped = []
    for part, limit, base in zip(proposed, limits, strong, strict=True):
        fitting = part
        if not limit >= base + fitting:
            fitting = limit - base
            for _ in range(_STEPS):
                if limit >= base + fitting:
                    break
                fitting = math.nextafter(fitting, 0.0)
        clipped.append(fitting)
    ensure(fits(limits, add(strong, tuple(clipped))), f"the guarantees of {pool.name} are within its limits")
    return tuple(clipped)


def _give(pool: Pool, granted: Values) -> None:
    """To the pool and to all above it."""
    above: Pool | None = pool
    while above is not None:
        proposed = add(above.proposed, granted)
        above.proposed = proposed if above.is_root else _clip(above, proposed)
        above = above.parent


def _left_by_top_pools(tree: Tree) -> Values:
    left = ONES
    for child in tree.root.children:
        left = subtract(left, smaller(add(child.strong, child.proposed), child.demand_share))
    return larger(left, ZEROS)


def grant_burst(tree: Tree, pools: list[Pool], *, fast_fifo: bool = False) -> None:
    """Section 5.3. Where guarantees and bursts exceed the cluster as shares, though not as amounts, no more is given than is left."""
    bursts = fill(sum(pool.burst_ratio for pool in pools))
    exceeds = not fits(ONES, add(tree.root.strong, bursts), EPS)
    for pool in pools:
        most = min(pool.burst_ratio, ratio_by_volume(tree, pool))
        before = pool.proposed
        room = smaller(_room(pool), _left_by_top_pools(tree)) if exceeds else _room(pool)
        pool.proposed = _clip(pool, smaller(fill(most), room))
        ensure(fits(pool.proposed, ZEROS), f"what is proposed to {pool.name} is not negative")
        fs = make_functions(tree, pool, fast_fifo=fast_fifo).fs
        pool.proposed = before
        granted = larger(subtract(fs.value(0.0), pool.strong), ZEROS)
        _give(pool, granted)
        pool.functions = None
        pool.last_share_ratio = largest(granted)


def grant_relaxed(tree: Tree, pools: list[Pool], *, fast_fifo: bool = False) -> None:
    """Section 5.4. Where rounding leaves no fit factor at all, it is zero."""
    available = _left_by_top_pools(tree)
    ratios = {pool.name: ratio_by_volume(tree, pool) for pool in pools}
    saving = [pool for pool in pools if ratios[pool.name] > 0]
    if not tree.options.charge_skipped_relaxed_pools:
        for pool in pools:
            if ratios[pool.name] <= 0:
                pool.last_share_ratio = 0.0
    if not saving:
        return
    own_limits = [pool.limits_share for pool in saving]
    for pool in saving:
        multiplier = pool.given.relaxed_share_multiplier_limit
        if multiplier is None:
            multiplier = tree.options.relaxed_share_multiplier_limit
        most = min(ratios[pool.name], multiplier * pool.flow_ratio)
        pool.limits_share = smaller(pool.limits_share, add(pool.strong, fill(most)))
        make_functions(tree, pool, fast_fifo=fast_fifo)
    least = min(ratios[pool.name] for pool in saving)
    ensure(least > 0, "the smallest weight of relaxed pools is positive")
    weights = [ratios[pool.name] / least for pool in saving]

    def grants(f: float) -> list[Values]:
        return [
            larger(subtract(pool.made().fs.value(min(1.0, f * weight)), pool.strong), ZEROS)
            for pool, weight in zip(saving, weights, strict=True)
        ]

    def fitting(f: float) -> bool:
        return fits(available, total_of(grants(f)))

    f = largest_double(0.0, 1.0, fitting) if fitting(0.0) else 0.0
    for pool, limits, granted in zip(saving, own_limits, grants(f), strict=True):
        pool.limits_share = limits
        given = smaller(granted, _room(pool))
        _give(pool, given)
        pool.functions = None
        pool.last_share_ratio = largest(given)
