"""Shares handed out from the root down (section 8), as a suggestion or, in improved mode, as a vector."""

from __future__ import annotations

import math

from tests.reference.elements import Element, Operation, Pool, Tree
from tests.reference.functions import pace
from tests.reference.search import largest_double
from tests.reference.values import EPS, ZEROS, Values, ensure, fits, subtract, total_of

__all__ = ["hand_out", "promise"]

Outcome = dict[int, Values]


def hand_out(tree: Tree) -> None:
    """Fair shares of all elements; the root's own is still what it wanted."""
    outcome = _from(tree, tree.root, 1.0)
    for element in (tree.root, *tree.pools, *tree.operations):
        element.fair = outcome[id(element)]


def promise(tree: Tree, pool: Pool) -> None:
    """Shares within the guarantee, for the first pools on each path that ask for them."""
    if pool.given.compute_promised_guarantee:
        outcome = _from(tree, pool, 0.0)
        for element in (*tree.pools, *tree.operations):
            element.promised = outcome.get(id(element), element.promised)
        return
    for child in pool.pools():
        promise(tree, child)


def _from(tree: Tree, pool: Pool, suggestion: float) -> Outcome:
    outcome: Outcome = {}
    if tree.options.improved:
        _hand_down_vector(tree, pool, pool.made().fs.value(suggestion), outcome)
    else:
        _hand_down(tree, pool, suggestion, outcome)
    return outcome


def _fifo_offers(count: int, f: float) -> list[float]:
    ensure(0 <= f <= count, f"fit factor {f} of a fifo pool with {count} operations")
    whole = math.floor(f)
    return [1.0 if place < whole else f - whole if place == whole else 0.0 for place in range(count)]


def _check(pool: Pool, want: Values, outcome: Outcome) -> None:
    """What the children got is no more than the pool did."""
    got = total_of(outcome[id(child)] for child in pool.served())
    ensure(fits(want, got, EPS), f"children of {pool.name} got no more than it: {got} of {want}")


def _hand_down(tree: Tree, element: Element, suggestion: float, outcome: Outcome) -> None:
    """Section 8.1."""
    made = element.made()
    want = made.fs.value(suggestion)
    outcome[id(element)] = want
    if isinstance(element, Operation):
        return
    assert isinstance(element, Pool)
    children = element.served()
    if not children:
        outcome[id(element)] = ZEROS
        return
    speeds = [] if element.is_fifo else pace(element)

    def offers(f: float) -> list[float]:
        return _fifo_offers(len(children), f) if element.is_fifo else [min(1.0, f * speed) for speed in speeds]

    def fitting(f: float) -> bool:
        parts = (child.made().fs.value(offer) for child, offer in zip(children, offers(f), strict=True))
        return fits(want, total_of(parts), EPS)

    (f,) = made.mff.value(suggestion)
    if not fitting(f):
        f = largest_double(0.0, f, fitting)
    for child, offer in zip(children, offers(f), strict=True):
        _hand_down(tree, child, offer, outcome)
    _check(element, want, outcome)


def _hand_down_vector(tree: Tree, element: Element, want: Values, outcome: Outcome) -> None:
    """Section 8.2."""
    outcome[id(element)] = want
    if isinstance(element, Operation):
        return
    assert isinstance(element, Pool)
    children = element.served()
    if not children:
        outcome[id(element)] = ZEROS
        return
    made = element.made()

    def vectors(f: float) -> list[Values]:
        if not element.is_fifo:
            return [plot.value(f) for plot in made.by_child]
        return [
            child.made().fs.value(offer) for child, offer in zip(children, _fifo_offers(len(children), f), strict=True)
        ]

    bound = made.ff.end
    f = largest_double(0.0, bound, lambda f: fits(want, total_of(vectors(f))))
    rest = subtract(want, total_of(vectors(f)))
    if tree.options.distribution_gap and any(part > EPS for part in rest):
        f = largest_double(f, bound, lambda f: fits(want, total_of(vectors(f)), EPS))
    if f < EPS:
        f = 0.0
    for child, vector in zip(children, vectors(f), strict=True):
        _hand_down_vector(tree, child, vector, outcome)
    _check(element, want, outcome)
