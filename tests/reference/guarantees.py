"""Strong guarantees (section 3): inferred, checked against the cluster, fitted into limits and parents, estimated; and weights (9)."""

from __future__ import annotations

import math

from headrace.resources import RESOURCE_NAMES, format_amount
from headrace_fair_share.hdrf.model import ErrorKind, GuaranteeError
from tests.reference.elements import Pool, Tree
from tests.reference.search import largest_double
from tests.reference.values import (
    CPU,
    EPS,
    ONES,
    ZEROS,
    add,
    ensure,
    fill,
    fits,
    half_away,
    larger,
    largest,
    real,
    share,
    smaller,
    subtract,
    sum_in_order,
    times,
    total_of,
)

__all__ = ["check_configuration", "estimate", "fit", "infer", "settle_overcommit", "split_into_tiers", "weigh"]


def check_configuration(tree: Tree) -> list[GuaranteeError]:
    """Section 12: what is reported before anything is computed."""
    nested: list[str] = []
    orphans: list[str] = []
    _check(tree.root, False, False, nested, orphans)
    errors = []
    if nested:
        text = f"pools ask for a promised guarantee inside a pool that asks for one: {', '.join(nested)}"
        errors.append(GuaranteeError(ErrorKind.NESTED_PROMISED_GUARANTEE, text, nested))
    if orphans:
        text = f"pools have priority with no donor above them: {', '.join(orphans)}"
        errors.append(GuaranteeError(ErrorKind.PRIORITY_WITHOUT_DONOR, text, orphans))
    return errors


def _check(pool: Pool, promised_above: bool, donor_above: bool, nested: list[str], orphans: list[str]) -> None:
    given = pool.given
    if given.compute_promised_guarantee and promised_above:
        nested.append(pool.name)
    if given.priority_strong_guarantee and not donor_above:
        orphans.append(pool.name)
    promised = promised_above or given.compute_promised_guarantee
    donor = given.priority_strong_guarantee_donor or (donor_above and not given.priority_strong_guarantee)
    for child in pool.pools():
        _check(child, promised, donor, nested, orphans)


def infer(tree: Tree) -> None:
    """Section 3.1. The root is guaranteed the cluster; its share is what its children's come to."""
    tree.root.inferred = tree.total.as_tuple()
    _infer_children(tree, tree.root)
    for element in (*tree.pools, *tree.operations):
        element.strong = share(element.inferred, tree.total)
    tree.root.strong = total_of(child.strong for child in tree.root.children)


def _infer_children(tree: Tree, parent: Pool) -> None:
    main = tree.options.main_resource
    pools = parent.pools()
    figures = [[amount or 0 for amount in pool.given.strong_guarantee] for pool in pools]
    for r in range(len(RESOURCE_NAMES)):
        if r == main:
            continue
        silent = [place for place, pool in enumerate(pools) if pool.given.strong_guarantee[r] is None]
        whole, whole_main = parent.inferred[r], parent.inferred[main]
        wanted = [
            real(main, figures[place][main]) / real(main, whole_main) * real(r, whole) if whole_main else 0.0
            for place in silent
        ]
        asked = sum_in_order(wanted)
        rest = real(r, max(whole - sum(figure[r] for figure in figures), 0))
        if not parent.is_root and asked > rest:
            wanted = [amount * (rest / asked) for amount in wanted]
        for place, amount in zip(silent, wanted, strict=True):
            figures[place][r] = _whole(r, amount)
    for pool, figure in zip(pools, figures, strict=True):
        pool.inferred = tuple(figure)
        _infer_children(tree, pool)


def _whole(r: int, number: float) -> int:
    """cpu to the nearest hundredth; anything else is cut."""
    return half_away(number * 100) if r == CPU else math.trunc(number)


