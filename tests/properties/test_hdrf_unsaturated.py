"""Where everything that is demanded fits, shares are those that the functions of all elements would give."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from random import Random
from typing import Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.pools import IntegralType
from headrace.resources import Resources
from headrace_fair_share.hdrf.model import OperationInput, PoolInput, TreeInput
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from tests.reference.comparing import largest_difference
from tests.reference.ties import is_tie
from tests.support.effort import few_or_many
from tests.support.trees import changed, random_tree
from tests.support.update_result import result_of

TREES: Final = few_or_many(60, 2_000)
#: Sums along the functions end in other last bits than sums of demands.
ROUNDING: Final = 1e-14
#: After other updates functions are added up in another order: see `test_hdrf_incremental`.
GOING_ON: Final = 1e-7


def reduced(amounts: Resources, divisor: int) -> Resources:
    return Resources(*(amount // divisor for amount in amounts.as_tuple()))


def times(tree: TreeInput, demanded: Callable[[Resources], Resources]) -> TreeInput:
    operations = [
        msgspec.structs.replace(each, demand=demanded(each.demand), usage=demanded(each.usage))
        for each in tree.operations
    ]
    return msgspec.structs.replace(tree, operations=operations)


def drawn(draw: Random) -> TreeInput:
    """Any tree, mostly one that demands little, and mostly without what functions are needed for all the same."""
    tree, divisor = random_tree(draw), draw.choice([1, 2, 5, 20, 100])
    tree, pools = times(tree, lambda amounts: reduced(amounts, divisor)), tree.pools
    if draw.randint(0, 3):
        plain = {"integral": IntegralType.NONE, "compute_promised_guarantee": False}
        pools = [msgspec.structs.replace(pool, **plain) for pool in tree.pools]
    return msgspec.structs.replace(tree, pools=pools)


plentiful_trees = st.randoms(use_true_random=False).map(drawn)


@pytest.mark.long
def test_always_shares_are_those_that_functions_give() -> None:
    fitting: list[bool] = []

    @settings(max_examples=TREES, suppress_health_check=[HealthCheck.too_slow])
    @given(plentiful_trees)
    def compare(tree: TreeInput) -> None:
        plain, building = TreeUpdater(), TreeUpdater(builds_always=True)
        difference = largest_difference(result_of(building.update(tree)), result_of(plain.update(tree)))
        assert difference.size <= ROUNDING, f"{difference.where} differs by {difference.size}"
        fitting.append(plain.functions is None)

    compare()

    assert len(fitting) / 10 < sum(fitting) < len(fitting) * 9 / 10


@pytest.mark.long
@settings(max_examples=few_or_many(15, 150), suppress_health_check=[HealthCheck.too_slow])
@given(plentiful_trees, st.randoms(use_true_random=False))
def test_always_between_updates_that_need_functions_too(tree: TreeInput, draw: Random) -> None:
    """The same tree again, between one of less and one of more demand; and all that with something else in it."""
    plain, building = TreeUpdater(), TreeUpdater(builds_always=True)
    for _ in range(3):
        less, more = times(tree, lambda amounts: reduced(amounts, 50)), times(tree, lambda amounts: amounts * 50)
        for each in (more, less, more, tree, less, tree):
            wanted, got = result_of(building.update(each)), result_of(plain.update(each))
            difference = largest_difference(wanted, got)
            assert difference.size <= GOING_ON or is_tie(each, got), f"{difference.where} differs by {difference.size}"
        tree = changed(draw, tree)


def test_a_weight_of_next_to_nothing_is_offered_less_than_it_demands_however_much_is_left() -> None:
    pools = [PoolInput(name="a", parent=-1), PoolInput(name="b", parent=-1, weight=1e-10)]
    operations = [OperationInput(name=str(pool), pool=pool, demand=Resources(cpu=2_000)) for pool in (0, 1)]
    tree = TreeInput(total=Resources(cpu=10_000), pools=pools, operations=operations)

    got, wanted = (result_of(TreeUpdater(builds_always=always).update(tree)) for always in (False, True))

    assert largest_difference(wanted, got).size <= ROUNDING
    assert got.pools["b"].fair_share[1] < 0.1


@settings(max_examples=TREES, suppress_health_check=[HealthCheck.too_slow])
@given(plentiful_trees)
def test_always_the_root_has_exactly_what_is_below_it(tree: TreeInput) -> None:
    shares = TreeUpdater().update(tree)
    below = shares.fair_share[:, shares.layout.top.children].tolist()

    assert shares.fair_share[:, 0].tolist() == [reduce(add, each, 0.0) for each in below]
