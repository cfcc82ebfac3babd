"""What must hold of operations that share one pool."""

from __future__ import annotations

from math import fsum

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.resources import ZERO, Resources, Share
from headrace_fair_share.hdrf.model import OperationInput, PoolInput, TreeInput
from tests.support.update_result import update


def amounts_of_anything(draw: st.DrawFn) -> Resources:
    u, c, g, m, n = (draw(st.integers(0, 3 * most // 2)) for most in (100, 10_000, 8, 2**36, 50))
    return Resources(u, c, g, m, n)


@st.composite
def flat_trees(draw: st.DrawFn) -> TreeInput:
    """One pool without guarantees, and operations that differ in demand and weight."""
    operations = [
        OperationInput(
            name=f"operation{at}",
            pool=0,
            weight=draw(st.sampled_from([0.5, 1.0, 2.0])),
            demand=amounts_of_anything(draw),
        )
        for at in range(draw(st.integers(1, 6)))
    ]
    total = Resources(100, 10_000, 8, 2**36, 50)
    return TreeInput(total=total, pools=[PoolInput(name="pool", parent=-1)], operations=operations)


def shares_of(tree: TreeInput) -> list[Share]:
    result = update(tree)
    elements = [result.root, *result.pools.values(), *result.operations.values()]
    return [each.fair_share for each in elements]


@given(flat_trees(), st.integers(-8, 8))
def test_never_does_a_common_factor_of_weights_matter(tree: TreeInput, exponent: int) -> None:
    scaled = [msgspec.structs.replace(each, weight=each.weight * 3.0**exponent) for each in tree.operations]

    for one, other in zip(shares_of(tree), shares_of(msgspec.structs.replace(tree, operations=scaled)), strict=True):
        assert list(one) == pytest.approx(list(other), abs=1e-9)


@given(flat_trees(), st.integers(0, 5))
def test_never_does_more_weight_get_less(tree: TreeInput, which: int) -> None:
    place = which % len(tree.operations)
    heavier = list(tree.operations)
    heavier[place] = msgspec.structs.replace(heavier[place], weight=heavier[place].weight * 4)
    before, after = shares_of(tree), shares_of(msgspec.structs.replace(tree, operations=heavier))

    assert fsum(after[2 + place]) >= fsum(before[2 + place]) - 1e-9


def test_the_cluster_without_nodes_owes_nothing() -> None:
    tree = TreeInput(
        total=ZERO,
        pools=[PoolInput(name="pool", parent=-1)],
        operations=[OperationInput(name="operation", pool=0, demand=Resources(user_slots=1, cpu=100))],
    )

    assert shares_of(tree) == [(0.0,) * 5] * 3
    assert not update(tree).errors
