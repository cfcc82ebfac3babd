"""What must hold of the objects that the service makes of an update, for any tree. The algorithm has properties of its own."""

from __future__ import annotations

from math import fsum

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.resources import RESOURCE_NAMES, ZERO, Resources, Share
from headrace_fair_share.hdrf.model import ElementShares, OperationInput, PoolInput, TreeInput
from headrace_fair_share.hdrf.update import HdrfEngine, update
from headrace_fair_share.shares import Handed, distribute
from tests.support.trees import trees

#: Sums of shares are equal up to rounding.
NEAR = 1e-12

pytestmark = pytest.mark.timeout(180)
any_tree = given(trees())
some = settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])


def elements(tree: TreeInput) -> list[Handed]:
    return distribute(tree, HdrfEngine()).elements


def children(tree: TreeInput, place: int) -> list[int]:
    """Places of the children of the element at this place: the root, then pools, then operations."""
    pools = [at for at, pool in enumerate(tree.pools, start=1) if pool.parent == place - 1]
    first = len(tree.pools) + 1
    return pools + [first + at for at, each in enumerate(tree.operations) if each.pool == place - 1]


@some
@any_tree
def test_always_the_objects_say_what_the_update_says(tree: TreeInput) -> None:
    result = update(tree)
    expected: list[ElementShares] = [result.root, *result.pools.values(), *result.operations.values()]

    for handed, shares in zip(elements(tree), expected, strict=True):
        assert handed.fair_share.total == shares.fair_share
        assert handed.fair_share.strong_guarantee == shares.strong_part
        assert handed.fair_share.integral_guarantee == shares.integral_part
        assert handed.fair_share.weight_proportional == shares.weight_proportional_part
        assert handed.limits_share == shares.limits_share
        assert handed.proposed_integral_share == shares.integral_guarantee_share
        assert handed.promised_fair_share == shares.promised_guarantee_fair_share
        assert handed.dominant_resource == RESOURCE_NAMES[shares.dominant_resource]
        assert (handed.fifo_index, handed.effective_fifo_index) == (shares.fifo_index, shares.effective_fifo_index)


@some
@any_tree
def test_always_what_a_pool_has_and_wants_is_the_sum_of_what_its_children_do(tree: TreeInput) -> None:
    handed = elements(tree)
    for place in range(len(tree.pools) + 1):
        below = [handed[child] for child in children(tree, place)]
        assert handed[place].usage == Resources.sum(each.usage for each in below)
        assert handed[place].demand == Resources.sum(each.demand for each in below)


@some
@any_tree
def test_always_the_parts_are_not_negative_and_add_up(tree: TreeInput) -> None:
    for each in elements(tree):
        parts = each.fair_share
        assert min(*parts.strong_guarantee, *parts.integral_guarantee, *parts.weight_proportional) >= 0
        for strong, integral, free, total in zip(*msgspec.structs.astuple(parts), strict=True):
            assert strong + integral + free == pytest.approx(total, abs=NEAR)


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
    return [each.fair_share.total for each in elements(tree)]


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
    outcome = distribute(tree, HdrfEngine())

    assert [each.fair_share.total for each in outcome.elements] == [(0.0,) * 5] * 3
    assert not outcome.errors