def settle_overcommit(tree: Tree, burst_pools: list[Pool]) -> list[GuaranteeError]:
    """Section 3.2: complaints, and all scaled down if burst guarantees do not fit."""
    root, total = tree.root, tree.total.as_tuple()
    guaranteed = [sum(child.inferred[r] for child in root.children) for r in range(len(total))]
    errors = []
    for kind, ratio, what in (
        (ErrorKind.OVERCOMMIT_FLOW, root.total_flow, "resource flows"),
        (ErrorKind.OVERCOMMIT_BURST, root.total_burst, "burst guarantees"),
    ):
        promised = [a + half_away(t * ratio) for a, t in zip(guaranteed, total, strict=True)]
        over = [
            f"{name} by {format_amount(name, p - t)}"
            for name, p, t in zip(RESOURCE_NAMES, promised, total, strict=True)
            if p > t
        ]
        if over:
            text = f"strong guarantees and {what} exceed the cluster: {', '.join(over)}"
            errors.append(GuaranteeError(kind, text, [pool.name for pool in root.pools()]))
            if kind is ErrorKind.OVERCOMMIT_BURST:
                _scale_down(root, burst_pools)
    return errors


def _scale_down(root: Pool, burst_pools: list[Pool]) -> None:
    def fitting(f: float) -> bool:
        return fits(ONES, total_of((fill(pool.burst_ratio * f) for pool in burst_pools), times(root.strong, f)))

    f = largest_double(0.0, 1.0, fitting)
    root.strong = times(root.strong, f)
    for pool in burst_pools:
        pool.burst_ratio *= f


def split_into_tiers(tree: Tree) -> None:
    """Section 3.3."""
    _split(tree.root, False)


def _split(pool: Pool, donor_above: bool) -> None:
    given = pool.given
    donor_below = given.priority_strong_guarantee_donor or (donor_above and not given.priority_strong_guarantee)
    for child in pool.pools():
        _split(child, donor_below)
    if given.priority_strong_guarantee and donor_above:
        pool.tiers = [pool.strong, ZEROS]
    elif given.priority_strong_guarantee_donor:
        pool.tiers = [ZEROS, pool.strong]
    else:
        priority = total_of(child.tiers[0] for child in pool.children)
        pool.tiers = [priority, subtract(pool.strong, priority)]


def fit(pool: Pool) -> None:
    """Section 3.4: into its own limits, then the children into it, tier by tier."""
    pool.strong = smaller(pool.strong, pool.limits_share)
    fixed = ZEROS
    for tier in range(2):
        parts = [child.tiers[tier] for child in pool.children]
        asked = total_of(parts)
        left = subtract(pool.strong, fixed)
        ensure(fits(left, ZEROS, EPS), f"tiers fixed in {pool.name} stay within its guarantee: {left}")
        room = larger(left, ZEROS)
        if fits(room, asked):
            fixed = add(fixed, asked)
            continue

        def fitting(f: float, parts: list[tuple[float, ...]] = parts, room: tuple[float, ...] = room) -> bool:
            return fits(room, total_of(times(part, f) for part in parts))

        f = largest_double(0.0, 1.0, fitting)
        for child in pool.children:
            child.tiers[tier] = times(child.tiers[tier], f)
            for later in range(tier + 1, 2):
                child.tiers[later] = ZEROS
        break
    for child in pool.children:
        child.strong = add(child.tiers[0], child.tiers[1])
    for pool_below in pool.pools():
        fit(pool_below)


def weigh(tree: Tree) -> None:
    """Weights in force: specified, inferred from the guarantees, or 1; and falling with historic usage."""
    for pool in tree.pools:
        parent = pool.parent
        if parent is None:
            continue
        if parent.given.historic_usage_weights:
            base = 1.0 if pool.given.weight is None else pool.given.weight
            pool.weight = base * 2.0**-pool.given.historic_usage_average
        elif pool.given.weight is not None:
            pool.weight = pool.given.weight
        else:
            pool.weight = _inferred_weight(tree, pool, parent)


def _inferred_weight(tree: Tree, pool: Pool, parent: Pool) -> float:
    multiplier = tree.options.infer_weight_multiplier
    own = largest(pool.strong) + pool.total_flow
    whole = largest(parent.strong) + parent.total_flow
    if multiplier is None or own < EPS or whole < EPS:
        return 1.0
    return own * multiplier / whole


def estimate(pool: Pool) -> None:
    """Section 3.5: what is guaranteed, and the rest by weight."""
    left = pool.estimated
    for child in pool.children:
        child.estimated = smaller(child.strong, left)
        left = subtract(left, child.estimated)
    weights = sum_in_order(child.weight for child in pool.children)
    for child in pool.children:
        child.estimated = tuple(
            e + rest * child.weight / weights for e, rest in zip(child.estimated, left, strict=True)
        )
    for pool_below in pool.pools():
        estimate(pool_below)
