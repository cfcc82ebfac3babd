"""What must hold of operations that share one pool."""

from __future__ import annotations

from math import fsum

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pools import PoolMode
from headrace.resources import ZERO, Resources, Share
from headrace_fair_share.hdrf.model import OperationInput, PoolInput, TreeInput
from tests.support.update_result import update


def amounts_of_anything(draw: st.DrawFn) -> Resources:
    u, c, g, m, n = (draw(st.integers(0, 3 * most // 2)) for most in (100, 10_000, 8, 2**36, 50))
    return Resources(u, c, g, m, n)


@st.composite
def flat_trees(draw: st.DrawFn, *, taken: bool | None = None) -> TreeInput:
    """One pool without guarantees, and operations that differ in demand and weight.

    Beside it there may be one, or is with `taken`, that is guaranteed all of a resource and uses it. Then the first operations of the
    pool, a fifo one with `taken`, want none of that.
    """
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
    pools = [PoolInput(name="pool", parent=-1, mode=PoolMode.FIFO if taken else draw(st.sampled_from(PoolMode)))]
    if taken or draw(st.booleans()):
        resource = draw(st.integers(0, 4))
        whole = [amount if at == resource else 0 for at, amount in enumerate(total.as_tuple())]
        heaviest_first = sorted(range(len(operations)), key=lambda at: -operations[at].weight)
        for at in heaviest_first[: draw(st.integers(1, len(operations)))]:
            demand = [0 if each == resource else amount for each, amount in enumerate(operations[at].demand.as_tuple())]
            operations[at] = msgspec.structs.replace(operations[at], demand=Resources(*demand))
        u, c, g, m, n = (amount or None for amount in whole)
        pools.append(PoolInput(name="owner", parent=-1, strong_guarantee=(u, c, g, m, n)))
        operations.append(OperationInput(name="all", pool=1, demand=Resources(*whole), usage=Resources(*whole)))
    return TreeInput(total=total, pools=pools, operations=operations)


def shares_of(tree: TreeInput) -> list[Share]:
    result = update(tree)
    return [each.fair_share for each in (result.root, *result.pools.values(), *result.operations.values())]


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
    before, after = (update(each).operations for each in (tree, msgspec.structs.replace(tree, operations=heavier)))
    name = tree.operations[place].name

    assert fsum(after[name].fair_share) >= fsum(before[name].fair_share) - 1e-9


@given(flat_trees(taken=True))
def test_always_the_first_of_a_fifo_pool_gets_all_that_nobody_is_guaranteed(tree: TreeInput) -> None:
    first = max((each for each in tree.operations if each.pool == 0), key=lambda each: each.weight)
    taken = Resources.sum(each.demand for each in tree.operations if each.pool == 1)
    pairs = zip(first.demand.as_tuple(), (tree.total - taken).as_tuple(), strict=True)
    part = min(1.0, *(there / wants for wants, there in pairs if wants), 1.0)

    wanted = [part * share for share in first.demand.share_of(tree.total)]
    assert update(tree).operations[first.name].fair_share == pytest.approx(wanted, abs=1e-9)


def test_the_cluster_without_nodes_owes_nothing() -> None:
    tree = TreeInput(
        total=ZERO,
        pools=[PoolInput(name="pool", parent=-1)],
        operations=[OperationInput(name="operation", pool=0, demand=Resources(user_slots=1, cpu=100))],
    )

    assert shares_of(tree) == [(0.0,) * 5] * 3
    assert not update(tree).errors
