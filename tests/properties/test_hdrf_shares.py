"""What must hold of the shares of any tree, in all sets of options."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.pools import IntegralType, PoolMode
from headrace.resources import EPS, RESOURCE_NAMES, Resources, Share
from headrace_fair_share.hdrf.model import IntegralState, OperationInput, PoolInput, TreeInput, UpdateOptions
from tests.conformance.engines import Production
from tests.reference.comparing import elements_of
from tests.support.effort import few_or_many
from tests.support.trees import standard_and_improved, trees
from tests.support.update_result import UpdateResult, update

#: Sums are equal up to rounding; and what counts as rounding where a share is the demand.
NEAR: Final = 1e-12
NEARER: Final = 1e-13
CPU: Final = RESOURCE_NAMES.index("cpu")

any_tree = given(trees())
many = settings(max_examples=few_or_many(20, 200), suppress_health_check=[HealthCheck.too_slow])
pytestmark = pytest.mark.timeout(180)


def no_more(one: Share, other: Share, slack: float = 0.0) -> bool:
    return all(a <= b + slack for a, b in zip(one, other, strict=True))


def added(one: Share, other: Share) -> Share:
    u, c, g, m, n = (a + b for a, b in zip(one, other, strict=True))
    return (u, c, g, m, n)


def children_of(tree: TreeInput, result: UpdateResult) -> dict[str, list[str]]:
    """Names by the name of the parent, in order."""
    children: dict[str, list[str]] = {name: [] for name in ("<root>", *result.pools)}
    for pool in tree.pools:
        children[tree.pools[pool.parent].name if pool.parent >= 0 else "<root>"].append(pool.name)
    for operation in tree.operations:
        children[tree.pools[operation.pool].name].append(operation.name)
    return children


@many
@any_tree
def test_always_figures_are_shares(tree: TreeInput) -> None:
    for element in elements_of(update(tree)).values():
        for field in msgspec.structs.fields(element):
            figures = getattr(element, field.name)
            for figure in figures if isinstance(figures, tuple) else (figures or 0.0,):
                assert math.isfinite(figure)
                assert figure >= 0.0
        assert no_more(element.limits_share, (1.0,) * 5)
        assert no_more(element.usage_share, element.demand_share)


@many
@any_tree
def test_always_guarantees_are_within_limits_exactly(tree: TreeInput) -> None:
    for pool in update(tree).pools.values():
        guarantee = added(pool.strong_guarantee_share, pool.integral_guarantee_share)
        assert no_more(guarantee, pool.limits_share)


@many
@any_tree
def test_never_is_anybody_owed_more_than_demand_or_limits(tree: TreeInput) -> None:
    for element in elements_of(update(tree)).values():
        assert no_more(element.fair_share, element.demand_share, EPS)
        assert no_more(element.fair_share, element.limits_share, 2 * EPS)


@many
@any_tree
def test_never_does_a_share_miss_the_demand_by_rounding_alone(tree: TreeInput) -> None:
    """A resource is blocked, or it is not: the last bit of a sum shall not decide who is below the fair share."""
    for sharing in standard_and_improved(tree):
        for name, element in elements_of(update(sharing)).items():
            for share, demand in zip(element.fair_share, element.demand_share, strict=True):
                assert name == "<root>" or share == demand or abs(share - demand) > NEARER * demand


@many
@any_tree
def test_never_are_children_owed_more_than_their_pool(tree: TreeInput) -> None:
    result = update(tree)
    elements = elements_of(result)
    for name, children in children_of(tree, result).items():
        total: Share = (0.0,) * 5
        for child in children:
            total = added(total, elements[child].fair_share)
        if name == "<root>":
            assert elements[name].fair_share == total
        else:
            assert no_more(total, elements[name].fair_share, EPS)
    assert no_more(result.root.fair_share, (1.0,) * 5, 2 * EPS)


@many
@any_tree
def test_never_are_children_guaranteed_more_than_their_pool(tree: TreeInput) -> None:
    result = update(tree)
    elements = elements_of(result)
    for name, children in children_of(tree, result).items():
        total: Share = (0.0,) * 5
        for child in children:
            total = added(total, elements[child].strong_guarantee_share)
        assert no_more(total, elements[name].strong_guarantee_share, NEAR)


@many
@any_tree
def test_always_the_parts_make_the_whole(tree: TreeInput) -> None:
    for element in elements_of(update(tree)).values():
        parts = (element.strong_part, element.integral_part, element.weight_proportional_part)
        assert all(part >= 0.0 for each in parts for part in each)
        whole = added(added(parts[0], parts[1]), parts[2])
        assert list(whole) == pytest.approx(list(element.fair_share), abs=NEAR)
        assert no_more(element.strong_part, element.strong_guarantee_share)
        assert no_more(element.integral_part, element.integral_guarantee_share)


@many
@any_tree
def test_always_equal_trees_have_equal_shares_to_the_bit(tree: TreeInput) -> None:
    again = msgspec.json.decode(msgspec.json.encode(tree), type=TreeInput)

    assert msgspec.json.encode(update(tree)) == msgspec.json.encode(update(again))


@many
@any_tree
def test_always_the_order_of_a_fifo_pool_is_one_of_its_operations(tree: TreeInput) -> None:
    standard, improved = (update(each) for each in standard_and_improved(tree))

    for place, pool in enumerate(tree.pools):
        members = [each.name for each in tree.operations if each.pool == place]
        orders = [[standard.operations[name].fifo_index for name in members]]
        effective = [standard.operations[name].effective_fifo_index for name in members]
        # However shares are handed out, the order is the same.
        assert effective == [improved.operations[name].effective_fifo_index for name in members]
        if any(index is not None for index in effective):
            orders.append(effective)
        for order in orders:
            wanted = range(len(members)) if pool.mode is PoolMode.FIFO else [None] * len(members)
            assert sorted(order, key=str) == sorted(wanted, key=str)


@many
@any_tree
def test_always_functions_never_fall_and_cover_all_suggestions(tree: TreeInput) -> None:
    for name, kept in Production().functions(tree).items():
        assert (kept.suggestions[0], kept.suggestions[-1]) == (0.0, 1.0), name
        assert kept.suggestions[-2] < 1.0, f"{name} ends in a jump"
        for one, other in pairwise(zip(kept.suggestions, kept.fits, kept.shares, strict=True)):
            assert one[0] <= other[0]
            assert one[1] <= other[1]
            assert all(a <= b + 1e-13 for a, b in zip(one[2], other[2], strict=True)), name


guarantees_beyond_the_cluster = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 200), st.integers(0, 100_000)), min_size=1, max_size=6
)


@settings(max_examples=few_or_many(25, 200))
@given(guarantees_beyond_the_cluster, st.booleans())
def test_never_does_overcommitment_end_an_update(figures: list[tuple[int, int, int]], improved: bool) -> None:
    """Guarantees that are used to the full, beside relaxed pools with savings, leave nothing but roundings to search in."""
    total = Resources(user_slots=100, cpu=10_000, memory=1_048_576_000)
    pools: list[PoolInput] = []
    operations = []
    for number, (guaranteed, flow, _) in enumerate(figures):
        strong = PoolInput(name=f"s{number}", parent=-1, strong_guarantee=(None, guaranteed * 100, None, None, None))
        relaxed = PoolInput(
            name=f"r{number}", parent=-1, integral=IntegralType.RELAXED, resource_flow=Resources(cpu=flow * 100)
        )
        pools += [strong, relaxed]
        operations += [
            OperationInput(name=f"o{number}", pool=2 * number, demand=total),
            OperationInput(name=f"p{number}", pool=2 * number + 1, demand=total),
        ]
    tree = TreeInput(
        total=total,
        options=UpdateOptions(improved=improved),
        pools=pools,
        operations=operations,
        integral={
            f"r{number}": IntegralState((seconds * 100.0, seconds * 1e4, 0.0, seconds * 1e9, 0.0))
            for number, (_, _, seconds) in enumerate(figures)
        },
    )

    assert no_more(update(tree).root.fair_share, (1.0,) * 5, 2 * EPS)


def test_a_fifo_pool_of_two_thousand_operations_is_done_at_once() -> None:
    total = Resources(user_slots=100, cpu=10_000, memory=1_048_576_000)
    operations = [
        OperationInput(
            name=f"o{number}",
            pool=0,
            weight=2000.0 - number,
            demand=Resources(user_slots=1, cpu=100, memory=1_048_576),
        )
        for number in range(2000)
    ]
    tree = TreeInput(total=total, pools=[PoolInput(name="fifo", parent=-1, mode=PoolMode.FIFO)], operations=operations)

    result = update(tree)

    assert [result.operations[f"o{number}"].fair_share[CPU] for number in (0, 99, 100, 1999)] == pytest.approx(
        [0.01, 0.01, 0.0, 0.0], abs=EPS
    )
